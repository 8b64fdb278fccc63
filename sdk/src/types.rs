//! Questions and answers as a provider sees them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tautline_core::{Compliance, Reference, duration, quantity};
use tautline_proto::ruleprovider as wire;
use tonic::Status;

/// The rule that is asked about. Its values are the policy's texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// "latency".
    pub name: String,
    /// What is wanted.
    pub request: String,
    /// The worst that is acceptable; empty if the policy sets none.
    pub limit: String,
}

impl Rule {
    /// The request as a Go duration; `None` if it is empty.
    ///
    /// # Errors
    /// [`ProviderError::BadRule`] that names the field and the mend.
    pub fn request_duration(&self) -> Result<Option<Duration>, ProviderError> {
        self.duration("request", &self.request)
    }

    /// The limit as a Go duration; `None` if it is empty.
    ///
    /// # Errors
    /// [`ProviderError::BadRule`] that names the field and the mend.
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

/// What is known of the workload; callers of Turnbuckle's make send nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The pod's UID; "" if unknown.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its effective resource requests: name to quantity text.
    pub requests: BTreeMap<String, String>,
    /// The names of the ResourceClaims that its spec and status name; empty also from
    /// callers that do not say.
    pub resource_claims: Vec<String>,
}

impl Workload {
    /// The request of a resource in thousandths of its unit; 0 if there is none.
    pub fn request_milli(&self, resource: &str) -> i64 {
        self.requests
            .get(resource)
            .and_then(|q| quantity::parse_milli(q).ok())
            .unwrap_or(0)
    }
}

/// An object on the other side of the constraint; a pod only once it is placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its target's name in the offer.
    pub role: String,
    /// The object.
    pub reference: Reference,
    /// The node that a pod runs on, the name of an endpoint; none for other kinds.
    pub node: Option<String>,
}

/// What would each of these nodes cost?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostRequest {
    /// Who is to be placed. Its name is empty, and so is the workload's UID, where an
    /// answer that is [valid for a time](crate::CostAnswer::valid_for) is asked for again
    /// before it ends: it will be given to whichever pod comes next.
    pub source: Reference,
    /// By which rule.
    pub rule: Rule,
    /// The nodes of the peers, each once.
    pub peer_nodes: Vec<String>,
    /// The nodes to give a cost for.
    pub eligible_nodes: Vec<String>,
    /// More on the workload; `None` from callers that send nothing.
    pub workload: Option<Workload>,
    /// The peers one by one; empty from callers that send `peer_nodes` alone.
    pub peers: Vec<Peer>,
    /// The version of an answer to the same question that the caller still has the
    /// lines of, and wants to know the changes since; 0: of none. May be left alone:
    /// [`Changes`](crate::Changes) is for those who can tell.
    pub known_version: u64,
    /// When the caller stops waiting; `None` if it does not say.
    pub deadline: Option<Instant>,
}

/// Do these placed objects keep to the rule?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvaluationRequest {
    /// The objects of one binding, by target name.
    pub targets: BTreeMap<String, Reference>,
    /// The node that each target that is a pod runs on, by target name, `None` if it is
    /// not placed. Tautline's controller says it, so a provider need not follow pods; a
    /// caller that does not has no entry.
    pub target_nodes: BTreeMap<String, Option<String>>,
    /// The rule.
    pub rule: Rule,
    /// When the caller stops waiting; `None` if it does not say.
    pub deadline: Option<Instant>,
}

impl EvaluationRequest {
    /// The namespace of the targets that are pods; `None` if there are none, or they
    /// are of several namespaces.
    pub fn namespace(&self) -> Option<&str> {
        let mut pods = self.targets.values().filter(|t| t.kind == "Pod");
        let namespace = pods.next()?.namespace.as_str();
        pods.all(|t| t.namespace == namespace).then_some(namespace)
    }
}

/// The answer to an [`EvaluateQuestion`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// How well the rule is kept.
    pub compliance: Compliance,
    /// Why, for people.
    pub reason: String,
}

impl Evaluation {
    /// Any compliance, with its reason.
    pub fn new(compliance: Compliance, reason: impl Into<String>) -> Self {
        Self {
            compliance,
            reason: reason.into(),
        }
    }

    /// Within what was requested.
    pub fn compliant(reason: impl Into<String>) -> Self {
        Self::new(Compliance::Compliant, reason)
    }

    /// Beyond the limit.
    pub fn violation(reason: impl Into<String>) -> Self {
        Self::new(Compliance::Violation, reason)
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProviderError {
    /// The rule's request or limit makes no sense to this provider.
    #[error("{0}")]
    BadRule(String),
    /// It cannot answer yet (no data); callers may ask again.
    #[error("not ready: {0}")]
    NotReady(String),
    /// Something broke.
    #[error("{0}")]
    Internal(String),
}

impl From<ProviderError> for Status {
    fn from(error: ProviderError) -> Self {
        let text = error.to_string();
        match error {
            ProviderError::BadRule(_) => Self::invalid_argument(text),
            // Not "unavailable": that is a broken connection's, and tried again.
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

impl From<wire::EndpointCostRequest> for CostRequest {
    fn from(ask: wire::EndpointCostRequest) -> Self {
        let peer = |p: wire::Peer| Peer {
            role: p.role,
            reference: reference(p.target.unwrap_or_default()),
            node: Some(p.node).filter(|n| !n.is_empty()),
        };
        Self {
            source: reference(ask.source.unwrap_or_default()),
            rule: ask.rule.unwrap_or_default().into(),
            peer_nodes: ask.peer_nodes,
            eligible_nodes: ask.eligible_nodes,
            workload: ask.workload.map(Workload::from),
            peers: ask.peers.into_iter().map(peer).collect(),
            known_version: ask.known_version,
            deadline: None,
        }
    }
}
