//! When the rules leave no node, the underlay is asked what it could allocate so
//! that one becomes usable. What it offers is allocated as the pod is bound.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tautline_core::{
    Snapshot,
    constraints::{self, PodIdentity},
    model::{Rule, Service},
    planning::{Plan, RuleAnswer, RuleOutcome},
};
use tautline_proto::underlay::Offer;
use tautline_provider_client::{
    CallError, PlanningQuestion, PlanningRound, ProviderClient, RuleRecord,
    planning_round::provider_name,
};
use tokio::time::Instant;

pub(crate) mod bind;
mod leftovers;
mod mark;
mod need;
mod offers;
mod path;
mod turns;

use crate::{app::State, plans::Planned};

pub(crate) use offers::Offered;
pub(crate) use turns::Turns;

/// Left of a request's time for writing its answer.
const MARGIN: Duration = Duration::from_millis(150);
/// With less than this it is not worth asking.
const LEAST: Duration = Duration::from_millis(50);

/// What came of turning to the underlay, as a stable code.
pub(crate) mod code {
    pub(crate) const OFFERED: &str = "Offered";
    pub(crate) const NO_OFFER: &str = "NoOffer";
    /// Nothing could be allocated: the extender does not bind.
    pub(crate) const NEEDS_BIND: &str = "UnderlayNeedsBind";
    /// A rule without an answer keeps the nodes out: what it would say of an
    /// allocation is unknown.
    pub(crate) const RULE_UNANSWERED: &str = "RuleUnanswered";
    /// What refuses each node is something countable that no path can add.
    pub(crate) const NO_ELIGIBLE_NODE: &str = "NoEligibleNode";
    pub(crate) const NO_TIME: &str = "NoTime";
    pub(crate) const TIMEOUT: &str = "UnderlayTimeout";
    pub(crate) const OVER_BUDGET: &str = "UnderlayOverBudget";
    pub(crate) const NOT_ALLOWED: &str = "UnderlayNotAllowed";
    pub(crate) const NOT_READY: &str = "UnderlayNotReady";
    pub(crate) const BREAKER: &str = "UnderlayBreakerOpen";
    pub(crate) const BAD_ANSWER: &str = "UnderlayBadAnswer";
    pub(crate) const FAILED: &str = "UnderlayFailed";
}

/// What the underlay was asked for a pod, and what it offered.
#[derive(Debug)]
pub(crate) struct Consulted {
    /// `namespace/name` of its Service.
    pub service: Arc<str>,
    pub code: &'static str,
    /// What went wrong, for people.
    pub error: Option<String>,
    /// How many nodes it was asked about.
    pub asked: usize,
    pub took: Duration,
    /// Those that are taken first, then refused ones with their codes.
    pub offers: Vec<Offered>,
    /// Refused offers beyond those that are kept.
    pub left_out: usize,
}

impl Consulted {
    /// The offer that makes `node` usable.
    pub(crate) fn offer_for(&self, node: &str) -> Option<&Offered> {
        let ours = |o: &&Offered| o.refused.is_none() && o.node == node;
        self.offers.iter().find(ours)
    }

    pub(crate) fn weight(&self) -> usize {
        let offers = self.offers.iter().map(|o| 80 + o.id.len() + o.node.len());
        160 + self.error.as_ref().map_or(0, String::len) + offers.sum::<usize>()
    }
}

/// A round of the rules; if it leaves no node, the underlay is asked, and what it
/// offers is usable. Ends a little before `by`.
pub(crate) async fn plan(
    state: &State,
    snapshot: &Snapshot,
    question: PlanningQuestion,
    by: Instant,
) -> Planned {
    let mut round = state.discovery.plan_pod(snapshot, question).await;
    let none = round.plan.usable().next().is_none() && !round.nodes.is_empty();
    let service = state.discovery.underlay(snapshot, &round.subject.namespace);
    let underlay = match service {
        Some(service) if none => Some(consult(state, snapshot, service, &mut round, by).await),
        _ => None,
    };
    Planned { round, underlay }
}

async fn consult(
    state: &State,
    snapshot: &Snapshot,
    service: &Service,
    round: &mut PlanningRound,
    by: Instant,
) -> Consulted {
    let start = Instant::now();
    let mut out = Consulted {
        service: provider_name(service),
        code: code::NO_OFFER,
        error: None,
        asked: 0,
        took: Duration::ZERO,
        offers: Vec::new(),
        left_out: 0,
    };
    let nodes = if state.config.bind {
        eligible(&state.discovery, snapshot, round)
    } else {
        Err(code::NEEDS_BIND)
    };
    match nodes {
        Err(code) => out.code = code,
        Ok(nodes) => {
            out.asked = nodes.len();
            match discover(state, snapshot, service, round, &nodes, by).await {
                Err((code, error)) => (out.code, out.error) = (code, Some(error)),
                Ok(answer) => take(snapshot, round, &nodes, answer, &mut out),
            }
        }
    }
    out.took = start.elapsed();
    state.metrics.underlay_discover(out.code);
    if let Some(error) = &out.error {
        tracing::debug!(service = %out.service, code = out.code, %error, "the underlay offered nothing");
    }
    out
}

