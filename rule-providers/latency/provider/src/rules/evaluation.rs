//! The evaluation of `latency` and `jitter` by fresh measurements or a table, never by an estimate.
//! A pair without data is an Error.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tautline_sdk::{Compliance, Evaluation, EvaluationRequest, ProviderError};

use super::{
    context::{RuleContext, measuring_deadline},
    hysteresis::Bounds,
    pair_state::{PairRule, PairStates, Quantity},
};
use crate::{
    format::micros,
    location::{each_two, location},
    measurement::{Measurement, RttStats},
    network::Network,
};

/// The number of samples of a probe: as many as a median takes.
const PROBE_SAMPLES: u32 = 5;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PairEvaluation {
    Level(Compliance, u64, &'static str),
    /// The pair is unreachable, which is a Violation and worse than any time.
    Unreachable,
    Error(String),
}

struct BindingPair<'a> {
    a: &'a str,
    b: &'a str,
    /// The time from a table, in microseconds.
    configured: Option<u64>,
    /// True if the time is from the namespace's own table.
    own_table: bool,
    measurement: Measurement,
}

/// Returns the namespace of all targets, or "" if they are in several.
fn namespace_of_all(request: &EvaluationRequest) -> &str {
    let mut namespaces = request.targets.values().map(|t| t.namespace.as_str());
    let first = namespaces.next().unwrap_or_default();
    if namespaces.all(|n| n == first) {
        first
    } else {
        ""
    }
}

pub(crate) async fn evaluate(
    context: RuleContext<'_>,
    states: &PairStates,
    request: EvaluationRequest,
    quantity: Quantity,
) -> Result<Evaluation, ProviderError> {
    let bounds = Bounds::of_rule(&request.rule)?;
    let nodes = match context.nodes_of_targets(&request) {
        Ok(nodes) => nodes,
        Err(evaluation) => return Ok(evaluation),
    };
    let mut pairs = pairs(context, &nodes, request.namespace(), quantity);
    let now = Instant::now();
    let rule = |a, b| PairRule {
        a,
        b,
        quantity,
        bounds,
    };
    // A tenant's tables, and names that a tenant gives to objects other than pods, must not
    // affect the state that all namespaces share.
    let requester = context.requester(namespace_of_all(&request));
    let of_pods = context.nodes_of_pods(&request);
    let counts = |node: &str| requester.trusted || of_pods.contains(node);
    for pair in pairs
        .iter()
        .filter(|p| !p.own_table && counts(p.a) && counts(p.b))
    {
        let keep = states.evaluated(rule(pair.a, pair.b), now);
        if pair.configured.is_none() {
            context.network.demand(requester, pair.a, pair.b, keep);
        }
    }
    // The few echoes of a probe are not enough for jitter.
    if quantity == Quantity::Latency
        && let Some(until) = measuring_deadline(request.deadline, now)
    {
        probe(context.network, &mut pairs, until - now).await;
    }
    let evaluated = pairs
        .iter()
        .map(|pair| (evaluate_pair(states, pair, rule(pair.a, pair.b)), pair));
    let evaluated: Vec<_> = evaluated.collect();
    let bases = evaluated.iter().map(|(e, _)| match e {
        PairEvaluation::Level(_, _, basis) => *basis,
        PairEvaluation::Unreachable => "measured",
        PairEvaluation::Error(_) => "nothing",
    });
    context.metrics.answered(quantity.rule(), bases);
    let Some((worst, pair)) = evaluated.into_iter().max_by(|x, y| x.0.cmp(&y.0)) else {
        return Ok(Evaluation::compliant("all on the same node"));
    };
    let (a, b) = (pair.a, pair.b);
    Ok(match worst {
        PairEvaluation::Level(level, micros, basis) => {
            let mut reason = format!("{} between {a} and {b}, {basis}", bounds.compare(micros));
            if matches!(&pair.measurement, Measurement::Fresh(s) if s.connect) {
                reason += " by TCP connect";
            }
            if level == Compliance::Limit
                && bounds.level(micros) > level
                && let Measurement::Fresh(stats) = &pair.measurement
            {
                reason += match windows(stats).len() {
                    1 => ", one window so far",
                    2 => ", two windows so far",
                    _ => "",
                };
            }
            if bounds.level(micros) < level {
                reason += ", not yet better by a tenth";
            }
            if matches!(&pair.measurement, Measurement::Fresh(s) if s.asymmetric) {
                reason += ", the directions differ by over 20 %";
            }
            Evaluation::new(level, reason)
        }
        PairEvaluation::Unreachable => {
            Evaluation::violation(format!("no way between {a} and {b}: echoes are lost"))
        }
        PairEvaluation::Error(why) => {
            Evaluation::new(Compliance::Error, format!("between {a} and {b}: {why}"))
        }
    })
}

