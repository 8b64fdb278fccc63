//! Requests and answers of a rule provider.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use tautline_proto::ruleprovider as wire;
use tautline_types::{Compliance, ContainerKind, Reference, duration, quantity};
use tonic::Status;

/// A rule, with the texts of the policy's author.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// The rule's name, such as "latency".
    pub name: String,
    /// The wanted value.
    pub request: String,
    /// The worst acceptable value; empty if the policy sets none.
    pub limit: String,
}

impl Rule {
    /// Returns the request as a Go duration; `None` if it is empty.
    ///
    /// # Errors
    /// [`ProviderError::BadRule`], with the field and the fix.
    pub fn request_duration(&self) -> Result<Option<Duration>, ProviderError> {
        self.duration("request", &self.request)
    }

    /// Returns the limit as a Go duration; `None` if it is empty.
    ///
    /// # Errors
    /// [`ProviderError::BadRule`], with the field and the fix.
    pub fn limit_duration(&self) -> Result<Option<Duration>, ProviderError> {
        self.duration("limit", &self.limit)
    }

    fn duration(&self, field: &str, text: &str) -> Result<Option<Duration>, ProviderError> {
        if text.is_empty() {
            return Ok(None);
        }
        duration::parse(text)
            .map(Some)
            .map_err(|e| ProviderError::BadRule(format!("rule {:?}, {field}: {e}", self.name)))
    }
}

/// The metadata and requests of a pod; Turnbuckle's callers do not send them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The pod's UID; empty if unknown.
    pub uid: String,
    /// The pod's labels.
    pub labels: BTreeMap<String, String>,
    /// The pod's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The pod's effective resource requests: names and quantity texts, such as `cpu: 500m`.
    pub requests: BTreeMap<String, String>,
    /// The names of the ResourceClaims in the pod's spec and status; some callers never send them.
    pub resource_claims: Vec<String>,
    /// The pod's containers that request extended resources, in the order of its spec, init
    /// containers first; empty unless at least two of them do.
    pub containers: Vec<Container>,
}

/// A container that requests extended resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// The kind of container, which says when it runs.
    pub kind: ContainerKind,
    /// The container's requests: names and quantity texts.
    pub requests: BTreeMap<String, String>,
}

impl Workload {
    /// Returns the request of a resource in thousandths of its unit; 0 without one.
    pub fn request_milli(&self, resource: &str) -> i64 {
        self.requests
            .get(resource)
            .and_then(|q| quantity::parse_milli(q).ok())
            .unwrap_or(0)
    }
}

/// An object that another target of the offer selects. A pod is a peer only once it has a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The name of the target that selects the object.
    pub role: String,
    /// The object.
    pub reference: Reference,
    /// The node of a pod, or `HOST:PORT` of the node of another cluster's pod; a place of an endpoint;
    /// `None` for other kinds.
    pub node: Option<String>,
}

/// A pod that kube-scheduler is about to bind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InFlightPod {
    /// The pod.
    pub pod: Reference,
    /// The node that it goes to.
    pub node: String,
    /// The pod's metadata and requests.
    pub workload: Workload,
}

/// The request for the cost of each eligible node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostRequest {
    /// The pod to place. Its name and the workload's UID are empty if the costs are for all pods of
    /// a kind, as on [streams](crate::CostChanges).
    pub source: Reference,
    /// The rule.
    pub rule: Rule,
    /// The nodes of the peers, each once.
    pub peer_nodes: Vec<String>,
    /// The nodes that need a cost.
    pub eligible_nodes: Vec<String>,
    /// The workload; `None` from callers that do not send it.
    pub workload: Option<Workload>,
    /// The peers; empty from callers that send `peer_nodes` only.
    pub peers: Vec<Peer>,
    /// The pods with a rule of this provider that have an answer but may not be visible as bound
    /// yet: they count on their nodes. Callers send them to [allocators](crate::Allocator) only.
    pub in_flight: Vec<InFlightPod>,
    /// The caller's deadline; `None` if it sends no deadline.
    pub deadline: Option<Instant>,
}

