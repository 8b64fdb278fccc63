//! A planning round: concurrent calls for every rule of every offer that governs a pod.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::future::join_all;
use tautline_core::{
    Snapshot,
    constraints::{self, PodConstraints, PodIdentity},
    model::{Node, Pod, ProviderUnavailable, Rule},
    node_filter::NodeFilter,
    nodes::NodeSet,
    planning::{NodeVerdict, Plan, RuleAnswer, RuleOutcome, code},
    providers::ALLOCATOR_ANNOTATION,
};
use tokio::time::Instant;

pub use crate::question::provider_name;
use crate::{
    client::ProviderClient,
    costs::RoundNodes,
    question::{PlanningQuestion, subject_bytes},
    status::{CallStatus, micros, unix_millis},
};

/// The maximum number of rules per pod, since their providers are called concurrently.
const MAX_RULES: usize = 256;

/// The record of one round, from which explanations are made.
#[derive(Debug)]
pub struct PlanningRound {
    /// The pod.
    pub subject: PodIdentity,
    /// The nodes, by the positions of the plan.
    pub nodes: Arc<NodeSet>,
    /// The result of each rule.
    pub rules: Vec<RuleRecord>,
    /// The decision on each node.
    pub plan: Plan,
    /// The start of the round.
    pub at: SystemTime,
    /// The duration of the round.
    pub took: Duration,
}

/// One rule of one offer in a round.
#[derive(Debug)]
pub struct RuleRecord {
    /// The offer's name, in the pod's namespace.
    pub offer: Arc<str>,
    /// The rule; for a missing policy it has only the policy's name.
    pub rule: Rule,
    /// The provider's Service, as `namespace/name`.
    pub provider: Option<Arc<str>>,
    /// The costs, or the reason why there are no costs.
    pub outcome: RuleOutcome,
    /// The error, for people.
    pub error: Option<String>,
    /// The time that filter waited for the costs.
    pub took: Duration,
    /// The time since the provider confirmed on its stream that the costs hold; `None` if it was
    /// called instead.
    pub streamed: Option<Duration>,
    /// True if the provider counts pods: it must know of this pod before a watch shows the pod on
    /// its node.
    pub counts_pods: bool,
}

impl PlanningRound {
    /// The decision on the node of this name; `None` if it is not in the request.
    pub fn verdict(&self, node: &str) -> Option<&NodeVerdict> {
        self.plan.verdicts.get(self.nodes.position(node)?)
    }

    /// The approximate size of the round, in bytes.
    pub fn heap_bytes(&self) -> usize {
        let rules = self.rules.iter().map(|r| {
            let costs = match &r.outcome {
                RuleOutcome::Costs(costs) => costs.heap_bytes(),
                RuleOutcome::Unavailable { .. } => 0,
            };
            256 + costs
                + r.rule.request.len()
                + r.rule.limit.len()
                + r.error.as_ref().map_or(0, String::len)
        });
        512 + subject_bytes(&self.subject)
            + self.nodes.heap_bytes()
            + self.plan.verdicts.len() * size_of::<NodeVerdict>()
            + rules.sum::<usize>()
    }

    /// The providers of the pod's rules that count pods, each once.
    pub fn counting_providers(&self) -> impl Iterator<Item = &Arc<str>> {
        let counting = self.rules.iter().filter(|rule| rule.counts_pods);
        let all: BTreeSet<&Arc<str>> = counting.filter_map(|r| r.provider.as_ref()).collect();
        all.into_iter()
    }

    /// The rules that were left out for lack of an answer, with their reason codes.
    pub fn ignored(&self) -> impl Iterator<Item = (&RuleRecord, &'static str)> {
        self.rules.iter().filter_map(|r| match r.outcome {
            RuleOutcome::Unavailable {
                code,
                reject: false,
            } => Some((r, code)),
            _ => None,
        })
    }
}

