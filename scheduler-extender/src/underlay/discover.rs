//! Calls Discover, and plans by its offers.

use std::{
    collections::{BTreeSet, HashSet},
    time::{Duration, SystemTime},
};

use tautline_core::{
    Snapshot,
    constraints::PodConstraints,
    model::{Prefer, Rule, Service},
    planning::{Plan, RuleAnswer, RuleOutcome},
};
use tautline_proto::underlay::Offer;
use tautline_provider_client::{
    CallError, PlanningRound, ProviderClient, RuleRecord, planning_round::provider_name,
};
use tokio::time::Instant;

use super::{UnderlayResult, code, offers};

/// The part of the request's time that is reserved for writing its answer.
const DISCOVER_MARGIN: Duration = Duration::from_millis(150);
/// The minimum time for a call of Discover.
const MIN_TIME: Duration = Duration::from_millis(50);

pub(crate) struct Discovery<'a> {
    pub providers: &'a ProviderClient,
    pub snapshot: &'a Snapshot,
    pub service: &'a Service,
    pub constraints: &'a [PodConstraints],
    pub can_bind: bool,
    pub deadline: Instant,
}

impl Discovery<'_> {
    /// Calls Discover, and makes the nodes of accepted offers usable in `round`.
    pub async fn run(self, round: &mut PlanningRound) -> UnderlayResult {
        let start = Instant::now();
        let mut result = UnderlayResult {
            service: provider_name(self.service),
            code: code::NO_OFFER,
            error: None,
            eligible_nodes: 0,
            took: Duration::ZERO,
            offers: Vec::new(),
            left_out: 0,
        };
        match self.eligible_nodes(round) {
            Err(code) => result.code = code,
            Ok(nodes) => {
                result.eligible_nodes = nodes.len();
                match self.call(round, &nodes).await {
                    Err((code, error)) => (result.code, result.error) = (code, Some(error)),
                    Ok(offers) => self.apply(offers, &nodes, round, &mut result),
                }
            }
        }
        result.took = start.elapsed();
        result
    }

    /// Returns the positions of the nodes that the underlay may make usable. It cannot help if a
    /// rule has no answer, or on a node that an allocator refuses.
    fn eligible_nodes(&self, round: &PlanningRound) -> Result<Vec<usize>, &'static str> {
        if !self.can_bind {
            return Err(code::NEEDS_BIND);
        }
        let unanswered =
            |r: &RuleRecord| matches!(r.outcome, RuleOutcome::Unavailable { reject, .. } if reject);
        if round.rules.iter().any(unanswered) {
            return Err(code::RULE_UNANSWERED);
        }
        let allocators = round.rules.iter().filter(|r| r.counts_pods);
        let by_allocators: Vec<&RuleOutcome> = allocators.map(|r| &r.outcome).collect();
        let is_full = |at: usize| {
            by_allocators.iter().any(|outcome| match outcome {
                RuleOutcome::Costs(costs) => costs.get(at).is_none_or(|cost| cost < 0),
                RuleOutcome::Unavailable { .. } => false,
            })
        };
        let nodes: Vec<usize> = (0..round.nodes.len()).filter(|at| !is_full(*at)).collect();
        if nodes.is_empty() {
            return Err(code::NO_ELIGIBLE_NODE);
        }
        Ok(nodes)
    }

    async fn call(
        &self,
        round: &PlanningRound,
        nodes: &[usize],
    ) -> Result<Vec<Offer>, (&'static str, String)> {
        let left = self
            .deadline
            .saturating_duration_since(Instant::now() + DISCOVER_MARGIN);
        if left < MIN_TIME {
            let error = "the rules' providers left no time for Discover; see --deadline";
            return Err((code::NO_TIME, error.to_owned()));
        }
        let (rules, peers) = rules_and_peers(self.constraints);
        let names = nodes.iter().map(|at| round.nodes.name(*at).to_owned());
        let discover = self.providers.discover_underlay(
            self.snapshot,
            self.service,
            &rules,
            peers,
            names.collect(),
        );
        match tokio::time::timeout(left, discover).await {
            Ok(Ok(offers)) => Ok(offers),
            Ok(Err(error)) => Err((error_code(&error), error.to_string())),
            Err(_) => Err((code::TIMEOUT, format!("no answer within {left:?}"))),
        }
    }

    /// Scores the nodes of accepted offers by cost, as a rule's costs are scored.
    fn apply(
        &self,
        offers: Vec<Offer>,
        nodes: &[usize],
        round: &mut PlanningRound,
        result: &mut UnderlayResult,
    ) {
        let uid = &round.subject.uid;
        let others = self.snapshot.with_underlay_allocation();
        let in_use: HashSet<&str> = others
            .filter(|p| *p.uid != **uid)
            .flat_map(|p| p.underlay.iter().map(|id| &**id))
            .collect();
        let in_use = |id: &str| in_use.contains(id);
        let checked = offers::check(offers, &round.nodes, nodes, SystemTime::now(), in_use);
        (result.offers, result.left_out) = (checked.offers, checked.left_out);
        let answer = RuleAnswer {
            offer: 0,
            rule: "underlay",
            weight: 1,
            prefer: Prefer::default(),
            outcome: &RuleOutcome::Costs(checked.costs),
        };
        let plan = Plan::new(round.nodes.len(), &[answer]);
        for (verdict, new) in round.plan.verdicts.iter_mut().zip(plan.verdicts) {
            if new.is_usable() {
                *verdict = new;
                result.code = code::OFFERED;
            }
        }
    }
}

/// The rules of all offers that govern the pod, without duplicates, and the peers' nodes.
fn rules_and_peers(constraints: &[PodConstraints]) -> (Vec<Rule>, Vec<String>) {
    let mut rules: Vec<Rule> = Vec::new();
    let mut peers = BTreeSet::new();
    for of_offer in constraints {
        peers.extend(of_offer.peer_nodes().into_iter().map(str::to_owned));
        for rule in &of_offer.rules {
            let same = |r: &Rule| {
                (&r.name, &r.request, &r.limit) == (&rule.name, &rule.request, &rule.limit)
            };
            if !rules.iter().any(same) {
                rules.push(rule.clone());
            }
        }
    }
    (rules, peers.into_iter().collect())
}

fn error_code(error: &CallError) -> &'static str {
    match error {
        CallError::NotReady => code::NOT_READY,
        CallError::BreakerOpen(_) => code::BREAKER,
        CallError::OverBudget(_) => code::OVER_BUDGET,
        CallError::NotAllowed(_) => code::NOT_ALLOWED,
        CallError::Timeout(_) => code::TIMEOUT,
        CallError::BadAnswer(_) => code::BAD_ANSWER,
        CallError::Failed(_) => code::FAILED,
    }
}