impl CostRequest {
    /// Counts the peers of each node.
    pub fn peer_counts(&self) -> PeerCounts<'_> {
        let mut counts = HashMap::new();
        for node in self.peers.iter().filter_map(|peer| peer.node.as_deref()) {
            *counts.entry(node).or_default() += 1;
        }
        if self.peers.is_empty() {
            counts.extend(self.peer_nodes.iter().map(|node| (node.as_str(), 1)));
        }
        PeerCounts(counts)
    }
}

/// The number of peers on each node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts<'a>(HashMap<&'a str, i64>);

impl PeerCounts<'_> {
    /// Returns the number of peers on `node`; at most 1 from callers that send
    /// [`peer_nodes`](CostRequest::peer_nodes) only.
    pub fn on(&self, node: &str) -> i64 {
        self.0.get(node).copied().unwrap_or(0)
    }
}

/// The request for the compliance of placed objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvaluationRequest {
    /// The objects of one binding, by target name.
    pub targets: BTreeMap<String, Reference>,
    /// The nodes of targets that are pods, by target name; `HOST:PORT` of the node for a pod of
    /// another cluster, `None` for a pod without a node. Only Tautline's controller sends it, so that
    /// providers need not watch pods.
    pub target_nodes: BTreeMap<String, Option<String>>,
    /// The places of targets that are Endpoints objects, by target name: the nodes of their pods,
    /// and `HOST:PORT` of endpoints outside the cluster. Only Tautline's controller sends it.
    pub target_places: BTreeMap<String, Vec<String>>,
    /// The rule.
    pub rule: Rule,
    /// The caller's deadline; `None` if it sends no deadline.
    pub deadline: Option<Instant>,
}

impl EvaluationRequest {
    /// Returns the namespace of the targets that are pods of this cluster; `None` without such pods,
    /// or if they are in several.
    pub fn namespace(&self) -> Option<&str> {
        let mut pods = self.targets.values().filter(|t| t.is_local_pod());
        let namespace = pods.next()?.namespace.as_str();
        pods.all(|t| t.namespace == namespace).then_some(namespace)
    }
}

/// The answer to an [`EvaluationRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// The state of the objects.
    pub compliance: Compliance,
    /// The reason, for people.
    pub reason: String,
}

impl Evaluation {
    /// Creates an evaluation with this state and reason.
    pub fn new(compliance: Compliance, reason: impl Into<String>) -> Self {
        Self {
            compliance,
            reason: reason.into(),
        }
    }

    /// Creates an evaluation of objects that are within the request.
    pub fn compliant(reason: impl Into<String>) -> Self {
        Self::new(Compliance::Compliant, reason)
    }

    /// Creates an evaluation of objects that are beyond the limit.
    pub fn violation(reason: impl Into<String>) -> Self {
        Self::new(Compliance::Violation, reason)
    }
}

/// The error of a request without an answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProviderError {
    /// The rule's request or limit is invalid; name the field and the fix.
    #[error("{0}")]
    BadRule(String),
    /// There is no data yet; callers may retry.
    #[error("not ready: {0}")]
    NotReady(String),
    /// The provider has an internal error.
    #[error("{0}")]
    Internal(String),
}

impl From<ProviderError> for Status {
    fn from(error: ProviderError) -> Self {
        let text = error.to_string();
        match error {
            ProviderError::BadRule(_) => Self::invalid_argument(text),
            // "unavailable" means a broken connection, which callers retry.
            ProviderError::NotReady(_) => Self::failed_precondition(text),
            ProviderError::Internal(_) => Self::internal(text),
        }
    }
}

pub(crate) fn reference(target: wire::Target) -> Reference {
    Reference {
        cluster: target.cluster,
        namespace: target.namespace,
        api_version: target.api_version,
        kind: target.kind,
        name: target.name,
    }
}