/// The positions of the nodes that the underlay may be asked about: those that
/// answers refuse. What is unknown, or counted out at bind, it cannot promise.
fn eligible(
    discovery: &ProviderClient,
    snapshot: &Snapshot,
    round: &PlanningRound,
) -> Result<Vec<usize>, &'static str> {
    let unanswered =
        |r: &RuleRecord| matches!(r.outcome, RuleOutcome::Unavailable { reject, .. } if reject);
    if round.rules.iter().any(unanswered) {
        return Err(code::RULE_UNANSWERED);
    }
    let counted: Vec<&RuleOutcome> = round
        .rules
        .iter()
        .filter(|r| {
            let provider = discovery.provider(snapshot, &r.rule.name, &round.subject.namespace);
            provider.is_some_and(|service| discovery.is_allocator(service))
        })
        .map(|r| &r.outcome)
        .collect();
    let full = |at: usize| {
        counted.iter().any(|outcome| match outcome {
            RuleOutcome::Costs(costs) => costs.get(at).is_none_or(|cost| cost < 0),
            RuleOutcome::Unavailable { .. } => false,
        })
    };
    let nodes: Vec<usize> = (0..round.nodes.len()).filter(|at| !full(*at)).collect();
    if nodes.is_empty() {
        return Err(code::NO_ELIGIBLE_NODE);
    }
    Ok(nodes)
}

async fn discover(
    state: &State,
    snapshot: &Snapshot,
    service: &Service,
    round: &PlanningRound,
    nodes: &[usize],
    by: Instant,
) -> Result<Vec<Offer>, (&'static str, String)> {
    let left = by.saturating_duration_since(Instant::now() + MARGIN);
    if left < LEAST {
        let error = "the rules' providers left no time to constraints in; see --deadline";
        return Err((code::NO_TIME, error.to_owned()));
    }
    let (rules, peers) = terms(snapshot, &round.subject);
    let names = nodes.iter().map(|at| round.nodes.name(*at).to_owned());
    let asked =
        state
            .discovery
            .discover_underlay(snapshot, service, &rules, peers, names.collect());
    match tokio::time::timeout(left, asked).await {
        Ok(Ok(offers)) => Ok(offers),
        Ok(Err(error)) => Err((code_of(&error), error.to_string())),
        Err(_) => Err((code::TIMEOUT, format!("no answer within {left:?}"))),
    }
}

/// The rules of all offers that govern the pod, each once, and the peers' nodes.
fn terms(snapshot: &Snapshot, subject: &PodIdentity) -> (Vec<Rule>, Vec<String>) {
    let asks = constraints::pod_constraints(snapshot, subject);
    let mut rules: Vec<Rule> = Vec::new();
    let mut peers = BTreeSet::new();
    for constraints in &asks {
        peers.extend(constraints.peer_nodes().into_iter().map(str::to_owned));
        for rule in &constraints.rules {
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

/// Makes the nodes of good offers usable, with scores by cost as rules give them.
fn take(
    snapshot: &Snapshot,
    round: &mut PlanningRound,
    nodes: &[usize],
    answer: Vec<Offer>,
    out: &mut Consulted,
) {
    let uid = &round.subject.uid;
    let others = snapshot
        .with_underlay_allocation()
        .filter(|p| *p.uid != **uid);
    let held: HashSet<&str> = others
        .flat_map(|p| p.underlay.iter().map(|id| &**id))
        .collect();
    let held = |id: &str| held.contains(id);
    let judged = offers::judge(answer, &round.nodes, nodes, SystemTime::now(), held);
    (out.offers, out.left_out) = (judged.offers, judged.left_out);
    let answer = RuleAnswer {
        offer: 0,
        rule: "underlay",
        weight: 1,
        outcome: &RuleOutcome::Costs(judged.costs),
    };
    let plan = Plan::new(round.nodes.len(), &[answer]);
    for (verdict, new) in round.plan.verdicts.iter_mut().zip(plan.verdicts) {
        if new.is_usable() {
            *verdict = new;
            out.code = code::OFFERED;
        }
    }
}

fn code_of(error: &CallError) -> &'static str {
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
