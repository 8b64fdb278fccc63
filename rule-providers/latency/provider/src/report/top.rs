//! The report `/latency/top?limit=N`: the worst pairs under active `latency` rules.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use tautline_sdk::Compliance;

use super::{
    facts::ReportSource,
    model::{Basis, EffectiveRtt, State},
    pair,
    query::{ReportError, fields},
};
use crate::rules::pair_state::{ActivePair, Quantity};

const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 1000;

/// The worst pairs under active `latency` rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopReport {
    /// The pairs, worst first: unreachable ones, then by share of the limit.
    pub pairs: Vec<TopPair>,
    /// The number of pairs under active rules, including those that are not in `pairs`.
    pub named: usize,
}

/// A pair of nodes under a rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopPair {
    /// The node whose name is first in alphabetical order.
    pub from: String,
    /// The other node.
    pub to: String,
    /// The name of the rule, always `latency`.
    pub rule: String,
    /// The request of the rule in microseconds, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_micros: Option<u64>,
    /// The limit of the rule in microseconds, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_micros: Option<u64>,
    /// The time that rules use, unless a table of their own namespace has the pair.
    #[serde(flatten)]
    pub effective: EffectiveRtt,
    /// The time divided by the limit; `None` without a time or without a limit above 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_share: Option<f64>,
    /// The level of the last evaluation, or else the level of the figure: `Compliant`, `Limit`,
    /// `Violation`, or `Error` without a measured or configured figure.
    pub compliance: String,
    /// The larger p50 over the smaller, less 1; `None` unless both directions are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<f64>,
    /// The time since the last sample of either direction, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_micros: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TopQuery {
    limit: String,
}

impl TopReport {
    pub(super) fn from_query(facts: &impl ReportSource, query: &str) -> Result<Self, ReportError> {
        let TopQuery { limit } = fields(query)?;
        match limit.parse() {
            _ if limit.is_empty() => Ok(Self::of(facts, DEFAULT_LIMIT)),
            Ok(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(Self::of(facts, limit)),
            _ => {
                let what = format!("write a number from 1 to {MAX_LIMIT}");
                Err(ReportError::field("limit", &what))
            }
        }
    }

    /// Returns the worst pairs, at most `limit`.
    pub(crate) fn of(facts: &impl ReportSource, limit: usize) -> Self {
        let mut active = facts.active_rules();
        active.retain(|pair| pair.quantity == Quantity::Latency);
        active.sort_unstable_by(|x, y| x.b.cmp(&y.b));
        let mut pairs = Vec::with_capacity(active.len());
        for to_one in active.chunk_by(|x, y| x.b == y.b) {
            facts.with_rtts_to(&to_one[0].b, &mut |rtt_from| {
                let of = |pair: &ActivePair| TopPair::of(facts, pair, rtt_from(&pair.a));
                pairs.extend(to_one.iter().map(of));
            });
        }
        let named = pairs.len();
        pairs.sort_by(worst_first);
        pairs.truncate(limit);
        Self { pairs, named }
    }
}

impl TopPair {
    fn of(facts: &impl ReportSource, active: &ActivePair, rtt: EffectiveRtt) -> Self {
        let ActivePair { a, b, bounds, .. } = active;
        let directions = [facts.direction(a, b), facts.direction(b, a)];
        let measured = directions.iter().filter(|d| d.state != State::Nothing);
        let share = |(figure, limit): (u64, u64)| (limit > 0).then(|| figure as f64 / limit as f64);
        Self {
            limit_share: rtt.rtt_micros.zip(bounds.limit).and_then(share),
            compliance: compliance(rtt, active).name().to_owned(),
            apart: pair::apart(&directions),
            age_micros: measured.filter_map(|d| d.age_micros).min(),
            effective: rtt,
            from: a.clone(),
            to: b.clone(),
            rule: active.quantity.rule().to_owned(),
            request_micros: bounds.request,
            limit_micros: bounds.limit,
        }
    }
}

/// Returns the compliance of a pair by its measured or configured figure. A measured figure takes
/// the level of the last evaluation.
fn compliance(rtt: EffectiveRtt, active: &ActivePair) -> Compliance {
    match (rtt.basis, rtt.rtt_micros) {
        (Basis::Unreachable, _) => Compliance::Violation,
        (Basis::Measured, Some(micros)) => active.level.unwrap_or(active.bounds.level(micros)),
        (Basis::Same | Basis::Configured, Some(micros)) => active.bounds.level(micros),
        _ => Compliance::Error,
    }
}

/// Compares two pairs. Unreachable pairs come first, then pairs by share of the limit, then pairs
/// without a limit, by figure, then pairs without data.
fn worst_first(a: &TopPair, b: &TopPair) -> Ordering {
    let class = |p: &TopPair| match (p.effective.basis, p.limit_share) {
        (Basis::Unreachable, _) => 0,
        (_, Some(_)) => 1,
        _ if p.effective.rtt_micros.is_some() => 2,
        _ => 3,
    };
    let share = |p: &TopPair| p.limit_share.unwrap_or(0.0);
    class(a)
        .cmp(&class(b))
        .then_with(|| share(b).total_cmp(&share(a)))
        .then_with(|| b.effective.rtt_micros.cmp(&a.effective.rtt_micros))
        .then_with(|| (&a.from, &a.to, &a.rule).cmp(&(&b.from, &b.to, &b.rule)))
        .then_with(|| (a.limit_micros, a.request_micros).cmp(&(b.limit_micros, b.request_micros)))
}