pub(crate) fn target(reference: Reference) -> wire::Target {
    wire::Target {
        cluster: reference.cluster,
        namespace: reference.namespace,
        api_version: reference.api_version,
        kind: reference.kind,
        name: reference.name,
    }
}

impl From<wire::Workload> for Workload {
    fn from(workload: wire::Workload) -> Self {
        Self {
            uid: workload.uid,
            labels: workload.labels,
            annotations: workload.annotations,
            requests: workload.requests,
            resource_claims: workload.resource_claims,
            containers: workload.containers.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<Workload> for wire::Workload {
    fn from(workload: Workload) -> Self {
        Self {
            uid: workload.uid,
            labels: workload.labels,
            annotations: workload.annotations,
            requests: workload.requests,
            resource_claims: workload.resource_claims,
            containers: workload.containers.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<wire::Container> for Container {
    fn from(container: wire::Container) -> Self {
        Self {
            kind: match container.kind() {
                wire::container::Kind::Main => ContainerKind::Main,
                wire::container::Kind::Init => ContainerKind::Init,
                wire::container::Kind::Sidecar => ContainerKind::Sidecar,
            },
            requests: container.requests,
        }
    }
}

impl From<Container> for wire::Container {
    fn from(container: Container) -> Self {
        let kind = match container.kind {
            ContainerKind::Main => wire::container::Kind::Main,
            ContainerKind::Init => wire::container::Kind::Init,
            ContainerKind::Sidecar => wire::container::Kind::Sidecar,
        };
        Self {
            kind: kind.into(),
            requests: container.requests,
        }
    }
}

impl From<Rule> for wire::PolicyRule {
    fn from(rule: Rule) -> Self {
        Self {
            name: rule.name,
            request: rule.request,
            limit: rule.limit,
        }
    }
}

impl From<wire::PolicyRule> for Rule {
    fn from(rule: wire::PolicyRule) -> Self {
        Self {
            name: rule.name,
            request: rule.request,
            limit: rule.limit,
        }
    }
}

impl From<wire::InFlightPod> for InFlightPod {
    fn from(pod: wire::InFlightPod) -> Self {
        Self {
            pod: reference(pod.pod.unwrap_or_default()),
            node: pod.node,
            workload: pod.workload.unwrap_or_default().into(),
        }
    }
}

impl From<wire::EndpointCostRequest> for CostRequest {
    fn from(request: wire::EndpointCostRequest) -> Self {
        let peer = |p: wire::Peer| Peer {
            role: p.role,
            reference: reference(p.target.unwrap_or_default()),
            node: Some(p.node).filter(|n| !n.is_empty()),
        };
        Self {
            source: reference(request.source.unwrap_or_default()),
            rule: request.rule.unwrap_or_default().into(),
            peer_nodes: request.peer_nodes,
            eligible_nodes: request.eligible_nodes,
            workload: request.workload.map(Workload::from),
            peers: request.peers.into_iter().map(peer).collect(),
            in_flight: request.in_flight.into_iter().map(Into::into).collect(),
            deadline: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_counts_falls_back_to_peer_nodes() {
        let peer = |node: Option<&str>| Peer {
            node: node.map(str::to_owned),
            ..Peer::default()
        };
        let mut request = CostRequest {
            peer_nodes: vec!["a".into(), "b".into()],
            ..CostRequest::default()
        };
        let costs = |request: &CostRequest| {
            let peers = request.peer_counts();
            ["a", "b", "c"].map(|node| peers.on(node))
        };
        assert_eq!(costs(&request), [1, 1, 0]);
        request.peers = vec![
            peer(Some("a")),
            peer(Some("a")),
            peer(Some("b")),
            peer(None),
        ];
        assert_eq!(costs(&request), [2, 1, 0]);
    }
}
