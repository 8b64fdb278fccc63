//! The rule `jitter`: how far a pair's round trips are apart, as p95 - p50 of its
//! last samples. Measured only: half of a pair's samples do not predict the other
//! half well (they correlate 0.5 to 0.66), so nothing predicts another pair.

use std::{collections::HashSet, fmt::Write, time::Duration};

use tautline_sdk::{CostAnswer, CostRequest, ProviderError};

use crate::{
    Latency,
    compliance::bounds,
    costs::{VALID_FOR, check_size},
    demand::ROOM,
    figures::{micros, push_micros},
    network::{PeerRow, Spot},
    places::is_pod,
    reading::{Figure, Reading},
};

/// Below that a p95 is the worst sample.
const SAMPLES: u32 = 20;

/// So many of a peer's candidates that look nearest are measured for the next
/// question: a node visits no more pairs every 2 s.
const ASKED_FOR: usize = ROOM;
/// For so long after a question: twice what the samples take at a visit every 2 s.
const KEEP: Duration = Duration::from_secs(80);

/// Too few samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("jitter needs {SAMPLES} samples, there are {0}")]
pub(crate) struct TooFew(u32);

/// p95 - p50 in whole microseconds, at least 1.
pub(crate) fn of(figure: &Figure) -> Result<u64, TooFew> {
    match figure.samples {
        SAMPLES.. => Ok(micros(figure.p95.saturating_sub(figure.p50))),
        few => Err(TooFew(few)),
    }
}

/// What the pairs of one node come to.
enum Outcome<'a> {
    Known {
        micros: u64,
        peer: &'a str,
        connect: bool,
    },
    Unreachable {
        peer: &'a str,
    },
    NoData {
        few: TooFew,
        peer: &'a str,
    },
}

fn outcome<'a>(node: &str, spot: Spot, ways: &'a [(String, PeerRow)]) -> Outcome<'a> {
    let mut worst = Outcome::Known {
        micros: 0,
        peer: "",
        connect: false,
    };
    for (peer, row) in ways.iter().filter(|(peer, _)| peer != node) {
        let jitter = match &*row.reading_at(node, spot) {
            Reading::Fresh(figure) => of(figure).map(|micros| (micros, figure.connect)),
            Reading::Unreachable { .. } => return Outcome::Unreachable { peer },
            Reading::Old(_) | Reading::Nothing => Err(TooFew(0)),
        };
        worst = match (worst, jitter) {
            (Outcome::Known { .. }, Err(few)) => Outcome::NoData { few, peer },
            (Outcome::Known { micros, .. }, Ok((jitter, connect))) if jitter >= micros => {
                Outcome::Known {
                    micros: jitter,
                    peer,
                    connect,
                }
            }
            (worst, _) => worst,
        };
    }
    worst
}

/// The candidates that look nearest to a peer among those that lack samples.
fn lacking<'a>(
    (peer, row): &(String, PeerRow),
    nodes: impl Iterator<Item = (&'a str, Spot)>,
) -> Vec<&'a str> {
    let looks = nodes
        .filter(|(node, _)| node != peer)
        .filter_map(|(node, spot)| {
            let old = match &*row.reading_at(node, spot) {
                Reading::Fresh(figure) if of(figure).is_ok() => return None,
                Reading::Unreachable { .. } => return None,
                Reading::Fresh(figure) | Reading::Old(figure) => Some(micros(figure.median)),
                Reading::Nothing => None,
            };
            // Casts of floats saturate.
            let estimate = || Some(row.estimate_at(node, spot)?.micros.round() as u64);
            Some((old.or_else(estimate).unwrap_or(u64::MAX), node))
        });
    let mut looks: Vec<(u64, &str)> = looks.collect();
    if looks.len() > ASKED_FOR {
        looks.select_nth_unstable(ASKED_FOR);
        looks.truncate(ASKED_FOR);
    }
    looks.into_iter().map(|(_, node)| node).collect()
}

