// Manifests of a larger cluster: zones, nodes with shared GPUs, pods on them, and pods that wait.
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

const ZONES = 12;
const NODES = 1_000;
const PODS = 4_000;

const pod = (i, node) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: `worker-${i}`, namespace: "batch", labels: { app: i % 10 ? "worker" : "service" } },
  spec: {
    ...(node && { nodeName: node }),
    containers: [{ name: "main", image: "example.com/worker:1", resources: { limits: { cpu: "1", "nvidia.com/gpu-shared": `${1 + (i % 3)}` } } }],
  },
});

const node = (i) => ({
  apiVersion: "v1",
  kind: "Node",
  metadata: {
    name: `node-${String(i).padStart(4, "0")}`,
    labels: { "topology.kubernetes.io/zone": `zone-${i % ZONES}`, "nvidia.com/gpu.product": i % 4 ? "NVIDIA-L4" : "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.replicas": "4" },
  },
  status: { allocatable: { cpu: "64", memory: "256Gi", pods: "110", "nvidia.com/gpu-shared": "16" } },
});

const ours = (kind, name, spec) => ({ apiVersion: "constraint.ciena.com/v1alpha1", kind, metadata: { name, namespace: "batch" }, spec });

const provider = (rule) => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: rule, namespace: "tautline-system", labels: { [`constraint.ciena.com/constraint-${rule}`]: "enabled" } },
  spec: { selector: { app: rule }, ports: [{ name: "ruleprovider", port: 5309 }] },
});

function table() {
  const lines = ["from,to,rtt"];
  for (let a = 0; a < ZONES; a++) for (let b = a; b < ZONES; b++) lines.push(`zone-${a},zone-${b},${a === b ? 300 : 1000 + 2500 * (b - a)}us`);
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "rtt", namespace: "tautline-system", labels: { "constraint.ciena.com/latency-table": "enabled" } }, data: { "table.csv": lines.join("\n") } };
}

const offer = (name, targets, policies) =>
  ours("ConstraintPolicyOffer", name, { targets: targets.map(([role, app]) => ({ name: role, kind: "Pod", labelSelector: { matchLabels: { app } } })), policies });

export async function writeLargeCluster() {
  const nodes = Array.from({ length: NODES }, (_, i) => node(i));
  const items = [
    ...nodes,
    ...Array.from({ length: PODS }, (_, i) => pod(i, i < PODS - 5 && nodes[(i * 7) % NODES].metadata.name)),
    provider("latency"),
    provider("gpu-slice"),
    table(),
    ours("ConstraintPolicy", "near", { rules: [{ name: "latency", request: "2ms", limit: "12ms" }] }),
    ours("ConstraintPolicy", "gpu", { rules: [{ name: "gpu-slice", request: "true" }] }),
    offer("services", [["source", "service"]], ["gpu"]),
    offer("workers", [["source", "worker"]], ["gpu"]),
  ];
  const folder = join(process.env.WORK, "large");
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "cluster.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  return folder;
}
