//! The report `/latency/top?limit=N`: the worst pairs under active `latency` rules.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{
    error::ReportError,
    facts::{ReportSource, RuleOnPair},
    model::{Basis, EffectiveRtt, State},
    pair,
    query::Query,
};

const LATENCY: &str = "latency";
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

impl TopReport {
    pub(super) fn from_query(facts: &impl ReportSource, query: &str) -> Result<Self, ReportError> {
        let query = Query::parse(query, &["limit"])?;
        let Some(text) = query.get("limit") else {
            return Ok(Self::of(facts, DEFAULT_LIMIT));
        };
        match text.parse() {
            Ok(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(Self::of(facts, limit)),
            _ => {
                let what = format!("write a number from 1 to {MAX_LIMIT}");
                Err(ReportError::query("limit", what))
            }
        }
    }

    /// Returns the worst pairs, at most `limit`.
    pub(crate) fn of(facts: &impl ReportSource, limit: usize) -> Self {
        let mut demands = facts.active_rules();
        demands.retain(|d| d.rule == LATENCY);
        demands.sort_unstable_by(|a, b| a.to.cmp(&b.to));
        let mut pairs = Vec::with_capacity(demands.len());
        for to_one in demands.chunk_by(|a, b| a.to == b.to) {
            let Some(RuleOnPair { to, .. }) = to_one.first() else {
                continue;
            };
            facts.with_rtts_to(to, &mut |rtt_from| {
                let of = |demand: &RuleOnPair| TopPair::of(facts, demand, rtt_from(&demand.from));
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
    fn of(facts: &impl ReportSource, demand: &RuleOnPair, rtt: EffectiveRtt) -> Self {
        let directions = [
            facts.direction(&demand.from, &demand.to),
            facts.direction(&demand.to, &demand.from),
        ];
        let measured = directions.iter().filter(|d| d.state != State::Nothing);
        let share = |(figure, limit): (u64, u64)| (limit > 0).then(|| figure as f64 / limit as f64);
        Self {
            limit_share: rtt.rtt_micros.zip(demand.limit_micros).and_then(share),
            compliance: compliance(rtt, demand).to_owned(),
            apart: pair::apart(&directions),
            age_micros: measured.filter_map(|d| d.age_micros).min(),
            effective: rtt,
            from: demand.from.clone(),
            to: demand.to.clone(),
            rule: demand.rule.clone(),
            request_micros: demand.request_micros,
            limit_micros: demand.limit_micros,
        }
    }
}

/// Returns the compliance of a pair by its measured or configured figure. A measured figure takes
/// the level of the last evaluation.
fn compliance(rtt: EffectiveRtt, demand: &RuleOnPair) -> &'static str {
    let figure = match rtt.basis {
        Basis::Unreachable => return "Violation",
        Basis::Estimated | Basis::Old | Basis::Nothing => return "Error",
        Basis::Same | Basis::Measured | Basis::Configured => rtt.rtt_micros,
    };
    let Some(micros) = figure else {
        return "Error";
    };
    if let (Basis::Measured, Some(level)) = (rtt.basis, demand.level) {
        return level;
    }
    let within = |bound: Option<u64>| bound.is_none_or(|b| micros <= b);
    match (within(demand.request_micros), within(demand.limit_micros)) {
        (_, false) => "Violation",
        (true, true) => "Compliant",
        (false, true) => "Limit",
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