/// Whether pairs with a peer's node are measured for the question: not for a
/// namespace that is not trusted if only peers other than pods, whose names are
/// their authors' choice, are there.
fn peers_that_count(ask: &CostRequest, trusted: bool) -> impl Fn(&str) -> bool + use<> {
    let pods = ask.peers.iter().filter(|p| is_pod(&p.reference));
    let of_pods: HashSet<String> = pods.filter_map(|p| p.node.clone()).collect();
    // Callers that name nodes alone do not say what is there.
    let all = trusted || ask.peers.is_empty();
    move |node| all || of_pods.contains(node)
}

impl Latency {
    pub(crate) fn cost_of_jitter(&self, ask: CostRequest) -> Result<CostAnswer, ProviderError> {
        let limit = bounds(&ask.rule)?.limit;
        check_size(&ask)?;
        let asker = self.asker(&ask.source.namespace);
        let counts = peers_that_count(&ask, asker.trusted);
        let CostRequest {
            peer_nodes,
            eligible_nodes,
            ..
        } = ask;
        let view = self.network.view();
        let ways: Vec<(String, PeerRow)> = peer_nodes
            .into_iter()
            .map(|peer| {
                let row = view.row(&peer);
                (peer, row)
            })
            .collect();
        let outcomes: Vec<Outcome<'_>> = eligible_nodes
            .iter()
            .map(|n| outcome(n, view.spot(n), &ways))
            .collect();
        for way in ways.iter().filter(|(peer, _)| counts(peer)) {
            let nodes = eligible_nodes.iter().map(|n| (n.as_str(), view.spot(n)));
            for node in lacking(way, nodes) {
                self.network.demand(asker, &way.0, node, KEEP);
            }
        }
        // Nobody can be placed then; say what would help.
        let none =
            !outcomes.is_empty() && outcomes.iter().all(|o| matches!(o, Outcome::NoData { .. }));
        let bases = outcomes.iter().map(|o| match o {
            Outcome::NoData { .. } => "nothing",
            Outcome::Known { peer: "", .. } => "same-node",
            _ => "measured",
        });
        self.counts.answered("jitter", bases);
        let nodes = eligible_nodes.len();
        let mut answer = CostAnswer::with_capacity(nodes).valid_for(VALID_FOR);
        let mut detail = String::new();
        for (node, outcome) in eligible_nodes.iter().zip(&outcomes) {
            detail.clear();
            match *outcome {
                Outcome::Known { peer: "", .. } => {
                    answer.usable(
                        node,
                        0,
                        if ways.is_empty() {
                            "no peer is placed yet"
                        } else {
                            "the same node"
                        },
                    );
                }
                Outcome::Known {
                    micros,
                    peer,
                    connect,
                } => {
                    push_micros(&mut detail, micros);
                    detail.extend([" of jitter to ", peer]);
                    if connect {
                        detail.push_str(", by TCP connect");
                    }
                    match limit {
                        Some(limit) if micros > limit => {
                            detail.push_str(" > ");
                            push_micros(&mut detail, limit);
                            answer.unusable(node, "OverLimit", &detail, false);
                        }
                        _ => {
                            answer.usable(node, i64::try_from(micros).unwrap_or(i64::MAX), &detail)
                        }
                    }
                }
                Outcome::Unreachable { peer } => {
                    detail.extend(["no way to ", peer]);
                    answer.unusable(node, "Unreachable", &detail, false);
                }
                Outcome::NoData { few, peer } => {
                    _ = write!(detail, "to {peer}: {few}");
                    if none {
                        detail += "; no candidate has them yet, they come with time";
                    }
                    let code = if none { "NothingMeasured" } else { "NoData" };
                    answer.unusable(node, code, &detail, false);
                }
            }
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tautline_core::{index::Object, model};
    use tautline_runtime::cluster_store::ClusterStore;
    use tautline_sdk::Rule;

    use super::*;
    use crate::network::{Network, Settings};

    fn figure(samples: u32, p50: u64, p95: u64) -> Reading {
        Reading::Fresh(Figure {
            p50: Duration::from_micros(p50),
            p95: Duration::from_micros(p95),
            samples,
            ..Figure::of(Duration::from_micros(p50))
        })
    }

    fn costs(network: &Network, peers: &[&str], nodes: &[&str]) -> Vec<(i64, String, String)> {
        let ask = CostRequest {
            rule: Rule {
                name: "jitter".into(),
                request: "1ms".into(),
                limit: "3ms".into(),
            },
            peer_nodes: peers.iter().map(|p| (*p).to_owned()).collect(),
            eligible_nodes: nodes.iter().map(|p| (*p).to_owned()).collect(),
            ..CostRequest::default()
        };
        let provider = Latency::new(ClusterStore::default()).measuring(network.clone());
        let answer = provider.cost_of_jitter(ask).unwrap();
        let said = |n: tautline_sdk::NodeCost<'_>| (n.cost, n.code.into(), n.detail.into());
        answer.nodes().into_iter().map(said).collect()
    }

    #[test]
    fn the_worst_peer_decides() {
        let network = Network::default();
        network.set_reading("p", "a", figure(60, 1_000, 1_200));
        network.set_reading("q", "a", figure(20, 1_000, 2_500));
        network.set_reading("p", "b", figure(60, 1_000, 4_001));
        network.set_reading("q", "b", figure(60, 1_000, 1_001));
        network.set_reading("p", "q", figure(19, 1_000, 1_001));
        let since = Duration::from_secs(3);
        network.set_reading(
            "q",
            "c",
            Reading::Unreachable {
                since,
                seldom: false,
            },
        );
        let said = |cost, code: &str, detail: &str| (cost, code.to_owned(), detail.to_owned());
        assert_eq!(
            costs(&network, &["p", "q"], &["a", "b", "c", "p"]),
            [
                said(1_500, "", "1.5ms of jitter to q"),
                said(-1, "OverLimit", "3.001ms of jitter to p > 3ms"),
                said(-1, "Unreachable", "no way to q"),
                said(-1, "NoData", "to q: jitter needs 20 samples, there are 19"),
            ]
        );
        assert_eq!(
            costs(&network, &["p"], &["p"]),
            [said(0, "", "the same node")]
        );
        assert_eq!(
            costs(&network, &[], &["a"]),
            [said(0, "", "no peer is placed yet")]
        );
        let none = "to p: jitter needs 20 samples, there are 0; no candidate has them yet, they come with time";
        assert_eq!(
            costs(&network, &["p"], &["x", "y"]),
            [
                said(-1, "NothingMeasured", none),
                said(-1, "NothingMeasured", none)
            ]
        );
    }

    #[test]
    fn the_nearest_candidates_that_lack_samples_are_measured_from_then_on() {
        let feed = ClusterStore::default();
        let names: Vec<String> = (0..30).map(|i| format!("n{i:02}")).collect();
        for name in names.iter().map(String::as_str).chain(["p"]) {
            feed.apply(Object::Node(model::Node {
                name: name.into(),
                ..model::Node::default()
            }));
        }
        let network = Network::new(feed, Settings::default());
        // n00 has its samples, n01 cannot be reached; of the others the even ones
        // are known, the larger the nearer.
        network.set_reading("p", "n00", figure(60, 1_000, 1_200));
        let (since, seldom) = (Duration::from_secs(3), false);
        network.set_reading("p", "n01", Reading::Unreachable { since, seldom });
        for i in (2..30).step_by(2) {
            network.set_reading("p", &names[i], figure(5, 9_000 - i as u64, 9_000));
        }
        let nodes: Vec<&str> = names.iter().map(String::as_str).chain(["p"]).collect();
        costs(&network, &["p"], &nodes);
        let demand = network.0.demand.lock();
        let mut asked: Vec<&str> = demand.pairs(0).map(|(node, _)| node).collect();
        asked.sort_unstable();
        let expected: Vec<&str> = (10..30).step_by(2).map(|i| names[i].as_str()).collect();
        assert_eq!(asked, expected);
    }

    proptest! {
        #[test]
        fn at_least_one_microsecond_and_only_with_samples(samples in 0u32..80, p50 in 0u64..9_000, p95 in 0u64..9_000) {
            let Reading::Fresh(figure) = figure(samples, p50, p95) else { unreachable!() };
            match of(&figure) {
                Ok(micros) => prop_assert_eq!((samples >= 20, micros), (true, p95.saturating_sub(p50).max(1))),
                Err(few) => prop_assert_eq!((samples < 20, few), (true, TooFew(samples))),
            }
        }
    }
}
