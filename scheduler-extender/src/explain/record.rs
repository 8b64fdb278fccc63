//! Planning rounds as `/explain/NAMESPACE/POD` shows them.

use serde::{Deserialize, Serialize};
use tautline_core::{
    answer::AnswerMode,
    model::Prefer,
    pending::{self, PendingRule},
    planning::{NodeVerdict, RuleOutcome},
};
use tautline_provider_client::{
    PlanningRound,
    status::{micros, unix_millis},
};

use super::pod::PodNow;
use crate::{
    plans::PodPlan,
    underlay::{CheckedOffer, UnderlayResult},
};

/// One planning round of one pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// The start of the round, in milliseconds since 1970.
    pub at_unix_millis: u64,
    /// The duration of the rules' calls and their evaluation, in microseconds, without the
    /// underlay.
    pub took_micros: u64,
    /// The number of usable nodes, with those of the underlay's offers.
    pub usable: usize,
    /// The reason why no node is usable, as a sentence; absent if one is, or if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_pending: Option<String>,
    /// The rules of all offers that govern the pod.
    pub rules: Vec<RuleRecord>,
    /// The nodes, sorted by rank: the best first, unusable nodes last.
    pub nodes: Vec<NodeRecord>,
    /// The nodes that filter returned to kube-scheduler.
    #[serde(default)]
    pub answer: AnswerRecord,
    /// The underlay's answer; present if the rules left no node and an underlay exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<UnderlayRecord>,
    /// The pod's state at the time of this request; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_now: Option<PodNow>,
}

/// Filter's answer to kube-scheduler.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerRecord {
    /// The mode of the answer: `ties`, `decisive` or `shortlist`, as in `--answer`.
    pub mode: String,
    /// The names of the returned nodes; empty if no node is usable.
    pub nodes: Vec<String>,
    /// The number of nodes that tie for best.
    pub tied: usize,
}

/// The underlay controller's answer to Discover, or the reason why it was not called.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnderlayRecord {
    /// The Service, as `namespace/name`.
    pub service: String,
    /// The outcome: `Offered`, or the code of the reason for no offer.
    pub outcome: String,
    /// The error, for people; absent if `outcome` alone is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The number of eligible nodes in the request.
    pub asked_nodes: usize,
    /// The duration of Discover, in microseconds.
    pub took_micros: u64,
    /// The accepted offers, then the refused offers.
    pub offers: Vec<UnderlayOffer>,
    /// The number of refused offers that are not listed.
    #[serde(default)]
    pub left_out: usize,
}

/// An allocation that the underlay controller offers, to make one node usable.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnderlayOffer {
    /// The controller's id; a refused offer has only its first 64 characters.
    pub id: String,
    /// The node's name; a refused offer has only its first 64 characters.
    pub node: String,
    /// The controller's cost of the allocation. A lower cost is better; a negative cost is refused.
    pub cost: i64,
    /// The expiry, in milliseconds since 1970; absent if the offer does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_millis: Option<u64>,
    /// The code of the refusal; absent if the offer makes the node usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// One rule of one offer, with its provider's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleRecord {
    /// The offer's name, in the pod's namespace.
    pub offer: String,
    /// The rule's name; the policy's name if the policy does not exist.
    pub rule: String,
    /// The wanted value: a text that only the provider interprets.
    pub request: String,
    /// The worst acceptable value, a text of the same kind; it may be empty.
    pub limit: String,
    /// The weight of the rule, relative to the other rules of the offer.
    pub weight: u32,
    /// The Service, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The outcome: `OK`, or an error code.
    pub outcome: String,
    /// False if the rule was ignored because it has no answer.
    pub counted: bool,
    /// The error behind the code, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The time that filter waited for the costs, in microseconds.
    pub took_micros: u64,
    /// The time since the provider confirmed that the costs hold, in microseconds, if it had sent
    /// them before kube-scheduler asked; absent if it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_micros: Option<u64>,
    /// The difference up to which costs are equally good; with 0 every difference counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resolution: i64,
    /// The preference, `WithinRequest` or `Nearest`, as in the policy; absent for the default,
    /// WithinRequest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<String>,
    /// The cost up to which a node is within the request. If the provider does not name it, it is
    /// absent, and the nearest node is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_cost: Option<i64>,
}

impl RuleRecord {
    /// The nodes that the rule prefers, as in the policy.
    pub fn preference(&self) -> Prefer {
        match self.prefer.as_deref() {
            Some(name) if name == Prefer::Nearest.name() => Prefer::Nearest,
            _ => Prefer::WithinRequest,
        }
    }

    /// Returns whether the policy prefers nodes within the request, but the provider does not name
    /// them.
    pub fn prefers_in_vain(&self) -> bool {
        let wants = self.prefer.as_deref() == Some(Prefer::WithinRequest.name());
        wants && self.outcome == "OK" && self.request_cost.is_none()
    }

    /// Returns whether the node of this line is within the request, and so as good as all others
    /// that are.
    pub fn is_within_request(&self, line: &CostRecord) -> bool {
        let up_to = match self.preference() {
            Prefer::WithinRequest => self.request_cost,
            Prefer::Nearest => None,
        };
        let cost = line.cost.filter(|cost| *cost >= 0);
        up_to
            .zip(cost)
            .is_some_and(|(up_to, cost)| cost.saturating_sub(line.tie_break) <= up_to)
    }
}

