//! Random pods with GPUs and devices, and their claims.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{
    clusters::{GPU, on_driver},
    slices::{DRIVER, Offer},
};
use crate::filtering::random::{chance, pick};

const NAMESPACE: &str = "ml";

/// The pods with a node and the claims that were made so far.
#[derive(Default)]
pub(super) struct Made {
    pub(super) pods: Vec<Value>,
    pub(super) claims: Vec<Value>,
}

fn pod(name: &str, containers: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("{NAMESPACE}/{name}")},
        "spec": {"containers": containers}, "status": {}})
}

fn container(name: &str, limits: Value) -> Value {
    json!({"name": name, "image": "registry.example/i", "resources": {"limits": limits}})
}

fn plain() -> Vec<Value> {
    vec![container("c", json!({"cpu": "1", "memory": "1Gi"}))]
}

impl Made {
    fn claim(&mut self, name: &str, requests: Value) -> &mut Value {
        self.claims.push(
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("claim-{name}")},
            "spec": {"devices": {"requests": requests}}}),
        );
        let last = self.claims.len() - 1;
        &mut self.claims[last]
    }

    /// Allocates a device to a claim, mostly to that of a running pod.
    pub(super) fn hold(
        &mut self,
        rng: &mut Rng,
        nodes: &[Value],
        classes: &[Value],
        offer: &Offer,
        share: Option<u32>,
    ) {
        let index = self.claims.len();
        let any = &nodes[rng.usize(..nodes.len())];
        let is_on = |node: &&Value| node["metadata"]["name"].as_str() == offer.node.as_deref();
        let node = nodes.iter().find(is_on).unwrap_or(any);
        let name = format!("held{index}");
        let mut pod = pod(&format!("user{index}"), plain());
        pod["spec"]["nodeName"] = node["metadata"]["name"].clone();
        pod["status"]["phase"] = json!("Running");
        let uid = pod["metadata"]["uid"].clone();
        let request =
            json!([{"name": "container-0-request-0", "exactly": {"deviceClassName": "gpu"}}]);
        let claim = self.claim(&name, request);
        let mut result = json!({"request": "container-0-request-0", "driver": offer.driver,
            "pool": offer.pool, "device": offer.device});
        if let Some(gib) = share {
            result["shareID"] = json!(format!("00000000-0000-4000-8000-{index:012}"));
            result["consumedCapacity"] = json!({"memory": format!("{gib}Gi")});
        }
        claim["status"]["allocation"] = json!({"devices": {"results": [result]}});
        if let Some(node) = &offer.node {
            claim["status"]["allocation"]["nodeSelector"] = json!({"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
        }
        if chance(rng, 15) {
            // The pod is gone, and the claim keeps its device.
            return;
        }
        let has_plugin = node["status"]["allocatable"]
            .get(GPU)
            .is_some_and(|n| n != "0");
        claim["status"]["reservedFor"] =
            json!([{"resource": "pods", "name": pod["metadata"]["name"], "uid": uid}]);
        if is_served(classes) && !has_plugin && chance(rng, 60) {
            // As kube-scheduler makes the claim of a pod's extended resources.
            claim["metadata"]["annotations"] =
                json!({"resource.kubernetes.io/extended-resource-claim": "true"});
            claim["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod",
                "name": pod["metadata"]["name"], "uid": uid, "controller": true}]);
            pod["spec"]["containers"] = json!([container("c", json!({GPU: "1"}))]);
            pod["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": name,
                "requestMappings": [{"containerName": "c", "resourceName": GPU,
                    "requestName": "container-0-request-0"}]});
        } else {
            pod["spec"]["resourceClaims"] = json!([{"name": "r", "resourceClaimName": name}]);
        }
        self.pods.push(pod);
    }

    /// Puts pods on a node whose device plugin has GPUs.
    pub(super) fn plugin_pods(&mut self, rng: &mut Rng, node: &Value) {
        let gpus = node["status"]["allocatable"][GPU].as_str().unwrap_or("0");
        let gpus: u32 = gpus.parse().unwrap_or(0);
        for _ in 0..rng.u32(..=gpus) {
            let mut pod = pod(
                &format!("plugin{}", self.pods.len()),
                vec![container("c", json!({GPU: "1"}))],
            );
            pod["spec"]["nodeName"] = node["metadata"]["name"].clone();
            pod["status"]["phase"] = json!(pick(rng, &["Running", "Running", "Succeeded"]));
            self.pods.push(pod);
        }
    }

    pub(super) fn pending(&mut self, rng: &mut Rng, index: usize, classes: &[Value]) -> Value {
        let name = format!("pending{index}");
        let units = |rng: &mut Rng| json!(pick(rng, &["1", "1", "1", "2", "3"]));
        let gpus = |rng: &mut Rng| container("c", json!({GPU: units(rng)}));
        let mut pod = pod(&name, plain());
        match rng.u32(..100) {
            0..40 => pod["spec"]["containers"] = json!([gpus(rng)]),
            40..50 => {
                pod["spec"]["containers"] = json!([gpus(rng), container("d", json!({GPU: "1"}))]);
                if chance(rng, 50) {
                    let mut init = container("i", json!({GPU: units(rng)}));
                    if chance(rng, 50) {
                        init["restartPolicy"] = json!("Always");
                    }
                    pod["spec"]["initContainers"] = json!([init]);
                }
            }
            50..60 => {
                let limits = json!({implicit(rng, classes): units(rng)});
                pod["spec"]["containers"] = json!([container("c", limits)]);
            }
            60..64 => {
                let limits = json!({implicit(rng, classes): "1", GPU: units(rng)});
                pod["spec"]["containers"] = json!([container("c", limits)]);
            }
            64..68 => {
                pod["spec"]["containers"] = json!([gpus(rng)]);
                self.name_claim(rng, &mut pod, "r", classes);
            }
            68..78 => {
                let held = self.claims.iter().filter(|c| c.get("status").is_some());
                let held: Vec<_> = held.map(|c| c["metadata"]["name"].clone()).collect();
                if !held.is_empty() {
                    let name = &held[rng.usize(..held.len())];
                    pod["spec"]["resourceClaims"] =
                        json!([{"name": "r", "resourceClaimName": name}]);
                }
            }
            78..81 => {}
            _ => {
                self.name_claim(rng, &mut pod, "r", classes);
                if chance(rng, 25) {
                    self.name_claim(rng, &mut pod, "s", classes);
                }
            }
        }
        pod
    }

    /// Makes a claim without devices for a pod, in which it has the name `of_pod`: it is named by
    /// the pod or from its template.
    fn name_claim(&mut self, rng: &mut Rng, pod: &mut Value, of_pod: &str, classes: &[Value]) {
        let requests: Vec<Value> = (0..rng.usize(1..3) * rng.usize(1..3) / 2 + 1)
            .take(2)
            .map(|i| request(rng, i, classes))
            .collect();
        let name = format!("wanted{}", self.claims.len());
        let claim = self.claim(&name, json!(requests));
        if chance(rng, 30) {
            claim["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod",
                "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"], "controller": true}]);
            push(
                &mut pod["spec"]["resourceClaims"],
                json!({"name": of_pod, "resourceClaimTemplateName": "template"}),
            );
            push(
                &mut pod["status"]["resourceClaimStatuses"],
                json!({"name": of_pod, "resourceClaimName": name}),
            );
        } else {
            push(
                &mut pod["spec"]["resourceClaims"],
                json!({"name": of_pod, "resourceClaimName": name}),
            );
        }
    }
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        absent => *absent = json!([item]),
    }
}

