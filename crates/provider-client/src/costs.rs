//! The costs of one rule: from the provider's stream, or by a call.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tautline_core::{
    ContainerKind, Snapshot,
    constraints::{self, PodConstraints},
    model::{ContainerRequests, Pod, Rule, Service},
    planning::Costs,
    reference::Reference,
};
use tautline_proto::ruleprovider as wire;
use tokio::time::Instant;

use crate::{
    CallError,
    call::CallOptions,
    client::ProviderClient,
    codec::{encode_nodes, read_costs},
    question::{PlanningQuestion, texts},
    streams::RoundIndexes,
};

const ENDPOINT_COST: &str = "/ruleprovider.RuleProvider/EndpointCost";

/// The maximum size of the pods in flight in a question; one pod has some 200 bytes.
const MAX_IN_FLIGHT_BYTES: usize = 1 << 20;
/// The maximum size of an annotation of a pod in flight; a longer one states no amount.
const MAX_ANNOTATION_BYTES: usize = 256;

/// The data of a round's nodes that all of its rules share.
#[derive(Default)]
pub(crate) struct RoundNodes {
    /// The nodes as part of an encoded question.
    encoded: OnceLock<Bytes>,
    indexes: RoundIndexes,
}

impl ProviderClient {
    /// Gets the costs of one rule from the provider's stream if it has those of this pod, else by a
    /// call. Also returns the time since the provider said on its stream that the costs hold; `None`
    /// if it was called.
    pub(crate) async fn costs(
        &self,
        snapshot: &Snapshot,
        (service, provider): (&Arc<Service>, &Arc<str>),
        question: &PlanningQuestion,
        (constraints, rule): (&PodConstraints, &Rule),
        round: &RoundNodes,
        deadline: Duration,
    ) -> Result<(Costs, Option<Duration>), CallError> {
        if question.scheduler_waits {
            self.check_budget(service)?;
        }
        let nodes = &*question.nodes;
        let annotations = self.shared_annotations(service, question);
        let mut head = question_template(question, constraints, rule, annotations);
        let until = Instant::now() + deadline;
        let subject = &question.subject;
        // A pod with claims, or with a node, may have an allocation of its own.
        let is_like_others = || {
            let known = snapshot.pod(&subject.namespace, &subject.name);
            question.resource_claims.is_empty() && known.is_none_or(|pod| pod.node.is_none())
        };
        let is_streamed = self.config().streams && question.scheduler_waits;
        if is_streamed && self.trusts(service) && is_like_others() {
            let key = head.encode_to_vec().into();
            let found = self.0.streams.costs(
                snapshot,
                (service, provider),
                (&key, &subject.uid),
                (nodes, &round.indexes),
                deadline,
            );
            if let Some((costs, age)) = found.await? {
                return Ok((costs, Some(age)));
            }
        }
        set_pod(&mut head, question);
        if service.allocator {
            head.in_flight = self.in_flight(service, provider, question);
        }
        let encoded = round.encoded.get_or_init(|| encode_nodes(nodes));
        let message = [head.encode_to_vec().into(), encoded.clone()];
        let options = CallOptions {
            until,
            ..CallOptions::new(ENDPOINT_COST, deadline)
        };
        // Boxed, since its kilobytes would be moved even for costs from the stream.
        let called = Box::pin(self.call_raw(options, snapshot, (service, &rule.name), message));
        let answer = called.await?;
        Ok((read_costs(&answer, nodes)?, None))
    }

    /// The other pods on nodes of the question that the provider's watch may not show there yet.
    fn in_flight(
        &self,
        service: &Service,
        provider: &str,
        question: &PlanningQuestion,
    ) -> Vec<wire::InFlightPod> {
        let subject = &question.subject;
        let is_sent = |pod: &wire::InFlightPod| {
            let is_own = pod.workload.as_ref().is_some_and(|w| w.uid == subject.uid);
            !is_own && question.nodes.position(&pod.node).is_some()
        };
        let assumed = question.placed.iter();
        let assumed = assumed.map(|pod| self.in_flight_pod(service, pod));
        let placed = self.0.streams.placed(provider).into_iter();
        let pods = placed.chain(assumed).filter(is_sent);
        let mut bytes = 0;
        let within_bytes = pods.take_while(|pod| {
            bytes += pod.encoded_len();
            bytes <= MAX_IN_FLIGHT_BYTES
        });
        within_bytes.collect()
    }