/// The decision on one node of the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// The node's name.
    pub node: String,
    /// True if the rules, or an accepted offer of the underlay, let the pod run there.
    pub usable: bool,
    /// The score, from 0 to 10.
    pub score: u8,
    /// The reason of an unusable node, as `rule/Code`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The costs, in the order of the record's rules.
    pub costs: Vec<CostRecord>,
}

/// One provider's answer for one node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CostRecord {
    /// The cost; absent if the answer lacks the node, or there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<i64>,
    /// The provider's reason code for the cost; empty if there is no valid code.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The provider's text for people, which may have figures.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The part of the cost that only orders equally good nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tie_break: i64,
    /// True if removing pods from the node could make it usable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub freeable: bool,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

fn underlay_record(result: &UnderlayResult) -> UnderlayRecord {
    let offer = |o: &CheckedOffer| UnderlayOffer {
        id: o.id.clone(),
        node: o.node.clone(),
        cost: o.cost,
        expires_unix_millis: o.expires,
        refused: o.refused.map(str::to_owned),
    };
    UnderlayRecord {
        service: result.service.to_string(),
        outcome: result.code.to_owned(),
        error: result.error.clone(),
        asked_nodes: result.eligible_nodes,
        took_micros: micros(result.took),
        offers: result.offers.iter().map(offer).collect(),
        left_out: result.left_out,
    }
}

/// The name of a mode, as in `--answer`.
pub(crate) fn mode_name(mode: AnswerMode) -> &'static str {
    match mode {
        AnswerMode::Ties => "ties",
        AnswerMode::Decisive => "decisive",
        AnswerMode::Shortlist(_) => "shortlist",
    }
}

fn answer_record(plan: &PodPlan) -> AnswerRecord {
    let name = |at: &usize| plan.nodes.name(*at).to_owned();
    AnswerRecord {
        mode: mode_name(plan.mode).to_owned(),
        nodes: plan.answer.nodes.iter().map(name).collect(),
        tied: plan.answer.tied,
    }
}

/// The sentence why no node is usable.
pub(super) fn why_pending(plan: &PodPlan) -> Option<String> {
    if plan.plan.usable().next().is_some() {
        return None;
    }
    let rules = plan.rules.iter().map(|r| PendingRule {
        rule: &r.rule.name,
        outcome: &r.outcome,
        error: r.error.as_deref(),
    });
    let rules: Vec<PendingRule<'_>> = rules.collect();
    pending::by_rules(plan.nodes.len(), |at| plan.nodes.name(at), &rules)
}

/// The records of a round's rules.
pub(crate) fn rule_records(round: &PlanningRound) -> Vec<RuleRecord> {
    let rules = round.rules.iter().map(|r| {
        let (outcome, counted, resolution, request_cost) = match &r.outcome {
            RuleOutcome::Costs(costs) => ("OK", true, costs.resolution.max(0), costs.request_cost),
            RuleOutcome::Unavailable { code, reject } => (*code, *reject, 0, None),
        };
        RuleRecord {
            offer: r.offer.to_string(),
            rule: r.rule.name.to_string(),
            request: r.rule.request.clone(),
            limit: r.rule.limit.clone(),
            weight: r.rule.weight,
            provider: r.provider.as_deref().map(str::to_owned),
            outcome: outcome.to_owned(),
            counted,
            error: r.error.clone(),
            took_micros: micros(r.took),
            age_micros: r.streamed.map(micros),
            resolution,
            prefer: r.rule.prefer.map(|prefer| prefer.name().to_owned()),
            request_cost,
        }
    });
    rules.collect()
}

/// The records of a round's nodes, the best first.
pub(crate) fn node_records(round: &PlanningRound) -> Vec<NodeRecord> {
    let mut order: Vec<usize> = (0..round.plan.verdicts.len()).collect();
    order.sort_by_key(|at| (round.plan.verdicts[*at].rank(), round.nodes.name(*at)));
    let nodes = order.into_iter().map(|at| {
        let verdict = &round.plan.verdicts[at];
        let cost = |r: &tautline_provider_client::RuleRecord| match &r.outcome {
            RuleOutcome::Unavailable { .. } => CostRecord::default(),
            RuleOutcome::Costs(costs) => {
                let note = costs.detail(at).unwrap_or_default();
                CostRecord {
                    cost: costs.get(at),
                    code: note.code.to_owned(),
                    detail: note.detail.to_owned(),
                    tie_break: note.tie_break,
                    freeable: note.freeable,
                }
            }
        };
        NodeRecord {
            node: round.nodes.name(at).to_owned(),
            usable: verdict.is_usable(),
            score: verdict.score(),
            reason: match verdict {
                NodeVerdict::Usable { .. } => None,
                NodeVerdict::Unusable { reason, .. } => Some(reason.to_string()),
            },
            costs: round.rules.iter().map(cost).collect(),
        }
    });
    nodes.collect()
}

/// The record of a round, with or without its nodes.
pub(super) fn record(plan: &PodPlan, with_nodes: bool) -> Record {
    Record {
        namespace: plan.subject.namespace.clone(),
        pod: plan.subject.name.clone(),
        uid: plan.subject.uid.clone(),
        at_unix_millis: unix_millis(plan.at),
        took_micros: micros(plan.took),
        usable: plan.plan.usable().count(),
        why_pending: why_pending(plan),
        rules: rule_records(plan),
        nodes: if with_nodes {
            node_records(plan)
        } else {
            Vec::new()
        },
        answer: answer_record(plan),
        underlay: plan.underlay.as_ref().map(underlay_record),
        pod_now: None,
    }
}
