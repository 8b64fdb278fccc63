//! Answers "Why not this node?" in one paragraph.

use serde::Serialize;
use tautline_core::planning::RuleScale;
use tautline_scheduler_extender::explain::{NodeRecord, Record, RuleRecord};

use super::matrix::{Decision, cost_text, unit};
use crate::draw::clean;

const MAX_DETAIL_CHARS: usize = 300;
const MAX_NAME_CHARS: usize = 260;

#[derive(Debug, Serialize)]
pub(super) struct WhyNot {
    pub node: String,
    pub text: String,
    /// True if the round or the cluster has the node.
    pub exists: bool,
}

impl WhyNot {
    pub fn new(decision: &Decision<'_>, node: &str) -> Self {
        let recorded = decision.record.nodes.iter().position(|n| n.node == node);
        let excluded = decision.excluded.iter().find(|e| e.node == node);
        let shown = clean(node, MAX_NAME_CHARS);
        let text = match (recorded, excluded) {
            (Some(at), _) => asked(decision, at),
            (None, Some(excluded)) => match &excluded.reason {
                Some(reason) => format!(
                    "Kubernetes itself excludes {shown}: {}. No rule was asked about it. This is by \
                     the objects of now; kube-scheduler may have seen others.",
                    clean(reason, MAX_DETAIL_CHARS)
                ),
                None => format!(
                    "{shown} was not in kube-scheduler's request, and no rule of Kubernetes that is \
                     checked here excludes it now. It may have been excluded then, may be newer than \
                     the round, or kube-scheduler looks at a part of the nodes only \
                     (percentageOfNodesToScore)."
                ),
            },
            (None, None) => {
                format!("There is no node {shown}, neither in the round nor in the cluster.")
            }
        };
        Self {
            node: node.to_owned(),
            text,
            exists: recorded.is_some() || excluded.is_some(),
        }
    }
}

fn asked(decision: &Decision<'_>, at: usize) -> String {
    let node = &decision.record.nodes[at];
    let text = if node.usable {
        usable(decision, at, node)
    } else {
        refused(decision.record, node)
    };
    if decision.node == Some(&*node.node) {
        return format!("The pod is on it. {text}");
    }
    text
}

/// Explains why a node is not usable: first by the rule of the recorded reason, then by other rules
/// that exclude the node, too.
fn refused(record: &Record, node: &NodeRecord) -> String {
    let reason = node.reason.as_deref().unwrap_or_default();
    let first = reason.rsplit_once('/').map_or(reason, |(rule, _)| rule);
    let rules = record.rules.iter().enumerate();
    let cause = |(i, rule): (usize, &RuleRecord)| Some((rule.rule != first, cause(rule, node, i)?));
    let mut causes: Vec<(bool, String)> = rules.filter_map(cause).collect();
    causes.sort_by_key(|(later, _)| *later);
    let causes: Vec<String> = causes.into_iter().take(4).map(|(_, cause)| cause).collect();
    match causes.join(" ").as_str() {
        "" => format!("{} is not usable: {reason}.", node.node),
        causes => format!("{} is not usable. {causes}", node.node),
    }
}

fn cause(rule: &RuleRecord, node: &NodeRecord, i: usize) -> Option<String> {
    let name = rule_name(rule);
    if rule.outcome != "OK" {
        let error = rule.error.as_deref().map(|e| format!(" ({e})"));
        let error = error.unwrap_or_default();
        return rule.counted.then(|| {
            format!(
                "{name} has no answer, {}{error}, so it admits no node.",
                rule.outcome
            )
        });
    }
    let line = node.costs.get(i);
    let cost = line.and_then(|l| l.cost);
    let Some((line, cost)) = line.zip(cost) else {
        return Some(format!(
            "{name}: the provider's answer lacks the node (NoCost)."
        ));
    };
    if cost >= 0 {
        return None;
    }
    let code = Some(&*line.code).filter(|code| !code.is_empty());
    let code = code.unwrap_or("Unusable");
    let detail = match line.detail.as_str() {
        "" => String::new(),
        detail => format!(": {detail}"),
    };
    let freeable = line
        .freeable
        .then_some(" Removing pods from it could make it usable.");
    let freeable = freeable.unwrap_or_default();
    Some(format!("{name} refuses it with {code}{detail}.{freeable}"))
}

