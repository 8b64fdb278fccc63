//! The parts of a Pod object that the agent needs. The functions are pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::Object;
use serde::{Deserialize, de::IgnoredAny};
use tautline_core::{ContainerKind as Kind, quantity::parse_milli};
use tautline_gpu_placement::{containers::AgentRequest, names::DEVICES_ANNOTATION};

/// The annotation with the UID of a static pod that the runtime uses; the API server gives the
/// mirror pod another UID.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A Pod object with only the fields that the agent reads.
pub(super) type NodePod = Object<Spec, Status>;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    resource_claims: Option<Vec<ClaimRef>>,
    init_containers: Option<Vec<Container>>,
    containers: Vec<Container>,
}

/// A claim by its name: of the spec, or that a controller made of a template or of an extended
/// resource.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimRef {
    resource_claim_name: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    restart_policy: Option<String>,
    resources: Option<Resources>,
}

#[derive(Clone, Debug, Deserialize)]
struct Resources {
    limits: Option<BTreeMap<String, Quantity>>,
    requests: Option<BTreeMap<String, Quantity>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    resource_claim_statuses: Option<Vec<ClaimRef>>,
    extended_resource_claim_status: Option<ClaimRef>,
    phase: Option<String>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Deserialize)]
struct ContainerStatus {
    name: String,
    #[serde(rename = "containerID")]
    container_id: Option<String>,
    state: Option<ContainerState>,
}

#[derive(Clone, Debug, Deserialize)]
struct ContainerState {
    running: Option<IgnoredAny>,
}

/// A pod of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodEntry {
    /// The UID that the runtime and cgroups use.
    pub uid: Arc<str>,
    /// The UID that the API server gave the object.
    pub api_uid: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// The value of the annotation that names the pod's cards.
    pub record: Option<Arc<str>>,
    /// The names of the pod's ResourceClaims.
    pub claims: Box<[Arc<str>]>,
    /// The init containers, then the other containers, each in the order of the spec.
    pub containers: Box<[ContainerEntry]>,
    /// True if a container requests cards of NVIDIA's device plugin.
    pub nvidia: bool,
    /// True if no container starts any more: the pod has ended or is being deleted.
    pub ending: bool,
    /// True if the pod has succeeded or failed, so no container runs any more.
    pub ended: bool,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerEntry {
    pub name: Arc<str>,
    pub kind: Kind,
    pub asks: AgentRequest,
    /// The ID that the runtime gave the container at its last start, without the prefix
    /// `RUNTIME://`.
    pub id: Option<Arc<str>>,
    pub running: bool,
}

impl PodEntry {
    /// Reads a Pod object; returns `None` if it lacks a field that every stored pod has.
    pub(super) fn read(pod: &NodePod) -> Option<Self> {
        let metadata = &pod.metadata;
        let annotation = |key| metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let api_uid: Arc<str> = metadata.uid.as_deref()?.into();
        let spec = &pod.spec;
        let status = pod.status.as_ref();
        let statuses = |of: fn(&Status) -> &Option<Vec<_>>| {
            status.and_then(|s| of(s).as_deref()).unwrap_or_default()
        };
        let init = statuses(|s| &s.init_container_statuses);
        let main = statuses(|s| &s.container_statuses);
        let inits = spec.init_containers.as_deref().unwrap_or_default();
        let inits = inits.iter();
        let entries = inits.clone().map(|c| {
            let sidecar = c.restart_policy.as_deref() == Some("Always");
            let kind = if sidecar { Kind::Sidecar } else { Kind::Init };
            ContainerEntry::read(c, kind, init)
        });
        let mains = spec.containers.iter();
        let mains = mains.map(|c| ContainerEntry::read(c, Kind::Main, main));
        let nvidia = inits.clone().chain(&spec.containers).any(asks_nvidia);
        let made = status.and_then(|s| s.resource_claim_statuses.as_deref());
        let extended = status.and_then(|s| s.extended_resource_claim_status.as_ref());
        let claims = spec.resource_claims.iter().flatten();
        let claims = claims.chain(made.unwrap_or_default()).chain(extended);
        let phase = status.and_then(|s| s.phase.as_deref());
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        Some(Self {
            uid: annotation(MIRROR).map_or_else(|| Arc::clone(&api_uid), Arc::from),
            api_uid,
            namespace: metadata.namespace.as_deref()?.into(),
            name: metadata.name.as_deref()?.into(),
            record: annotation(DEVICES_ANNOTATION).map(Arc::from),
            claims: claims
                .filter_map(|c| c.resource_claim_name.as_deref().map(Arc::from))
                .collect(),
            containers: entries.chain(mains).collect(),
            nvidia,
            ending: ended || metadata.deletion_timestamp.is_some(),
            ended,
        })
    }

    pub fn container(&self, name: &str) -> Option<&ContainerEntry> {
        self.containers.iter().find(|c| *c.name == *name)
    }

    /// Returns whether a container that requests cards runs.
    pub fn holds(&self) -> bool {
        !self.ended
            && self
                .containers
                .iter()
                .any(|c| c.running && !c.asks.is_empty())
    }
}