    /// The message that tells a provider about a pod on its node.
    pub(crate) fn in_flight_pod(&self, service: &Service, pod: &Pod) -> wire::InFlightPod {
        let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let shared = pod.annotations.iter().filter(|(key, value)| {
            value.len() <= MAX_ANNOTATION_BYTES && self.shares(service, &pod.namespace, key)
        });
        wire::InFlightPod {
            pod: Some(target(Reference::pod(&pod.namespace, &pod.name))),
            node: pod.node.as_deref().unwrap_or_default().to_owned(),
            workload: Some(wire::Workload {
                labels: BTreeMap::new(),
                annotations: shared.map(text).collect(),
                requests: texts(&pod.requests),
                uid: pod.uid.to_string(),
                resource_claims: Vec::new(),
                containers: Vec::new(),
            }),
        }
    }

    /// Returns whether a provider may read this annotation of a pod; in its own namespace it may
    /// read all.
    fn shares(&self, service: &Service, namespace: &str, key: &str) -> bool {
        let shared = &self.config().shared_annotations;
        *service.namespace == *namespace || shared.iter().any(|pattern| pattern.matches(key))
    }

    pub(crate) fn shared_annotations(
        &self,
        service: &Service,
        question: &PlanningQuestion,
    ) -> BTreeMap<String, String> {
        let all = question.annotations.iter();
        all.filter(|(key, _)| self.shares(service, &question.subject.namespace, key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

/// The question without the pod's own names, which is equal for all pods of one shape.
/// ResourceClaims are reduced to their presence, since each pod of a template has its own.
fn question_template(
    question: &PlanningQuestion,
    constraints: &PodConstraints,
    rule: &Rule,
    annotations: BTreeMap<String, String>,
) -> wire::EndpointCostRequest {
    let subject = &question.subject;
    let labels = subject.labels.iter();
    let any_claim = question.resource_claims.first().map(|_| String::new());
    let peer = |p: &constraints::Peer| wire::Peer {
        role: p.role.to_string(),
        target: Some(target(p.reference.clone())),
        node: p.node.as_deref().unwrap_or_default().to_owned(),
    };
    wire::EndpointCostRequest {
        source: Some(target(Reference::pod(&subject.namespace, ""))),
        rule: Some(wire_rule(rule)),
        peer_nodes: constraints
            .peer_nodes()
            .into_iter()
            .map(str::to_owned)
            .collect(),
        eligible_nodes: Vec::new(),
        workload: Some(wire::Workload {
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            annotations,
            requests: question.requests.clone(),
            resource_claims: any_claim.into_iter().collect(),
            containers: wire_containers(&question.containers),
            uid: String::new(),
        }),
        peers: constraints.peers.iter().map(peer).collect(),
        in_flight: Vec::new(),
    }
}

fn set_pod(head: &mut wire::EndpointCostRequest, question: &PlanningQuestion) {
    if let Some(source) = &mut head.source {
        source.name.clone_from(&question.subject.name);
    }
    if let Some(workload) = &mut head.workload {
        workload
            .resource_claims
            .clone_from(&question.resource_claims);
        workload.uid.clone_from(&question.subject.uid);
    }
}

pub(crate) fn wire_containers(all: &[ContainerRequests]) -> Vec<wire::Container> {
    let container = |of: &ContainerRequests| wire::Container {
        kind: match of.kind {
            ContainerKind::Main => wire::container::Kind::Main.into(),
            ContainerKind::Init => wire::container::Kind::Init.into(),
            ContainerKind::Sidecar => wire::container::Kind::Sidecar.into(),
        },
        requests: texts(&of.requests),
    };
    all.iter().map(container).collect()
}

pub(crate) fn wire_rule(rule: &Rule) -> wire::PolicyRule {
    wire::PolicyRule {
        name: rule.name.to_string(),
        request: rule.request.clone(),
        limit: rule.limit.clone(),
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
