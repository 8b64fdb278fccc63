//! What one rule's provider says of the nodes of a question: from what is kept of
//! earlier answers, as far as that holds, and from the provider.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tautline_core::{
    Snapshot,
    constraints::{self, PodConstraints},
    model::{Rule, Service},
    planning::Costs,
    providers::PROVIDER_PORT,
    reference::Reference,
};
use tautline_proto::{endpoint_cost::put_known_version, ruleprovider as wire};
use tokio::time::Instant;

use crate::{
    CallError,
    budget::Budgets,
    cache::{Key, Lookup},
    call::EndpointChoice,
    client::ProviderClient,
    codec::{RawQuestion, encode_nodes},
    planning_round::{PlanningQuestion, provider_name},
};

/// Where the costs come from.
pub(crate) enum CostSource {
    /// Earlier answers that their provider still calls valid.
    Cached(Costs),
    /// The provider, just now, with so many nodes that are none of the question's, or
    /// were named before.
    Fetched {
        costs: Costs,
        unexpected_nodes: usize,
    },
}

impl ProviderClient {
    /// The costs of all nodes of a question; `all_nodes` are its nodes as they stand on
    /// the wire, for all rules of a round.
    ///
    /// # Errors
    /// What kept the provider from answering.
    pub(crate) async fn costs(
        &self,
        snapshot: &Snapshot,
        service: &Service,
        asked: &PlanningQuestion,
        constraints: &PodConstraints,
        rule: &Rule,
        all_nodes: &OnceLock<Bytes>,
    ) -> Result<CostSource, CallError> {
        let nodes = &*asked.nodes;
        let annotations = self.shared_annotations(service, asked);
        let mut head = head(asked, constraints, rule, annotations);
        let of_any_pod = head.encode_to_vec();
        let provider = provider_name(service);
        let key = Key::new(Arc::clone(&provider), of_any_pod.into());
        // What others are told holds but for a pod that has something already.
        let placed = snapshot
            .pod(&asked.subject.namespace, &asked.subject.name)
            .is_some_and(|pod| pod.node.is_some());
        let found = self.cache().find(&key, nodes, placed);
        if let Lookup::Hit {
            costs,
            refresh_at: ahead,
        } = found
        {
            // A pod with claims of its own is not asked for on behalf of others.
            if let Some(due) = ahead.filter(|_| asked.resource_claims.is_empty()) {
                let endpoints = self.endpoints(snapshot, service, PROVIDER_PORT);
                self.schedule_refresh(endpoints, key, Arc::clone(&rule.name), due);
            }
            return Ok(CostSource::Cached(costs));
        }
        let deadline = self.deadline_for(service, asked)?;
        set_pod(&mut head, asked);
        let of_pod = head.encode_to_vec();
        let question = |head: Vec<u8>, nodes: Bytes| RawQuestion {
            head: head.into(),
            nodes,
        };
        let mut begun = Instant::now();
        let until = begun + deadline;
        let call = async |raw, first: EndpointChoice<'_>| {
            let endpoints = self.endpoints(snapshot, service, PROVIDER_PORT);
            self.endpoint_cost(endpoints, raw, first, (deadline, until))
                .await
        };
        let (mut anew, mut part) = (None, None);
        match found {
            Lookup::Versioned(known) => {
                let mut of_changes = of_pod.clone();
                put_known_version(known.version, &mut of_changes);
                let raw = question(of_changes, encode_nodes(&known.missing));
                let (answer, by) = call(raw, EndpointChoice::Address(&known.endpoint)).await?;
                if let Some(costs) = self
                    .cache()
                    .apply_changes(&key, &known, &answer, nodes, begun)?
                {
                    return Ok(CostSource::Fetched {
                        costs,
                        unexpected_nodes: 0,
                    });
                }
                // It has started anew, or too much has changed, or what it says is for
                // this pod alone, or all was asked for meanwhile.
                self.metrics().full_refetch(&rule.name, &provider);
                anew = Some((known, by));
                begun = Instant::now();
            }
            Lookup::Partial(known) => part = Some(known),
            Lookup::Miss | Lookup::Hit { .. } => {}
        }
        let (to_ask, encoded) = match &part {
            Some(known) => (&known.missing, encode_nodes(&known.missing)),
            None => (nodes, all_nodes.get_or_init(|| encode_nodes(nodes)).clone()),
        };
        let first = anew
            .as_ref()
            .map(|(_, by)| EndpointChoice::Address(&by.address));
        let raw = question(of_pod, encoded);
        let (answer, by) = call(raw, first.unwrap_or(EndpointChoice::RoundRobin)).await?;
        let answer = answer.read(to_ask)?;
        if let Some((known, _)) = anew
            && answer.valid.version == 0
            && !placed
        {
            // It numbers no more, as a replica that no longer grants: others may.
            self.cache().remove(&key, &known);
        }
        self.cache()
            .insert(key, to_ask, &answer, &by.address, begun);
        Ok(CostSource::Fetched {
            unexpected_nodes: answer.costs.unknown_nodes + answer.costs.duplicate_nodes,
            costs: match part {
                Some(known) => known.merge(&answer.costs, nodes),
                None => answer.costs,
            },
        })
    }
}

impl ProviderClient {
    /// What of the pod's annotations a provider is told: all if it is of the pod's own
    /// namespace.
    pub(crate) fn shared_annotations(
        &self,
        service: &Service,
        asked: &PlanningQuestion,
    ) -> BTreeMap<String, String> {
        if *service.namespace == *asked.subject.namespace {
            return asked.annotations.clone();
        }
        let shared = &self.config().shared_annotations;
        let all = asked.annotations.iter();
        all.filter(|(key, _)| shared.iter().any(|pattern| pattern.matches(key)))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// How long this provider may take, unless kube-scheduler has waited enough for it.
    fn deadline_for(
        &self,
        service: &Service,
        asked: &PlanningQuestion,
    ) -> Result<Duration, CallError> {
        let deadline = self.config().deadline;
        match self.budgets() {
            Some(budgets) if asked.scheduler_waits && !self.trusts(service) => {
                self.deadline_within_budget(budgets, service, deadline)
            }
            _ => Ok(deadline),
        }
    }

    /// The deadline of a call that an untrusted namespace's budget allows.
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

/// All of a question but its nodes, of no pod in particular: the same for every pod of one
/// shape. One of a template's pods has claims of its own as it has a name.
fn head(
    asked: &PlanningQuestion,
    constraints: &PodConstraints,
    rule: &Rule,
    annotations: BTreeMap<String, String>,
) -> wire::EndpointCostRequest {
    let subject = &asked.subject;
    let labels = subject.labels.iter();
    let any_claim = asked.resource_claims.first().map(|_| String::new());
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
            requests: asked.requests.clone(),
            resource_claims: any_claim.into_iter().collect(),
            uid: String::new(),
        }),
        peers: constraints.peers.iter().map(peer).collect(),
        known_version: 0,
    }
}

/// Says which pod it is.
fn set_pod(head: &mut wire::EndpointCostRequest, asked: &PlanningQuestion) {
    if let Some(source) = &mut head.source {
        source.name.clone_from(&asked.subject.name);
    }
    if let Some(workload) = &mut head.workload {
        workload.resource_claims.clone_from(&asked.resource_claims);
        workload.uid.clone_from(&asked.subject.uid);
    }
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
