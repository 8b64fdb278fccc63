//! The matrix of a round's nodes and rules.

use serde::Serialize;
use tautline_core::planning::{MAX_NORMALIZED_COST, RuleScale};
use tautline_scheduler_extender::explain::{CostRecord, NodeRecord, Record};

use super::pod_state::Excluded;
use crate::draw::{self, clean};

/// The highest level of a scaled cost; the lowest is 0.
pub(super) const MAX_COST_LEVEL: u64 = 10;
/// The limit for a provider's text, enough for two names of nodes and two figures.
const MAX_DETAIL_CHARS: usize = 100;
const MAX_REASON_CHARS: usize = 90;

/// The decision on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Verdict {
    /// The pod is on the node.
    Chosen,
    /// The extender's filter returned the node to kube-scheduler.
    Offered,
    Usable,
    /// A rule excludes the node.
    Refused,
    /// Kubernetes' own rules exclude the node.
    KeptOut,
    /// The node was not in the request, and the reason is not known.
    NotAsked,
}

#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub node: String,
    pub verdict: Verdict,
    /// The rank of the node, from 1. Nodes that tie share a rank.
    pub rank: Option<usize>,
    /// The score of the node, from 0 to 10.
    pub score: Option<u8>,
    /// The reason why the node is not usable: `rule/Code`, or kube-scheduler's words.
    pub reason: Option<String>,
    /// The cells of the shown rules; empty for a node that was not in the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<Cell>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Cell {
    pub state: CellState,
    /// The cost as the provider gave it.
    pub cost: Option<i64>,
    /// The provider's text, or its code.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum CellState {
    /// The scaled cost: 0 is the best, 10 the worst.
    Scaled(u64),
    /// The rule excludes the node.
    Refused,
    /// The provider's answer lacks the node.
    NoCost,
    /// The provider gave no answer.
    NoAnswer,
}

/// The record of a round, with its plan and the present state of the cluster.
pub(super) struct Decision<'a> {
    pub record: &'a Record,
    pub scales: &'a [Option<RuleScale>],
    pub ranks: &'a [Option<usize>],
    pub excluded: &'a [Excluded],
    /// The pod's node.
    pub node: Option<&'a str>,
}

impl Decision<'_> {
    /// Returns the row of the record's node at the position `at`, with cells for the rules
    /// `columns`.
    pub fn row(&self, at: usize, columns: &[usize]) -> Row {
        let node = &self.record.nodes[at];
        Row {
            node: node.node.clone(),
            verdict: self.verdict(node),
            rank: self.ranks.get(at).copied().flatten(),
            score: node.usable.then_some(node.score),
            reason: node.reason.clone(),
            cells: columns.iter().map(|rule| self.cell(at, *rule)).collect(),
        }
    }

    pub fn verdict(&self, node: &NodeRecord) -> Verdict {
        if self.node == Some(&*node.node) {
            Verdict::Chosen
        } else if self.record.answer.nodes.contains(&node.node) {
            Verdict::Offered
        } else if node.usable {
            Verdict::Usable
        } else {
            Verdict::Refused
        }
    }

    pub fn cell(&self, at: usize, rule: usize) -> Cell {
        let missing = CostRecord::default();
        let line = self.record.nodes[at].costs.get(rule).unwrap_or(&missing);
        let text = if line.detail.is_empty() {
            &line.code
        } else {
            &line.detail
        };
        let rule_record = self.record.rules.get(rule);
        let is_within = rule_record.is_some_and(|r| r.is_within_request(line));
        let mut text = clean(text, MAX_DETAIL_CHARS);
        if is_within {
            text.push_str(if text.is_empty() { "" } else { ", " });
            text.push_str("within the request");
        }
        Cell {
            state: self.cell_state(at, rule),
            cost: line.cost,
            text,
        }
    }

    fn cell_state(&self, at: usize, rule: usize) -> CellState {
        let rule_record = self.record.rules.get(rule);
        let answered = rule_record.is_some_and(|r| r.outcome == "OK");
        let line = self.record.nodes[at].costs.get(rule);
        let scale = self.scales.get(rule).and_then(Option::as_ref);
        match (answered, line.and_then(|line| line.cost)) {
            (false, _) => CellState::NoAnswer,
            (true, None) => CellState::NoCost,
            (true, Some(cost)) if cost < 0 => CellState::Refused,
            (true, Some(_)) => {
                let scaled = scale.and_then(|s| s.scaled.get(at).copied().flatten());
                CellState::Scaled(level(scaled.unwrap_or(0)))
            }
        }
    }
}

impl Row {
    /// Returns the row of a node that was not in the request.
    pub fn excluded(excluded: &Excluded) -> Self {
        let reason = excluded.reason.as_deref();
        Self {
            node: excluded.node.clone(),
            verdict: match reason {
                Some(_) => Verdict::KeptOut,
                None => Verdict::NotAsked,
            },
            rank: None,
            score: None,
            reason: reason.map(|r| clean(r, MAX_REASON_CHARS)),
            cells: Vec::new(),
        }
    }
}

fn level(scaled: u64) -> u64 {
    let (scaled, max) = (u128::from(scaled), u128::from(MAX_NORMALIZED_COST));
    let level = (scaled * u128::from(MAX_COST_LEVEL) + max / 2) / max;
    u64::try_from(level)
        .unwrap_or(MAX_COST_LEVEL)
        .min(MAX_COST_LEVEL)
}

/// Returns the unit of a rule's costs, if it is known.
pub(super) fn unit(rule: &str) -> Option<&'static str> {
    match rule {
        "latency" | "jitter" => Some("µs"),
        "bandwidth" => Some("kbit/s short"),
        _ => None,
    }
}

/// Formats a cost with its unit.
pub(super) fn cost_text(rule: &str, cost: i64) -> String {
    match unit(rule) {
        Some("µs") => draw::micros(u64::try_from(cost).unwrap_or(0)),
        Some(unit) => format!("{cost} {unit}"),
        None => format!("cost {cost}"),
    }
}
