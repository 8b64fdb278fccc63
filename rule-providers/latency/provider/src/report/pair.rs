//! The report `/latency/pair?from=A&to=B`: the data about a pair of nodes.

use serde::{Deserialize, Serialize};

use super::{
    facts::ReportSource,
    model::{Direction, EffectiveRtt, End, Estimated, State},
    query::{ReportError, fields},
};
use crate::rules::pair_state::ActivePair;

/// The report about a pair of nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PairReport {
    /// The first node of the request.
    pub from: End,
    /// The second node of the request.
    pub to: End,
    /// The time that rules use, unless a table of their own namespace has the pair.
    #[serde(rename = "told")]
    pub effective: EffectiveRtt,
    /// The direction as requested, then the reverse one; empty for a node and itself.
    pub directions: Vec<Direction>,
    /// The time of both directions combined, in microseconds: the larger median of the fresh ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combined_micros: Option<u64>,
    /// The larger p50 over the smaller, less 1; `None` unless both directions are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<f64>,
    /// The estimate of the last fit, for measured pairs too; `None` if the fit lacks a node, or
    /// both are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimated>,
    /// The time in the table that applies to all namespaces, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured_micros: Option<u64>,
    /// The active rules that name the pair, which is then visited every two seconds.
    pub named_by: Vec<ActiveRule>,
}

/// A rule that is evaluated for the pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRule {
    /// The name of the rule, `latency` or `jitter`.
    pub rule: String,
    /// The request of the rule in microseconds, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_micros: Option<u64>,
    /// The limit of the rule in microseconds, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_micros: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PairQuery {
    from: String,
    to: String,
}

impl PairReport {
    pub(super) fn from_query(facts: &impl ReportSource, query: &str) -> Result<Self, ReportError> {
        let PairQuery { from, to } = fields(query)?;
        Self::of(facts, &from, &to)
    }

    pub(crate) fn of(facts: &impl ReportSource, from: &str, to: &str) -> Result<Self, ReportError> {
        let end = |name: &str| {
            facts.end(name).ok_or_else(|| {
                let places = facts.nodes();
                ReportError::unknown("node", name, places.iter().map(|p| p.node.as_str()))
            })
        };
        let (a, b) = (end(from)?, end(to)?);
        let directions = if from == to {
            Vec::new()
        } else {
            vec![facts.direction(from, to), facts.direction(to, from)]
        };
        let active = facts.active_rules().into_iter();
        Ok(Self {
            from: a,
            to: b,
            effective: facts.effective_rtt(from, to),
            combined_micros: facts.combined_micros(from, to),
            apart: apart(&directions),
            estimate: facts.estimate(from, to),
            configured_micros: facts.configured_micros(from, to),
            named_by: active
                .filter(|pair| names_pair(pair, from, to))
                .map(ActiveRule::from)
                .collect(),
            directions,
        })
    }
}

fn names_pair(active: &ActivePair, from: &str, to: &str) -> bool {
    let names = (active.a.as_str(), active.b.as_str());
    names == (from, to) || names == (to, from)
}

pub(super) fn apart(directions: &[Direction]) -> Option<f64> {
    let [one, other] = directions else {
        return None;
    };
    if one.state != State::Measured || other.state != State::Measured {
        return None;
    }
    let (one, other) = (one.p50_micros?, other.p50_micros?);
    let (low, high) = (one.min(other), one.max(other));
    (low > 0).then(|| high as f64 / low as f64 - 1.0)
}

impl From<ActivePair> for ActiveRule {
    fn from(active: ActivePair) -> Self {
        Self {
            rule: active.quantity.rule().to_owned(),
            request_micros: active.bounds.request,
            limit_micros: active.bounds.limit,
        }
    }
}
