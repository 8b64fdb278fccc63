//! The objects of the cluster, as large as in a production cluster.

use serde_json::{Value, json};
use tautline_bench::node_name;

use crate::Size;

/// Pods of one workload. An offer selects one workload.
const PODS_PER_WORKLOAD: usize = 50;
const WORKLOADS_PER_NAMESPACE: usize = 15;

/// The rules of every policy.
pub const RULES: [&str; 2] = ["latency", "gpu-slice"];

pub fn namespace(workload: usize) -> String {
    format!("team-{}", workload / WORKLOADS_PER_NAMESPACE)
}

pub fn app(workload: usize) -> String {
    format!("service-{workload}")
}

pub fn pod_name(i: usize) -> (String, String) {
    let workload = i / PODS_PER_WORKLOAD;
    let name = format!("{}-{}-{:05}", app(workload), hash(workload), i);
    (namespace(workload), name)
}

fn hash(workload: usize) -> String {
    format!("{:010x}", workload * 7919)
}

pub fn workloads(size: &Size) -> usize {
    size.pods.div_ceil(PODS_PER_WORKLOAD).max(size.offers)
}

pub fn namespaces(size: &Size) -> usize {
    workloads(size).div_ceil(WORKLOADS_PER_NAMESPACE)
}

pub fn node(i: usize) -> Value {
    let capacity =
        json!({"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    let zone = format!("eu-central-1{}", ["a", "b", "c"][i % 3]);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(i), "labels": {
            "kubernetes.io/hostname": node_name(i), "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "m7i.8xlarge",
            "topology.kubernetes.io/region": "eu-central-1", "topology.kubernetes.io/zone": zone,
        }},
        "status": {
            "capacity": capacity, "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "images": (0..20).map(|n| json!({
                "names": [format!("registry.example.com/team/app-{n}@sha256:{n:064x}")],
                "sizeBytes": 100_000_000})).collect::<Vec<_>>(),
        },
    })
}

fn labels(workload: usize) -> Value {
    json!({
        "app": app(workload), "app.kubernetes.io/name": app(workload),
        "app.kubernetes.io/instance": app(workload), "app.kubernetes.io/part-of": "shop",
        "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": hash(workload),
    })
}

/// A bound pod with two containers: 5 KB as the API server sends it.
pub fn pod(i: usize, nodes: usize) -> Value {
    let workload = i / PODS_PER_WORKLOAD;
    let (namespace, name) = pod_name(i);
    let env: Vec<Value> = (0..12)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value-{n}.{namespace}.svc")}))
        .collect();
    let container = |name: &str| {
        let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10});
        json!({
            "name": name, "image": format!("registry.example.com/{name}:1.{workload}"), "env": env,
            "ports": [{"containerPort": 8080, "name": format!("{name}-http")}],
            "livenessProbe": probe, "readinessProbe": probe,
            "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "labels": labels(workload),
            "annotations": {"checksum/config": format!("{workload:064x}"), "prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
                "name": format!("{}-{}", app(workload), hash(workload)),
                "uid": format!("{workload:08x}-0000-4000-8000-000000000000")}],
        },
        "spec": {
            "nodeName": node_name(i % nodes), "automountServiceAccountToken": false,
            "containers": [container("main"), container("proxy")],
            "volumes": [{"name": "config", "configMap": {"name": app(workload)}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                             "effect": "NoExecute", "tolerationSeconds": 300}],
        },
    })
}

/// A Service; a hundred of them are providers of rules that no policy has.
pub fn service(i: usize, size: &Size) -> Value {
    let workload = i % workloads(size);
    let mut labels = labels(workload);
    if i.is_multiple_of((size.services / 100).max(1)) {
        labels[format!("constraint.ciena.com/provider-other-{i}")] = "enabled".into();
    }
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("svc-{i}"), "namespace": namespace(workload), "labels": labels},
        "spec": {"clusterIP": "None", "selector": {"app": app(workload)}, "ports": [{"name": "http", "port": 80}]},
    })
}

/// The endpoints of a Service, its share of all pods.
pub fn endpoint_slice(i: usize, size: &Size) -> Value {
    let workload = i % workloads(size);
    let each = size.pods / size.services.max(1);
    let endpoints: Vec<Value> = (0..each)
        .map(|n| {
            let pod = i * each + n;
            let ip = format!("10.{}.{}.{}", 64 + (pod >> 16), (pod >> 8) & 255, pod & 255);
            json!({"addresses": [ip], "conditions": {"ready": true, "serving": true, "terminating": false},
                   "nodeName": node_name(pod % size.nodes),
                   "targetRef": {"kind": "Pod", "name": pod_name(pod).1, "namespace": namespace(workload)}})
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("svc-{i}-0"), "namespace": namespace(workload),
                     "labels": {"kubernetes.io/service-name": format!("svc-{i}")}},
        "endpoints": endpoints, "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

pub fn policy(workload: usize) -> Value {
    let rule = |name: &str| json!({"name": name, "request": "1", "limit": "1000000"});
    json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
        "metadata": {"name": app(workload), "namespace": namespace(workload)},
        "spec": {"rules": RULES.map(rule)},
    })
}

pub fn offer(workload: usize) -> Value {
    let selector = json!({"matchLabels": {"app": app(workload)}});
    json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
        "metadata": {"name": app(workload), "namespace": namespace(workload)},
        "spec": {"policies": [app(workload)],
                 "targets": [{"apiVersion": "v1", "kind": "Pod", "labelSelector": selector}]},
    })
}
