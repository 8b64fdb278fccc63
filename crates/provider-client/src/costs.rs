//! The costs of one rule: from the cache while valid, else from the provider.

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
    providers::PROVIDER_PORT,
    reference::Reference,
};
use tautline_proto::{endpoint_cost::put_known_version, ruleprovider as wire};
use tautline_traces::Span;
use tokio::time::Instant;

use crate::{
    CallError,
    budget::Budgets,
    cache::{Key, Lookup},
    call::EndpointChoice,
    client::ProviderClient,
    codec::{RawQuestion, encode_nodes},
    question::{PlanningQuestion, provider_name, texts},
    traced,
};

/// Of all pods in flight in a question; a pod takes some 200.
const MAX_IN_FLIGHT_BYTES: usize = 1 << 20;
/// A longer annotation of a pod in flight states no amount.
const MAX_ANNOTATION_BYTES: usize = 256;

pub(crate) enum CostSource {
    /// From earlier answers that are still valid.
    Cached(Costs),
    /// From the provider.
    Fetched {
        costs: Costs,
        /// The number of unknown and duplicate nodes in the answer.
        unexpected_nodes: usize,
        /// UIDs of the pods in flight that the provider counts itself.
        counted: Vec<String>,
    },
}

impl ProviderClient {
    /// `all_nodes` caches the encoded nodes for all rules of a round.
    pub(crate) async fn costs(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        question: &PlanningQuestion,
        constraints: &PodConstraints,
        rule: &Rule,
        all_nodes: &OnceLock<Bytes>,
    ) -> Result<CostSource, CallError> {
        let nodes = &*question.nodes;
        let annotations = self.shared_annotations(service, question);
        let mut head = question_template(question, constraints, rule, annotations);
        let of_any_pod = head.encode_to_vec();
        let provider = provider_name(service);
        let key = Key::new(Arc::clone(&provider), of_any_pod.into());
        // Cached lines may differ for a pod that already has an allocation.
        let placed = snapshot
            .pod(&question.subject.namespace, &question.subject.name)
            .is_some_and(|pod| pod.node.is_some());
        let in_flight = self.in_flight(snapshot, service, &provider, question);
        let found = self
            .cache()
            .find(&key, nodes, placed || !in_flight.is_empty());
        if let Lookup::Hit { refresh_at, .. } = &found {
            // A pod's own claims must not be part of a refresh for other pods.
            if let Some(due) = refresh_at.filter(|_| question.resource_claims.is_empty()) {
                let endpoints = self.endpoints(snapshot, service, PROVIDER_PORT);
                self.schedule_refresh(endpoints, key.clone(), Arc::clone(&rule.name), due);
            }
        }
        let found = match found {
            Lookup::Hit { costs, .. } if in_flight.is_empty() => {
                return Ok(CostSource::Cached(costs));
            }
            found => found,
        };
        let deadline = self.deadline_for(service, question)?;
        set_pod(&mut head, question);
        let sends_pods = !in_flight.is_empty();
        head.in_flight = in_flight;
        let of_pod = head.encode_to_vec();
        let raw_question = |head: Vec<u8>, nodes: Bytes| RawQuestion {
            head: head.into(),
            nodes,
        };
        let mut begun = Instant::now();
        let until = begun + deadline;
        let call = async |raw, first: EndpointChoice<'_>| {
            let endpoints = self.endpoints(snapshot, service, PROVIDER_PORT);
            let span = Span::of_call(traced::ENDPOINT_COST);
            let called = self.endpoint_cost(endpoints, raw, first, (deadline, until));
            let answered = span.scope(called).await;
            let whose = (service, &*rule.name);
            traced::record(&span, traced::ENDPOINT_COST, whose, &answered);
            answered
        };
        let (mut refetch, mut part) = (None, None);
        match found {
            Lookup::Versioned(known) => {
                let mut of_changes = of_pod.clone();
                put_known_version(known.version, &mut of_changes);
                let raw = raw_question(of_changes, encode_nodes(&known.missing));
                let (answer, by) = call(raw, EndpointChoice::Address(&known.endpoint)).await?;
                let cache = self.cache();
                if let Some(mut costs) = cache.apply_changes(&key, &known, &answer, nodes, begun)? {
                    let counted = answer.apply_in_flight(nodes, &mut costs)?;
                    return Ok(CostSource::Fetched {
                        costs,
                        unexpected_nodes: 0,
                        counted,
                    });
                }
                // The provider restarted, too much changed, or the answer is outdated or for this
                // pod only.
                self.metrics().full_refetch(&rule.name, &provider);
                refetch = Some((known, by));
                begun = Instant::now();
            }
            Lookup::Partial(known) if !sends_pods => part = Some(known),
            // Lines that are valid for a time may be older than a pod that the provider counts now.
            Lookup::Hit { .. } | Lookup::Partial(_) | Lookup::Miss => {}
        }
        let (to_ask, encoded) = match &part {
            Some(known) => (&known.missing, encode_nodes(&known.missing)),
            None => (nodes, all_nodes.get_or_init(|| encode_nodes(nodes)).clone()),
        };
        let first = refetch
            .as_ref()
            .map(|(_, by)| EndpointChoice::Address(&by.address));
        let raw = raw_question(of_pod, encoded);
        let (raw, by) = call(raw, first.unwrap_or(EndpointChoice::RoundRobin)).await?;
        let answer = raw.read(to_ask)?;
        if let Some((known, _)) = refetch
            && answer.valid.version == 0
            && !placed
        {
            // The replica no longer sends versions (it lost the Lease): others may.
            self.cache().remove(&key, &known);
        }
        self.cache()
            .insert(key, to_ask, &answer, &by.address, begun);
        let unexpected_nodes = answer.costs.unknown_nodes + answer.costs.duplicate_nodes;
        let mut costs = match part {
            Some(known) => known.merge(&answer.costs, nodes),
            None => answer.costs,
        };
        let counted = raw.apply_in_flight(nodes, &mut costs)?;
        Ok(CostSource::Fetched {
            costs,
            unexpected_nodes,
            counted,
        })
    }
}