fn pairs<'a>(
    context: RuleContext<'_>,
    nodes: &'a [String],
    namespace: Option<&str>,
    quantity: Quantity,
) -> Vec<BindingPair<'a>> {
    let (snapshot, tables) = (context.network.store.snapshot(), context.tables.load());
    let tables = tables.for_namespace(namespace);
    let pair = |(a, b): (&'a String, &'a String)| {
        let (to, from) = (location(&snapshot, b), location(&snapshot, a));
        let rows = tables.rows_to(to);
        let row = rows.from(from).map(|row| row.value);
        let configured = row.filter(|_| quantity == Quantity::Latency);
        let own_table = configured.is_some() && rows.own_from(from).is_some();
        let measurement = match configured {
            Some(_) => Measurement::Missing,
            None => context.network.measurement(a, b),
        };
        BindingPair {
            a,
            b,
            configured,
            own_table,
            measurement,
        }
    };
    each_two(nodes).map(pair).collect()
}

async fn probe(network: &Network, pairs: &mut [BindingPair<'_>], within: Duration) {
    let needs_probe = |p: &BindingPair<'_>| {
        let open = match p.measurement {
            Measurement::Stale(_) | Measurement::Missing => true,
            Measurement::Unreachable { rarely_probed, .. } => rarely_probed,
            Measurement::Fresh(_) => false,
        };
        p.configured.is_none() && open
    };
    // The pairs of a node are adjacent.
    let probes = pairs.chunk_by_mut(|x, y| x.a == y.a).map(async |of_a| {
        let peer = of_a.first().map_or("", |p| p.a);
        let nodes: Vec<&str> = of_a
            .iter()
            .filter(|p| needs_probe(p))
            .map(|p| p.b)
            .collect();
        let mut found = network.probe(peer, &nodes, PROBE_SAMPLES, within).await;
        for pair in of_a {
            if let Some(measurement) = found.remove(pair.b) {
                pair.measurement = measurement;
            }
        }
    });
    join_all(probes).await;
}

fn evaluate_pair(
    states: &PairStates,
    pair: &BindingPair<'_>,
    rule: PairRule<'_>,
) -> PairEvaluation {
    if let Some(micros) = pair.configured {
        return PairEvaluation::Level(rule.bounds.level(micros), micros, "configured");
    }
    let stats = match &pair.measurement {
        Measurement::Fresh(stats) => stats,
        Measurement::Unreachable { .. } => {
            states.reset(rule);
            return PairEvaluation::Unreachable;
        }
        Measurement::Stale(_) => {
            return PairEvaluation::Error("the last measurement is too old".to_owned());
        }
        Measurement::Missing => {
            let why = "not measured; do both nodes run an agent (tautline agent latency)?";
            return PairEvaluation::Error(why.to_owned());
        }
    };
    let windows = match rule.quantity {
        Quantity::Latency => windows(stats),
        Quantity::Jitter => match stats.jitter_micros() {
            // A figure of up to 60 samples needs no separate windows.
            Ok(micros) => vec![micros; 3],
            Err(few) => return PairEvaluation::Error(few.to_string()),
        },
    };
    match states.update(rule, &windows) {
        Some((level, micros)) => PairEvaluation::Level(level, micros, "measured"),
        None => PairEvaluation::Error("not measured".to_owned()),
    }
}

fn windows(stats: &RttStats) -> Vec<u64> {
    stats.windows.iter().copied().map(micros).collect()
}

#[cfg(test)]
pub(crate) mod tests;
