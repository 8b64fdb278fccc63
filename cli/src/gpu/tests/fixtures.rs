//! The example's manifests, and others, as the commands see them.

use std::{path::Path, sync::Arc};

use tautline_api::manifest;
use tautline_core::{Index, Snapshot};
use tautline_gpu_placement::dra::DeviceStore;
use tautline_gpu_slice::{Config, Inspection, report::Uses};
use tautline_runtime::{
    input_files::InputFiles,
    manifest_files::{self, ReadOptions},
};

use crate::gpu::source;

pub(crate) fn example() -> Arc<Snapshot> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/gpu-slices");
    snapshot(
        manifest_files::read(&[dir], &mut InputFiles::default(), &ReadOptions::default())
            .unwrap()
            .items,
    )
}

pub(crate) fn of(text: &str) -> Arc<Snapshot> {
    snapshot(manifest::parse(text).unwrap())
}

pub(crate) fn inspection(snapshot: Arc<Snapshot>) -> Inspection {
    Inspection::new(snapshot, Config::default(), DeviceStore::default())
}

/// A node whose agent offers its cards as devices, one of them with a fault: pods with claims, a
/// claim without a pod, and a pod that waits.
pub(crate) fn claims() -> Inspection {
    let items = manifest::parse(CLAIMS).unwrap();
    let devices = source::devices(&items);
    Inspection::new(snapshot(items), Config::default(), devices)
}

fn snapshot(items: Vec<manifest::Item>) -> Arc<Snapshot> {
    let mut index = Index::default();
    for item in &items {
        if let Some(object) = manifest_files::object(item).unwrap() {
            index.apply(object);
        }
    }
    Arc::new(index.snapshot())
}

/// A node with this number of cards in mode milli, and pods on it with their records.
pub(crate) fn slices(cards: &str, records: &[&str]) -> Arc<Snapshot> {
    let mut text = format!(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: 'n'\n  annotations: {{tautline.io/gpu-cards: \"{cards}\"}}\n\
         status: {{allocatable: {{pods: \"110\"}}}}\n"
    );
    for (i, record) in records.iter().enumerate() {
        text += &format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: p-{i}\n  namespace: ml\n  \
             annotations: {{tautline.io/gpu-devices: \"{record}\"}}\nspec: {{nodeName: 'n', containers: []}}\n"
        );
    }
    of(&text)
}

/// A node with an agent: three cards, one with a fault, and pods with records.
pub(crate) fn agents() -> Arc<Snapshot> {
    let mut text = String::from(
        r#"apiVersion: v1
kind: Node
metadata:
  name: n7
  annotations:
    tautline.io/gpu-inventory: '{"limits": "mps", "cards": [
      {"uuid": "GPU-a", "index": 0, "product": "NVIDIA-H100-80GB-HBM3", "memoryBytes": 85899345920},
      {"uuid": "GPU-b", "index": 1, "product": "NVIDIA-H100-80GB-HBM3", "memoryBytes": 85899345920},
      {"uuid": "GPU-c", "index": 2, "product": "NVIDIA-H100-80GB-HBM3", "memoryBytes": 85899345920,
       "fault": "Xid79"}]}'
status: {allocatable: {tautline.io/gpu-milli: "3000", pods: "110"}}
"#,
    );
    for (i, record) in ["GPU-a:250", "GPU-a:500", "GPU-b:1000", "GPU-c:250"]
        .iter()
        .enumerate()
    {
        text += &format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: p-{i}\n  namespace: ml\n  \
             annotations: {{tautline.io/gpu-devices: \"{record}\"}}\nspec: {{nodeName: n7, containers: []}}\n"
        );
    }
    of(&text)
}

const CLAIMS: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n7}, status: {allocatable: {cpu: "16", pods: "110"}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n7-gpu.tautline.io-0}
spec:
  driver: gpu.tautline.io
  nodeName: n7
  pool: {name: n7, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-1
    attributes: {uuid: {string: GPU-b}, productName: {string: NVIDIA H100 80GB HBM3}, index: {int: 1}}
    capacity: {milli: {value: "1000"}, memory: {value: 80Gi}}
    allowMultipleAllocations: true
  - name: gpu-0
    attributes: {uuid: {string: GPU-a}, productName: {string: NVIDIA H100 80GB HBM3}, index: {int: 0}}
    capacity: {milli: {value: "1000"}, memory: {value: 80Gi}}
    allowMultipleAllocations: true
  - name: gpu-2
    attributes: {uuid: {string: GPU-c}, productName: {string: NVIDIA H100 80GB HBM3}, index: {int: 2}}
    capacity: {milli: {value: "1000"}, memory: {value: 80Gi}}
    allowMultipleAllocations: true
    taints: [{key: gpu.tautline.io/fault, value: Xid79, effect: NoSchedule}]
---
{apiVersion: v1, kind: Pod, metadata: {name: p-0, namespace: ml, uid: u-0}, spec: {nodeName: n7, containers: []}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: p-0-gpu, namespace: ml}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.tautline.io}}]}}
status:
  reservedFor: [{resource: pods, name: p-0, uid: u-0}]
  allocation: {devices: {results: [{request: gpu, driver: gpu.tautline.io, pool: n7, device: gpu-0, shareID: a, consumedCapacity: {milli: "250", memory: "0"}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p-1, namespace: ml, uid: u-1}, spec: {nodeName: n7, containers: []}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: p-1-gpu, namespace: ml}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.tautline.io}}]}}
status:
  reservedFor: [{resource: pods, name: p-1, uid: u-1}]
  allocation: {devices: {results: [{request: gpu, driver: gpu.tautline.io, pool: n7, device: gpu-1, shareID: b, consumedCapacity: {milli: "1000", memory: "0"}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: kept, namespace: ml}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.tautline.io}}]}}
status:
  allocation: {devices: {results: [{request: gpu, driver: gpu.tautline.io, pool: n7, device: gpu-0, shareID: c, consumedCapacity: {milli: "500", memory: "0"}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: quarter, namespace: ml}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.tautline.io, capacity: {requests: {milli: "250"}}}}]}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: waits, namespace: ml, uid: u-2}, spec: {containers: [], resourceClaims: [{name: gpu, resourceClaimTemplateName: quarter}]}}
"#;

const USES: &str = r#"{"nodes": [{"node": "n7", "ageSeconds": 1, "cards": [
  {"card": "GPU-a", "memoryBytes": 18253611008, "busyMilli": 370},
  {"card": "GPU-b", "memoryBytes": 536870912, "busyMilli": 0}],
 "containers": [
  {"namespace": "ml", "pod": "p-0", "container": "main", "card": "GPU-a",
   "memoryBytes": 15246684979, "smMilli": 360},
  {"namespace": "ml", "pod": "p-1", "container": "main", "card": "GPU-a",
   "memoryBytes": 1073741824, "smMilli": 4},
  {"namespace": "ml", "pod": "thief", "container": "main", "card": "GPU-a",
   "memoryBytes": 1073741824, "smMilli": 6},
  {"namespace": "", "pod": "", "container": "Xorg", "card": "GPU-b",
   "memoryBytes": 536870912, "smMilli": 0}]}]}"#;

/// The use of [`agents`]' cards, as the provider reports it.
pub(crate) fn uses() -> Uses {
    Uses::merge([("test", 200, USES.as_bytes())]).unwrap()
}
