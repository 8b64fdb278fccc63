//! Random claims, volumes and storage classes.

use fastrand::Rng;
use serde_json::{Value, json};

use super::random::{chance, pick};

/// The names of claims; pods name another one too, which does not exist.
const CLAIMS: [&str; 3] = ["data0", "data1", "data2"];

/// Returns claims of all namespaces, and the volumes that are bound to them or free.
pub fn storage(rng: &mut Rng, namespaces: &[&str], zones: &[&str]) -> (Vec<Value>, Vec<Value>) {
    let (mut claims, mut volumes) = (Vec::new(), Vec::new());
    let names = namespaces.iter();
    for (namespace, name) in names.flat_map(|ns| CLAIMS.map(|name| (ns, name))) {
        if chance(rng, 15) {
            continue;
        }
        let mode = pick(rng, &["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"]);
        let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")},
            "spec": {"accessModes": [mode],
                "storageClassName": pick(rng, &["fast", "fast", "local", "local", "now", ""]),
                "resources": {"requests": {"storage": pick(rng, &["1Gi", "2Gi"])}}},
            "status": {"phase": "Pending"}});
        if chance(rng, 40) {
            let volume_name = format!("{namespace}-{name}");
            let mut bound = volume(rng, zones, &volume_name, mode);
            bound["spec"]["claimRef"] = json!({"namespace": namespace, "name": name,
                "uid": format!("{namespace}-{name}")});
            bound["status"]["phase"] = json!("Bound");
            claim["spec"]["volumeName"] = json!(volume_name);
            claim["status"]["phase"] = json!("Bound");
            claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
            volumes.push(bound);
        } else if chance(rng, 4) {
            claim["status"]["phase"] = json!("Lost");
        }
        claims.push(claim);
    }
    volumes.extend((0..rng.usize(..4)).map(|i| {
        let mut free = volume(rng, zones, &format!("free{i}"), "ReadWriteOnce");
        free["spec"]["storageClassName"] = json!("local");
        free
    }));
    (claims, volumes)
}

fn volume(rng: &mut Rng, zones: &[&str], name: &str, mode: &str) -> Value {
    let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": pick(rng, &["1Gi", "2Gi"])}, "accessModes": [mode],
            "csi": {"driver": "csi.example.com", "volumeHandle": name}},
        "status": {"phase": "Available"}});
    if chance(rng, 60) {
        let terms = [json!({"matchExpressions": [
            {"key": "zone", "operator": "In", "values": [pick(rng, zones)]}]})];
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    }
    if chance(rng, 30) {
        let key = pick(
            rng,
            &[
                "topology.kubernetes.io/zone",
                "failure-domain.beta.kubernetes.io/zone",
            ],
        );
        volume["metadata"]["labels"] = json!({key: pick(rng, &["a", "b", "a__b"])});
    }
    volume
}

/// Returns one class of each kind.
pub fn classes(rng: &mut Rng, zones: &[&str]) -> Vec<Value> {
    let class = |name: &str, provisioner: &str, mode: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": mode})
    };
    let waits = "WaitForFirstConsumer";
    let mut fast = class("fast", "csi.example.com", waits);
    if rng.bool() {
        fast["allowedTopologies"] = json!([{"matchLabelExpressions": [
            {"key": "zone", "values": [pick(rng, zones)]}]}]);
    }
    let local = class("local", "kubernetes.io/no-provisioner", waits);
    vec![fast, local, class("now", "csi.example.com", "Immediate")]
}