/// Returns the resource that stands for a class. kube-scheduler may forget that of a class which
/// names the same resource as a newer class, depending on the order of events.
fn implicit(rng: &mut Rng, classes: &[Value]) -> String {
    let of_gpu = classes
        .iter()
        .filter(|c| c["spec"]["extendedResourceName"] == GPU);
    let is_alone = of_gpu.count() < 2;
    let unambiguous = classes
        .iter()
        .filter(|c| is_alone || c["spec"]["extendedResourceName"] != GPU);
    let unambiguous: Vec<&str> = unambiguous
        .filter_map(|c| c["metadata"]["name"].as_str())
        .collect();
    let class = match unambiguous.as_slice() {
        [] => "absent",
        all => pick(rng, all),
    };
    format!("deviceclass.resource.kubernetes.io/{class}")
}

/// Returns a request for devices of one class, or of the first of several that are available.
fn request(rng: &mut Rng, index: usize, classes: &[Value]) -> Value {
    let name = format!("r{index}");
    if chance(rng, 75) {
        return json!({"name": name, "exactly": exactly(rng, classes)});
    }
    let alternatives = (0..rng.u32(1..4)).map(|i| {
        let mut alternative = exactly(rng, classes);
        alternative["name"] = json!(format!("a{i}"));
        alternative
    });
    json!({"name": name, "firstAvailable": alternatives.collect::<Vec<_>>()})
}

fn exactly(rng: &mut Rng, classes: &[Value]) -> Value {
    let names = names(classes);
    let class = match names.as_slice() {
        [] => "absent",
        _ if chance(rng, 2) => "absent",
        all => pick(rng, all),
    };
    let mut exactly = json!({"deviceClassName": class});
    if chance(rng, 15) {
        exactly["allocationMode"] = json!("All");
    } else {
        let count: u32 = pick(rng, &["1", "1", "2", "3"]).parse().unwrap_or(1);
        exactly["count"] = json!(count);
    }
    if chance(rng, 20) {
        let memory = pick(rng, &["1Gi", "10Gi", "20Gi", "40Gi", "41Gi"]);
        exactly["capacity"] = json!({"requests": {"memory": memory}});
    }
    if chance(rng, 15) {
        exactly["selectors"] = on_driver(DRIVER, chance(rng, 70).then_some("A100"));
    }
    if chance(rng, 25) {
        let effect = pick(rng, &["", "NoSchedule", "NoExecute"]);
        exactly["tolerations"] = match rng.u32(..3) {
            0 => json!([{"operator": "Exists", "effect": effect}]),
            1 => json!([{"key": "sick", "operator": "Exists", "effect": effect}]),
            _ => json!([{"key": "sick", "operator": "Equal", "value": "xid", "effect": effect}]),
        };
        if effect.is_empty()
            && let Some(toleration) = exactly["tolerations"][0].as_object_mut()
        {
            toleration.remove("effect");
        }
    }
    exactly
}

fn names(classes: &[Value]) -> Vec<&str> {
    let names = classes
        .iter()
        .map(|class| class["metadata"]["name"].as_str());
    names.flatten().collect()
}

fn is_served(classes: &[Value]) -> bool {
    classes
        .iter()
        .any(|c| c["spec"]["extendedResourceName"] == GPU)
}