impl ProviderClient {
    /// Plans a pod, as if it were unbound, on the nodes that satisfy Kubernetes' own rules.
    pub async fn plan_on_fitting_nodes(&self, snapshot: &Snapshot, pod: &Pod) -> PlanningRound {
        let filter = NodeFilter::new(snapshot, pod);
        let fits = |n: &&Arc<Node>| filter.reason(n).is_none();
        let nodes = snapshot.nodes().filter(fits).map(|n| &*n.name).collect();
        self.plan_pod(snapshot, PlanningQuestion::for_pod(pod, nodes))
            .await
    }

    /// Calls the provider of every rule that governs the pod, and plans.
    pub async fn plan_pod(&self, snapshot: &Snapshot, question: PlanningQuestion) -> PlanningRound {
        let constraints = constraints::pod_constraints(snapshot, &question.subject);
        self.plan_with(snapshot, &constraints, question).await
    }

    /// Does the same as [`Self::plan_pod`], for callers that have the pod's constraints.
    pub async fn plan_with(
        &self,
        snapshot: &Snapshot,
        all: &[PodConstraints],
        question: PlanningQuestion,
    ) -> PlanningRound {
        let (start, at) = (Instant::now(), SystemTime::now());
        let nodes = RoundNodes::default();
        let governing = || {
            all.iter()
                .flat_map(|of| of.rules.iter().map(move |rule| (of, rule)))
        };
        let asked = governing().take(MAX_RULES);
        let calls = asked.map(|(of, rule)| self.query_rule(snapshot, &question, of, rule, &nodes));
        let mut rules = join_all(calls).await;
        if question.scheduler_waits {
            // The calls were concurrent, so the namespace pays for its slowest provider.
            let namespace = &*question.subject.namespace;
            let is_own = |provider: &Arc<str>| {
                let of = provider.split_once('/');
                of.is_some_and(|(of, _)| of == namespace)
            };
            let own = rules
                .iter()
                .filter(|r| r.provider.as_ref().is_some_and(is_own));
            let waited = own.map(|r| r.took).max();
            self.charge_calls(namespace, waited.unwrap_or_default());
        }
        for (of, rule) in governing().skip(MAX_RULES) {
            let error = format!(
                "more than {MAX_RULES} rules govern the pod, in the order of its offers' names: \
                 give it fewer offers"
            );
            rules.push(self.unavailable(of, rule.clone(), code::TOO_MANY_RULES, error));
        }
        for of in all {
            rules.extend(of.missing_policies.iter().map(|policy| {
                let rule = Rule {
                    name: Arc::clone(policy),
                    ..Rule::default()
                };
                let error = format!(
                    "ConstraintPolicy {}/{policy} does not exist; the offer {} names it",
                    of.offer.namespace, of.offer.name
                );
                self.unavailable(of, rule, code::POLICY_MISSING, error)
            }));
        }
        let answers: Vec<RuleAnswer<'_>> = rules
            .iter()
            .map(|r| RuleAnswer {
                offer: all
                    .iter()
                    .position(|a| a.offer.name == r.offer)
                    .unwrap_or_default(),
                rule: &r.rule.name,
                weight: r.rule.weight,
                prefer: r.rule.prefer.unwrap_or_default(),
                outcome: &r.outcome,
            })
            .collect();
        let plan = Plan::new(question.nodes.len(), &answers);
        let PlanningQuestion { subject, nodes, .. } = question;
        let round = PlanningRound {
            subject,
            nodes,
            rules,
            plan,
            at,
            took: start.elapsed(),
        };
        for (record, code) in round.ignored() {
            self.0.metrics.ignored(&record.rule.name, code);
        }
        round
    }

    /// The record of a rule without costs.
    fn unavailable(
        &self,
        constraints: &PodConstraints,
        rule: Rule,
        code: &'static str,
        error: String,
    ) -> RuleRecord {
        // A missing policy may have limits.
        let may_have_limit = !rule.limit.is_empty() || code == code::POLICY_MISSING;
        let of_offer = constraints.offer.provider_unavailable;
        let reject = match of_offer.or(self.config().provider_unavailable) {
            Some(chosen) => chosen == ProviderUnavailable::Reject,
            None => may_have_limit,
        };
        RuleRecord {
            offer: Arc::clone(&constraints.offer.name),
            rule,
            provider: None,
            outcome: RuleOutcome::Unavailable { code, reject },
            error: Some(error),
            took: Duration::ZERO,
            streamed: None,
            counts_pods: false,
        }
    }

