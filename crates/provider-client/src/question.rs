use std::{collections::BTreeMap, sync::Arc};

use tautline_core::{
    constraints::PodIdentity,
    model::{ContainerRequests, Pod, Resources, Service, key},
    nodes::NodeSet,
    quantity,
};

/// The pod to plan and the candidate nodes.
#[derive(Clone, Debug, Default)]
pub struct PlanningQuestion {
    /// The pod to plan.
    pub subject: PodIdentity,
    /// The pod's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The pod's effective resource requests: names and quantity texts.
    pub requests: BTreeMap<String, String>,
    /// The names of the pod's ResourceClaims.
    pub resource_claims: Vec<String>,
    /// The containers' requests of extended resources, if several request some.
    pub containers: Vec<ContainerRequests>,
    /// The nodes to plan on.
    pub nodes: Arc<NodeSet>,
    /// Pods that count as on their nodes although no watch shows them there: the members of the
    /// pod's group that have a place in its plan.
    pub placed: Vec<Arc<Pod>>,
    /// True if kube-scheduler waits, and with it all other pods; then the wait for untrusted
    /// providers is limited.
    pub scheduler_waits: bool,
}

impl PlanningQuestion {
    /// The question without nodes, to ask about a node that does not exist yet.
    pub fn without_nodes(&self) -> Self {
        Self {
            nodes: Arc::default(),
            ..self.clone()
        }
    }

    /// The approximate size in bytes, without the nodes.
    pub fn heap_bytes(&self) -> usize {
        let pairs = self.annotations.iter().chain(&self.requests);
        let claims = self.resource_claims.iter();
        256 + subject_bytes(&self.subject)
            + pairs.map(|(k, v)| 64 + k.len() + v.len()).sum::<usize>()
            + claims.map(|name| 32 + name.len()).sum::<usize>()
            + self.containers.len() * CONTAINER_BYTES
    }

    /// The question for an unbound pod of the index.
    pub fn for_pod(pod: &Pod, nodes: NodeSet) -> Self {
        let placement = pod.placement.as_ref();
        let annotations = placement.map(|p| &p.annotations);
        Self {
            subject: pod.into(),
            annotations: annotations
                .into_iter()
                .flat_map(|a| a.iter())
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
            requests: texts(&pod.requests),
            resource_claims: pod.claims().map(str::to_owned).collect(),
            containers: placement.map_or_else(Vec::new, |p| p.containers.clone()),
            nodes: Arc::new(nodes),
            placed: Vec::new(),
            scheduler_waits: false,
        }
    }
}

/// The names and quantity texts of requests.
pub fn texts(requests: &Resources) -> BTreeMap<String, String> {
    let text = |(name, milli): (&str, i64)| (name.to_owned(), quantity::format_milli(milli));
    requests.iter().map(text).collect()
}

/// The approximate size of a container's requests in bytes: an amount or two.
const CONTAINER_BYTES: usize = 128;

/// The size of a pod's names and labels, in bytes.
pub(crate) fn subject_bytes(of: &PodIdentity) -> usize {
    of.namespace.len() + of.name.len() + of.uid.len() + of.labels.bytes()
}

/// The name of a provider: its Service, as `namespace/name`.
pub fn provider_name(service: &Service) -> Arc<str> {
    key(&service.namespace, &service.name).into()
}