impl ContainerEntry {
    fn read(container: &Container, kind: Kind, statuses: &[ContainerStatus]) -> Self {
        let status = statuses.iter().find(|s| s.name == container.name);
        let id = status.and_then(|s| s.container_id.as_deref());
        let id = id.map(|id| id.split_once("://").map_or(id, |(_, id)| id));
        let state = status.and_then(|s| s.state.as_ref());
        Self {
            name: container.name.as_str().into(),
            kind,
            asks: AgentRequest::new(|resource| count(container, resource)),
            id: id.filter(|id| !id.is_empty()).map(Arc::from),
            running: state.is_some_and(|s| s.running.is_some()),
        }
    }
}

/// Returns the amount of a resource that a container requests. Limits and requests of extended
/// resources are equal; the API server writes 1000 as `1k`.
fn count(container: &Container, resource: &str) -> i64 {
    let resources = container.resources.as_ref();
    let listed = resources.into_iter().flat_map(|r| [&r.limits, &r.requests]);
    let mut found = listed.flatten().filter_map(|list| list.get(resource));
    let quantity: Option<&Quantity> = found.next();
    quantity.map_or(0, |q| parse_milli(&q.0).unwrap_or(0)) / 1000
}

fn asks_nvidia(container: &Container) -> bool {
    let resources = container.resources.as_ref();
    let listed = resources.into_iter().flat_map(|r| [&r.limits, &r.requests]);
    listed.flatten().any(has_nvidia_cards)
}

/// Returns whether the resources include cards, shares or MIG instances of NVIDIA's device plugin,
/// under any of the names that it gives them; other devices of `nvidia.com`, such as network cards,
/// do not count.
pub(crate) fn has_nvidia_cards(resources: &BTreeMap<String, Quantity>) -> bool {
    resources.iter().any(|(name, quantity)| {
        let name = name.strip_prefix("nvidia.com/");
        name.is_some_and(|name| name.contains("gpu") || name.starts_with("mig-"))
            && parse_milli(&quantity.0).unwrap_or(0) > 0
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn read_keeps_what_the_agent_needs() {
        let pod: NodePod = serde_json::from_value(json!({
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "u1",
                "annotations": {"tautline.io/gpu-devices": "GPU-a:1000"}},
            "spec": {
                "resourceClaims": [{"name": "a", "resourceClaimName": "own"},
                    {"name": "b", "resourceClaimTemplateName": "t"}],
                "initContainers": [
                    {"name": "fetch"},
                    {"name": "proxy", "restartPolicy": "Always",
                     "resources": {"limits": {"tautline.io/gpu-memory": "2"}}},
                ],
                "containers": [
                    {"name": "app", "resources": {
                        "limits": {"tautline.io/gpu-milli": "1k", "cpu": "1"}}},
                    {"name": "old", "resources": {"requests": {"nvidia.com/mig-1g.10gb": "1"}}},
                ],
            },
            "status": {"phase": "Running",
                "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "card", "requestMappings": []},
                "containerStatuses": [
                {"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                 "containerID": "containerd://c1",
                 "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
            ]},
        }))
        .unwrap();
        let entry = PodEntry::read(&pod).unwrap();
        assert_eq!(entry.record.as_deref(), Some("GPU-a:1000"));
        let claims: Vec<&str> = entry.claims.iter().map(|name| &**name).collect();
        assert_eq!(claims, ["own", "made", "card"]);
        assert!(entry.holds() && !entry.ending);
        let app = entry.container("app").unwrap();
        assert_eq!(
            app.asks,
            AgentRequest {
                milli: 1000,
                memory_gib: 0
            }
        );
        assert_eq!(app.id.as_deref(), Some("c1"));
        let proxy = entry.container("proxy").unwrap();
        assert_eq!((proxy.kind, proxy.asks.memory_gib), (Kind::Sidecar, 2));
        assert!(entry.nvidia);
        let fetch = entry.container("fetch").unwrap();
        assert_eq!((fetch.kind, fetch.asks.is_empty()), (Kind::Init, true));
    }

    #[test]
    fn cards_of_nvidias_plugin_have_many_names() {
        let has = |name: &str, count: &str| {
            let quantity = Quantity(count.to_owned());
            has_nvidia_cards(&BTreeMap::from([(format!("nvidia.com/{name}"), quantity)]))
        };
        for name in ["gpu", "gpu.shared", "gpu-shared", "mig-1g.10gb"] {
            assert!(has(name, "1") && !has(name, "0"), "{name}");
        }
        assert!(!has("sriov_vf", "8"));
    }

    #[test]
    fn static_pods_have_the_runtimes_uid() {
        let pod: NodePod = serde_json::from_value(json!({
            "metadata": {"name": "etcd-n1", "namespace": "kube-system", "uid": "mirror",
                "annotations": {"kubernetes.io/config.mirror": "hash"}},
            "spec": {"containers": [{"name": "etcd"}]},
            "status": {"phase": "Failed"},
        }))
        .unwrap();
        let entry = PodEntry::read(&pod).unwrap();
        assert_eq!((&*entry.uid, &*entry.api_uid), ("hash", "mirror"));
        assert!(entry.ending && entry.ended && !entry.holds());
        let nameless = json!({"metadata": {}, "spec": {"containers": []}});
        let nameless = serde_json::from_value(nameless).unwrap();
        assert_eq!(PodEntry::read(&nameless), None);
    }
}