    async fn query_rule(
        &self,
        snapshot: &Snapshot,
        question: &PlanningQuestion,
        constraints: &PodConstraints,
        rule: &Rule,
        nodes: &RoundNodes,
    ) -> RuleRecord {
        let start = Instant::now();
        let unavailable = |code, error| self.unavailable(constraints, rule.clone(), code, error);
        let namespace = &constraints.offer.namespace;
        let Some(service) = self.provider(snapshot, &rule.name, namespace) else {
            let error = self.missing_provider_message(snapshot, &rule.name, namespace);
            return unavailable(code::NO_PROVIDER, error);
        };
        let provider = provider_name(service);
        if service.allocator && !self.trusts(service) {
            let error = format!(
                "Service {provider} reserves ({ALLOCATOR_ANNOTATION}), which only Services of \
                 trusted namespaces may; see --provider-namespaces"
            );
            return RuleRecord {
                provider: Some(provider),
                ..unavailable(code::NOT_ALLOWED, error)
            };
        }
        if let Some((cluster, fault)) = &constraints.unavailable {
            return RuleRecord {
                provider: Some(provider),
                counts_pods: service.allocator,
                ..unavailable(code::CLUSTER_UNAVAILABLE, fault.text(cluster))
            };
        }
        let mut deadline = self.config().deadline;
        if question.scheduler_waits {
            deadline = self.longest_call(service, deadline);
        }
        let result = self
            .costs(
                snapshot,
                (service, &provider),
                question,
                (constraints, rule),
                nodes,
                deadline,
            )
            .await;
        let (took, metrics) = (start.elapsed(), &self.0.metrics);
        let (code, outcome, error, streamed) = match result {
            Ok((costs, streamed)) => {
                if streamed.is_some() {
                    metrics.streamed(&rule.name, &provider);
                } else {
                    let odd = costs.unknown_nodes + costs.duplicate_nodes;
                    metrics.call(&rule.name, &provider, "OK", took);
                    metrics.unexpected_nodes(&rule.name, &provider, odd);
                }
                ("OK", RuleOutcome::Costs(costs), None, streamed)
            }
            Err(error) => {
                metrics.call(&rule.name, &provider, error.code(), took);
                tracing::debug!(rule = %rule.name, %provider, %error, "provider gave no answer");
                let error = self.hide_details(service, error);
                let record = unavailable(error.code(), error.to_string());
                (error.code(), record.outcome, record.error, None)
            }
        };
        let call = CallStatus {
            at_unix_millis: unix_millis(SystemTime::now()),
            took_micros: micros(took),
            deadline_micros: micros(deadline),
            outcome: code.into(),
            error: error.clone(),
        };
        self.0.last_calls.set(&rule.name, &provider, call);
        RuleRecord {
            offer: Arc::clone(&constraints.offer.name),
            rule: rule.clone(),
            provider: Some(provider),
            outcome,
            error,
            took,
            streamed,
            counts_pods: service.allocator,
        }
    }

    /// The message for a rule without a provider.
    pub fn missing_provider_message(
        &self,
        snapshot: &Snapshot,
        rule: &str,
        namespace: &str,
    ) -> String {
        let elsewhere = match snapshot.providers(rule) {
            [] => "",
            _ => "; there is one, but in a namespace that is not trusted",
        };
        let trusted = &self.config().trusted;
        format!(
            "no Service of namespace {namespace}, or of a trusted one ({trusted}; see \
             --provider-namespaces), is labelled constraint.ciena.com/constraint-{rule}: \
             enabled{elsewhere}"
        )
    }
}