/// Returns the name of a rule, with the request and the limit to which costs are compared.
fn rule_name(rule: &RuleRecord) -> String {
    let mut name = format!("Rule {} of offer {}", rule.rule, rule.offer);
    let bounds = [("request", &rule.request), ("limit", &rule.limit)];
    let values = bounds.iter().filter(|(_, value)| !value.is_empty());
    let values: Vec<String> = values
        .map(|(what, value)| format!("{what} {value}"))
        .collect();
    if !values.is_empty() {
        name += &format!(" ({})", values.join(", "));
    }
    name
}

fn usable(decision: &Decision<'_>, at: usize, node: &NodeRecord) -> String {
    let record = decision.record;
    let name = &node.node;
    let rank = |at: usize| decision.ranks.get(at).copied().flatten();
    let bests = || (0..record.nodes.len()).filter(|at| rank(*at) == Some(1));
    let (Some(own), Some(best)) = (rank(at), bests().next()) else {
        return format!("{name} is usable, with the score {} of 10.", node.score);
    };
    let offered = record.answer.nodes.contains(&node.node);
    if own == 1 {
        let tied = bests().count();
        let ties = match tied {
            1 => format!("{name} is the best node, alone."),
            _ => format!("{name} ties for best with {} other nodes.", tied - 1),
        };
        let answer = match (offered, record.answer.nodes.len()) {
            (true, 1) => " Only it was offered to kube-scheduler.".to_owned(),
            (true, n) => format!(
                " It was offered to kube-scheduler with {} others; the scheduler's own scores choose.",
                n - 1
            ),
            (false, 0) => String::new(),
            (false, _) => format!(
                " It was not offered: the answer ({}) had others that are equally good.",
                record.answer.mode
            ),
        };
        return ties + &answer;
    }
    let offered = offered.then_some(" It was offered to kube-scheduler all the same.");
    let offered = offered.unwrap_or_default();
    let winner = &record.nodes[best].node;
    let why = match deciding_rule(record, decision.scales, at, best) {
        Some(rule) => beaten(record, rule, (at, best), winner),
        None => {
            "Their weighed costs are equal; only tie-breaks of the providers differ.".to_owned()
        }
    };
    format!(
        "{name} is usable, at rank {own} of {} with the score {} of 10. {winner} is better: {why}{offered}",
        record.usable, node.score
    )
}

fn beaten(record: &Record, rule: usize, (at, best): (usize, usize), winner: &str) -> String {
    let cost = |at: usize| {
        let line = record.nodes[at].costs.get(rule);
        let (cost, detail) = line.map_or((0, ""), |l| (l.cost.unwrap_or(0), &*l.detail));
        match (unit(&record.rules[rule].rule), detail) {
            (Some(_), detail) if !detail.is_empty() => detail.to_owned(),
            (None, detail) if !detail.is_empty() => format!("cost {cost} ({detail})"),
            _ => cost_text(&record.rules[rule].rule, cost),
        }
    };
    format!(
        "{} weighs most. Here: {}; at {winner}: {}.",
        rule_name(&record.rules[rule]),
        cost(at),
        cost(best)
    )
}

/// Returns the rule whose weighted cost at the node exceeds the one at the best node by most.
fn deciding_rule(
    record: &Record,
    scales: &[Option<RuleScale>],
    at: usize,
    best: usize,
) -> Option<usize> {
    let weights = |offer: &str| -> u128 {
        let of_offer = record.rules.iter().zip(scales);
        let of_offer = of_offer.filter(|(r, s)| r.offer == offer && s.is_some());
        of_offer.map(|(r, _)| u128::from(r.weight)).sum()
    };
    let above = |(i, scale): (usize, &Option<RuleScale>)| {
        let scale = scale.as_ref().filter(|s| s.decides)?;
        let cost = |at: usize| scale.scaled.get(at).copied().flatten();
        let above = cost(at)?
            .checked_sub(cost(best)?)
            .filter(|above| *above > 0)?;
        let rule = record.rules.get(i)?;
        Some((
            u128::from(above) * u128::from(rule.weight) / weights(&rule.offer).max(1),
            i,
        ))
    };
    let all = scales.iter().enumerate().filter_map(above);
    all.max_by_key(|(above, i)| (*above, std::cmp::Reverse(*i)))
        .map(|(_, i)| i)
}
