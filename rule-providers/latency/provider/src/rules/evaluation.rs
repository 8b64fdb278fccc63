//! The evaluation of `latency` and `jitter` by fresh measurements or a table, never by an estimate.
//! A pair without data is an Error.

use std::time::{Duration, Instant};

use futures::future::join_all;
use hashbrown::HashMap;
use tautline_sdk::{Compliance, Evaluation, EvaluationRequest, ProviderError};

use super::{
    context::{RuleContext, measuring_deadline},
    hysteresis::Bounds,
    pair_state::{PairRule, PairStates, Quantity},
};
use crate::{
    format::micros,
    location::{location, location_of_place, row_name},
    measurement::{Measurement, RttStats},
    network::{
        Network,
        demanded_pairs::Requester,
        outside::{NoFigure, host_and_port},
    },
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
    /// The reason why an address outside the cluster has no figure.
    no_figure: Option<NoFigure>,
}

impl BindingPair<'_> {
    /// Returns whether agents do not measure the pair's address outside the cluster.
    fn is_refused(&self) -> bool {
        !matches!(self.no_figure, None | Some(NoFigure::NotYet))
    }
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
    let places = match context.pairs_of_targets(&request) {
        Ok(places) => places,
        Err(evaluation) => return Ok(evaluation),
    };
    let requester = context.requester(namespace_of_all(&request));
    let mut pairs = pairs(context, &places, &request, quantity, requester);
    let now = Instant::now();
    let rule = |a, b| PairRule {
        a,
        b,
        quantity,
        bounds,
    };
    // A tenant's tables, and names that a tenant gives to objects other than pods, must not
    // affect the state that all namespaces share.
    let of_pods = context.nodes_of_pods(&request);
    let counts = |place: &str| {
        requester.trusted || of_pods.contains(place) || host_and_port(place).is_some()
    };
    for pair in pairs
        .iter()
        .filter(|p| !p.own_table && !p.is_refused() && counts(p.a) && counts(p.b))
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
            let is_outside = [a, b].iter().any(|place| host_and_port(place).is_some());
            let what = if is_outside {
                "TCP connects fail"
            } else {
                "echoes are lost"
            };
            Evaluation::violation(format!("no way between {a} and {b}: {what}"))
        }
        PairEvaluation::Error(why) => {
            Evaluation::new(Compliance::Error, format!("between {a} and {b}: {why}"))
        }
    })
}

fn pairs<'a>(
    context: RuleContext<'_>,
    places: &'a [(String, String)],
    request: &EvaluationRequest,
    quantity: Quantity,
    requester: Requester<'_>,
) -> Vec<BindingPair<'a>> {
    let (snapshot, tables) = (context.network.store.snapshot(), context.tables.load());
    let tables = tables.for_namespace(request.namespace());
    let row_names: HashMap<&str, &str> = row_names(request).collect();
    let locate = |place| {
        let name = row_names.get(String::as_str(place)).copied();
        location_of_place(location(&snapshot, place), name)
    };
    let no_figure = |place: &String| context.network.want_outside(requester, place);
    let pair = |(a, b): &'a (String, String)| {
        let (to, from) = (locate(b), locate(a));
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
            no_figure: no_figure(a).or_else(|| no_figure(b)),
        }
    };
    places.iter().map(pair).collect()
}

/// Returns the places of Services and of pods of other clusters, each with the name by which tables
/// know it.
fn row_names(request: &EvaluationRequest) -> impl Iterator<Item = (&str, &str)> {
    let name_of = move |target: &String| row_name(request.targets.get(target)?);
    let services = request.target_places.iter();
    let services = services.filter_map(move |(target, places)| Some((name_of(target)?, places)));
    let pods = request.target_nodes.iter();
    let pods = pods.filter_map(move |(target, place)| Some((place.as_deref()?, name_of(target)?)));
    services
        .flat_map(|(name, places)| places.iter().map(move |place| (place.as_str(), name)))
        .chain(pods)
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
            let no_agent = "do both nodes run an agent (tautline agent latency)?".to_owned();
            let why = pair.no_figure.map_or(no_agent, |reason| reason.to_string());
            return PairEvaluation::Error(format!("not measured; {why}"));
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
