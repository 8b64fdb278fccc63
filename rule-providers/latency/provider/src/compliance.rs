//! Evaluate of `latency` and `jitter`: real, fresh measurements only, or what a
//! table says. No figure is an Error, never Compliant.

use std::{collections::BTreeSet, time::Instant};

use futures::future::join_all;
use tautline_core::Snapshot;
use tautline_sdk::{Compliance, Evaluation, EvaluationRequest, ProviderError, Reference, Rule};

use crate::{
    Latency,
    figures::{micros, show},
    jitter,
    judge::{Bounds, Level},
    memory::{Case, Quantity},
    places::{is_pod, node_of, place},
    reading::{Figure, Reading},
    verify::time_to_measure,
};

/// Nodes of one binding, at the most: every pair of them is judged.
const MOST_NODES: usize = 32;
/// Of a pair without a figure: what a median takes.
const SAMPLES: u32 = 5;

/// What is said of one pair. The order is that of severity.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    Level(Level, u64, &'static str),
    /// Violation, and no figure can be worse.
    Unreachable,
    Error(String),
}

/// A pair of a binding's nodes.
struct Between<'a> {
    a: &'a str,
    b: &'a str,
    /// By a table, in microseconds.
    configured: Option<u64>,
    /// By a table that counts for the binding's namespace only.
    own: bool,
    reading: Reading,
}

/// The bounds of a rule whose values are durations.
pub(crate) fn bounds(rule: &Rule) -> Result<Bounds, ProviderError> {
    Ok(Bounds {
        request: rule.request_duration()?.map(micros),
        limit: rule.limit_duration()?.map(micros),
    })
}

fn node_of_target(
    snapshot: &Snapshot,
    ask: &EvaluationRequest,
    name: &str,
    target: &Reference,
) -> Option<String> {
    match ask.target_nodes.get(name) {
        Some(told) if is_pod(target) => told.clone(),
        _ => node_of(snapshot, target),
    }
}

/// The namespace of all targets; "" if they are of several.
fn namespace_of_all(ask: &EvaluationRequest) -> &str {
    let mut namespaces = ask.targets.values().map(|t| t.namespace.as_str());
    let first = namespaces.next().unwrap_or_default();
    match namespaces.all(|n| n == first) {
        true => first,
        false => "",
    }
}

impl Latency {
    /// The nodes of the targets, each once; `Err` says why there is nothing to judge.
    pub(crate) fn nodes_of(&self, ask: &EvaluationRequest) -> Result<Vec<String>, Evaluation> {
        let snapshot = self.feed.snapshot();
        let targets = ask.targets.iter();
        let nodes = targets.map(|(name, target)| node_of_target(&snapshot, ask, name, target));
        let Some(mut nodes) = nodes.collect::<Option<Vec<String>>>() else {
            let reason = "not every target is placed";
            return Err(Evaluation::new(Compliance::Pending, reason));
        };
        nodes.sort_unstable();
        nodes.dedup();
        match nodes.len() {
            0 | 1 => Err(Evaluation::compliant("all on the same node")),
            n if n > MOST_NODES => {
                let reason = format!("{n} nodes in one binding; at most {MOST_NODES} are judged");
                Err(Evaluation::new(Compliance::Error, reason))
            }
            _ => Ok(nodes),
        }
    }

    /// The nodes of the targets that are pods.
    fn nodes_of_pods(&self, ask: &EvaluationRequest) -> BTreeSet<String> {
        let snapshot = self.feed.snapshot();
        let pods = ask.targets.iter().filter(|(_, target)| is_pod(target));
        pods.filter_map(|(name, target)| node_of_target(&snapshot, ask, name, target))
            .collect()
    }