impl ProviderClient {
    /// Other pods in flight that an allocator does not count yet, on nodes of the question.
    fn in_flight(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        provider: &str,
        question: &PlanningQuestion,
    ) -> Vec<wire::InFlightPod> {
        if !service.allocator {
            return Vec::new();
        }
        let subject = &question.subject;
        let pods = snapshot.in_flight().filter_map(|flight| {
            let (pod, node) = (&flight.pod, flight.pod.node.as_deref()?);
            let is_own = *pod.name == subject.name && *pod.namespace == subject.namespace;
            let counts = flight.counted_by.iter().any(|p| **p == *provider);
            let is_sent = counts && !is_own && question.nodes.position(node).is_some();
            is_sent.then(|| self.in_flight_pod(service, pod, node))
        });
        let mut bytes = 0;
        let within_bytes = pods.take_while(|pod| {
            bytes += pod.encoded_len();
            bytes <= MAX_IN_FLIGHT_BYTES
        });
        within_bytes.collect()
    }

    fn in_flight_pod(&self, service: &Service, pod: &Pod, node: &str) -> wire::InFlightPod {
        let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let shared = pod.annotations.iter().filter(|(key, value)| {
            value.len() <= MAX_ANNOTATION_BYTES && self.shares(service, &pod.namespace, key)
        });
        wire::InFlightPod {
            pod: Some(target(Reference::pod(&pod.namespace, &pod.name))),
            node: node.to_owned(),
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

    /// Whether a provider may read this annotation of a pod: all in its own namespace.
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

    fn deadline_for(
        &self,
        service: &Service,
        question: &PlanningQuestion,
    ) -> Result<Duration, CallError> {
        let deadline = self.config().deadline;
        match self.limiting_budgets(service, question) {
            Some(budgets) => self.deadline_within_budget(budgets, service, deadline),
            None => Ok(deadline),
        }
    }

    fn limiting_budgets(&self, service: &Service, question: &PlanningQuestion) -> Option<&Budgets> {
        let is_limited = question.scheduler_waits && !self.trusts(service);
        self.budgets().filter(|_| is_limited)
    }

    /// The longest that this call may take.
    pub(crate) fn longest_call(&self, service: &Service, question: &PlanningQuestion) -> Duration {
        let deadline = self.config().deadline;
        let budgets = self.limiting_budgets(service, question);
        budgets.map_or(deadline, |budgets| deadline.min(budgets.longest_wait()))
    }

    pub(crate) fn deadline_within_budget(
        &self,
        budgets: &Budgets,
        service: &Service,
        deadline: Duration,
    ) -> Result<Duration, CallError> {
        let namespace = &service.namespace;
        if budgets.is_used_up(namespace, Instant::now()) {
            self.metrics().over_budget(namespace);
            return Err(CallError::OverBudget(Arc::clone(namespace)));
        }
        Ok(deadline.min(budgets.longest_wait()))
    }
}

/// Equal for all pods of one shape: ResourceClaims are reduced to their presence, since each pod of
/// a template has its own.
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
        known_version: 0,
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