    pub(crate) async fn judge(
        &self,
        ask: EvaluationRequest,
        quantity: Quantity,
    ) -> Result<Evaluation, ProviderError> {
        let bounds = bounds(&ask.rule)?;
        let nodes = match self.nodes_of(&ask) {
            Ok(nodes) => nodes,
            Err(evaluation) => return Ok(evaluation),
        };
        let mut pairs = self.pairs(&nodes, ask.namespace(), quantity);
        let now = Instant::now();
        let case = |a, b| Case {
            a,
            b,
            quantity,
            bounds,
        };
        // Tables of a tenant, and names that a tenant has given to objects other than
        // pods, must leave no trace in what is kept for all.
        let asker = self.asker(namespace_of_all(&ask));
        let of_pods = self.nodes_of_pods(&ask);
        let counts = |node: &str| asker.trusted || of_pods.contains(node);
        for pair in pairs
            .iter()
            .filter(|p| !p.own && counts(p.a) && counts(p.b))
        {
            let keep = self.memory.asked(case(pair.a, pair.b), now);
            if pair.configured.is_none() {
                self.network.demand(asker, pair.a, pair.b, keep);
            }
        }
        // A few echoes are no jitter.
        if quantity == Quantity::Latency
            && let Some(until) = time_to_measure(ask.deadline, now)
        {
            self.measure(&mut pairs, until).await;
        }
        let said = pairs.iter().map(|pair| {
            let case = case(pair.a, pair.b);
            (self.say(pair, case), pair)
        });
        let said: Vec<_> = said.collect();
        let rule = match quantity {
            Quantity::Latency => "latency",
            Quantity::Jitter => "jitter",
        };
        let bases = said.iter().map(|(s, _)| match s {
            Said::Level(_, _, basis) => *basis,
            Said::Unreachable => "measured",
            Said::Error(_) => "nothing",
        });
        self.counts.answered(rule, bases);
        let Some((worst, pair)) = said.into_iter().max_by(|x, y| x.0.cmp(&y.0)) else {
            return Ok(Evaluation::compliant("all on the same node"));
        };
        let (a, b) = (pair.a, pair.b);
        Ok(match worst {
            Said::Level(level, micros, basis) => {
                let mut reason = format!("{} between {a} and {b}, {basis}", show(micros));
                if matches!(&pair.reading, Reading::Fresh(f) if f.connect) {
                    reason += " by TCP connect";
                }
                if level == Level::Limit
                    && bounds.level(micros) > level
                    && let Reading::Fresh(figure) = &pair.reading
                {
                    reason += match windows(figure).len() {
                        1 => ", one window so far",
                        2 => ", two windows so far",
                        _ => "",
                    };
                }
                if matches!(&pair.reading, Reading::Fresh(f) if f.apart) {
                    reason += ", the directions differ by over 20 %";
                }
                Evaluation::new(level.into(), reason)
            }
            Said::Unreachable => {
                Evaluation::violation(format!("no way between {a} and {b}: echoes are lost"))
            }
            Said::Error(why) => {
                Evaluation::new(Compliance::Error, format!("between {a} and {b}: {why}"))
            }
        })
    }

    fn pairs<'a>(
        &self,
        nodes: &'a [String],
        namespace: Option<&str>,
        quantity: Quantity,
    ) -> Vec<Between<'a>> {
        let (snapshot, tables) = (self.feed.snapshot(), self.tables.load());
        let tables = tables.for_namespace(namespace);
        let mut pairs = Vec::new();
        for (i, a) in nodes.iter().enumerate() {
            for b in &nodes[i + 1..] {
                let (towards, from) = (tables.towards(place(&snapshot, b)), place(&snapshot, a));
                let row = towards.from(from).map(|row| row.value);
                let configured = row.filter(|_| quantity == Quantity::Latency);
                let own = configured.is_some() && towards.own_from(from).is_some();
                let reading = match configured {
                    Some(_) => Reading::Nothing,
                    None => self.network.reading(a, b),
                };
                pairs.push(Between {
                    a,
                    b,
                    configured,
                    own,
                    reading,
                });
            }
        }
        pairs
    }

    /// Has pairs without a fresh figure, or with losses that may be over, measured now.
    async fn measure(&self, pairs: &mut [Between<'_>], until: Instant) {
        if !self.network.is_measuring() {
            return;
        }
        let lacks = |p: &Between<'_>| {
            let open = match p.reading {
                Reading::Old(_) | Reading::Nothing => true,
                Reading::Unreachable { seldom, .. } => seldom,
                Reading::Fresh(_) => false,
            };
            p.configured.is_none() && open
        };
        // The pairs of a node stand together.
        let probes = pairs.chunk_by_mut(|x, y| x.a == y.a).map(|of_a| {
            let peer = of_a.first().map_or("", |p| p.a);
            let nodes: Vec<&str> = of_a.iter().filter(|p| lacks(p)).map(|p| p.b).collect();
            let probe =
                (!nodes.is_empty()).then(|| self.verifier.probe(peer, &nodes, SAMPLES, until));
            async move {
                let Some(probe) = probe else { return };
                let mut found = probe.await;
                for pair in of_a {
                    if let Some(reading) = found.remove(pair.b) {
                        pair.reading = reading;
                    }
                }
            }
        });
        join_all(probes).await;
    }

    fn say(&self, pair: &Between<'_>, case: Case<'_>) -> Said {
        if let Some(micros) = pair.configured {
            return Said::Level(case.bounds.level(micros), micros, "configured");
        }
        let figure = match &pair.reading {
            Reading::Fresh(figure) => figure,
            Reading::Unreachable { .. } => {
                self.memory.start_anew(case);
                return Said::Unreachable;
            }
            Reading::Old(_) => return Said::Error("the last measurement is too old".to_owned()),
            Reading::Nothing => {
                let why = "not measured; do both nodes run an agent (tautline agent latency)?";
                return Said::Error(why.to_owned());
            }
        };
        let windows = match case.quantity {
            Quantity::Latency => windows(figure),
            Quantity::Jitter => match jitter::of(figure) {
                // It rests on 60 samples: that is steady enough.
                Ok(micros) => vec![micros; 3],
                Err(few) => return Said::Error(few.to_string()),
            },
        };
        match self.memory.judged(case, &windows) {
            Some((level, micros)) => Said::Level(level, micros, "measured"),
            None => Said::Error("not measured".to_owned()),
        }
    }
}

fn windows(figure: &Figure) -> Vec<u64> {
    match figure.windows.as_slice() {
        [] => vec![micros(figure.median)],
        windows => windows.iter().map(|w| micros(*w)).collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
