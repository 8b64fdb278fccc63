//! The cost of `jitter`: the largest p95 - p50 of a pair's last samples. Jitter is never predicted:
//! one half of a pair's samples hardly predicts the other half (correlation 0.5 to 0.66).

use std::{collections::HashSet, fmt::Write, time::Duration};

use tautline_sdk::{CostAnswer, CostRequest, ProviderError};

use super::{
    context::{RuleContext, check_size, request_cost},
    hysteresis::Bounds,
};
use crate::{
    format::{micros, push_micros},
    location::is_pod,
    measurement::{Measurement, TooFewSamples},
    network::{
        demanded_pairs::NODE_SLOTS,
        view::{NodeRef, PeerRow},
    },
};

/// The maximum number of a peer's nearest candidates that are measured for the next question: a
/// node visits no more pairs every 2 s.
const MAX_DEMANDED_NODES: usize = NODE_SLOTS;
/// The time for which these pairs are measured: twice the time that 20 samples take at a visit
/// every 2 s.
const DEMAND_TIME: Duration = Duration::from_secs(80);

enum CandidateJitter<'a> {
    Jitter {
        micros: u64,
        peer: &'a str,
        connect: bool,
    },
    Unreachable {
        peer: &'a str,
    },
    NoData {
        few: TooFewSamples,
        peer: &'a str,
    },
}

fn candidate<'a>(name: &str, node: NodeRef, peers: &'a [(String, PeerRow)]) -> CandidateJitter<'a> {
    let mut worst = CandidateJitter::Jitter {
        micros: 0,
        peer: "",
        connect: false,
    };
    for (peer, row) in peers.iter().filter(|(peer, _)| peer != name) {
        let jitter = match row.measurement_of(node) {
            Measurement::Fresh(stats) => {
                stats.jitter_micros().map(|micros| (micros, stats.connect))
            }
            Measurement::Unreachable { .. } => return CandidateJitter::Unreachable { peer },
            Measurement::Stale(_) | Measurement::Missing => Err(TooFewSamples(0)),
        };
        worst = match (worst, jitter) {
            (CandidateJitter::Jitter { .. }, Err(few)) => CandidateJitter::NoData { few, peer },
            (CandidateJitter::Jitter { micros, .. }, Ok((jitter, connect))) if jitter >= micros => {
                CandidateJitter::Jitter {
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

/// Returns the nodes nearest to a peer, by measurement or estimate, among those that lack samples.
fn nearest_without_samples<'a>(
    (peer, row): &(String, PeerRow),
    nodes: impl Iterator<Item = (&'a str, NodeRef)>,
) -> Vec<&'a str> {
    let distances = nodes
        .filter(|(name, _)| name != peer)
        .filter_map(|(name, node)| {
            let old = match row.measurement_of(node) {
                Measurement::Fresh(stats) if stats.jitter_micros().is_ok() => return None,
                Measurement::Unreachable { .. } => return None,
                Measurement::Fresh(stats) | Measurement::Stale(stats) => Some(micros(stats.median)),
                Measurement::Missing => None,
            };
            // Casts of floats saturate.
            let estimate = || Some(row.estimate_of(node)?.micros.round() as u64);
            Some((old.or_else(estimate).unwrap_or(u64::MAX), name))
        });
    let mut distances: Vec<(u64, &str)> = distances.collect();
    if distances.len() > MAX_DEMANDED_NODES {
        distances.select_nth_unstable(MAX_DEMANDED_NODES);
        distances.truncate(MAX_DEMANDED_NODES);
    }
    distances.into_iter().map(|(_, name)| name).collect()
}

/// Returns a predicate that is true for the peers' nodes whose pairs may be measured for the
/// question. For an untrusted namespace the peer must be a pod, as authors choose the names of
/// other peers.
fn may_demand(request: &CostRequest, trusted: bool) -> impl Fn(&str) -> bool + use<> {
    let pods = request.peers.iter().filter(|p| is_pod(&p.reference));
    let of_pods: HashSet<String> = pods.filter_map(|p| p.node.clone()).collect();
    // Some callers send only the nodes.
    let all = trusted || request.peers.is_empty();
    move |node| all || of_pods.contains(node)
}

pub(crate) fn cost(
    context: RuleContext<'_>,
    request: CostRequest,
) -> Result<CostAnswer, ProviderError> {
    let Bounds {
        request: wanted,
        limit,
    } = Bounds::of_rule(&request.rule)?;
    check_size(&request)?;
    let requester = context.requester(&request.source.namespace);
    let may_demand = may_demand(&request, requester.trusted);
    let CostRequest {
        peer_nodes,
        eligible_nodes,
        ..
    } = request;
    for peer in &peer_nodes {
        context.network.want_outside(requester, peer);
    }
    let names = context.network.names();
    let peers: Vec<(String, PeerRow)> = peer_nodes
        .into_iter()
        .map(|peer| {
            let row = names.row(context.network, &peer);
            (peer, row)
        })
        .collect();
    let candidates: Vec<CandidateJitter<'_>> = eligible_nodes
        .iter()
        .map(|n| candidate(n, names.find(n), &peers))
        .collect();
    for peer in peers.iter().filter(|(peer, _)| may_demand(peer)) {
        let nodes = eligible_nodes.iter().map(|n| (n.as_str(), names.find(n)));
        for node in nearest_without_samples(peer, nodes) {
            context
                .network
                .demand(requester, &peer.0, node, DEMAND_TIME);
        }
    }
    let no_samples = !candidates.is_empty()
        && candidates
            .iter()
            .all(|c| matches!(c, CandidateJitter::NoData { .. }));
    let bases = candidates.iter().map(|c| match c {
        CandidateJitter::NoData { .. } => "nothing",
        CandidateJitter::Jitter { peer: "", .. } => "same-node",
        _ => "measured",
    });
    context.metrics.answered("jitter", bases);
    let nodes = eligible_nodes.len();
    let mut answer = CostAnswer::with_capacity(nodes);
    answer.request_cost = request_cost(wanted);
    let mut detail = String::new();
    for (node, candidate) in eligible_nodes.iter().zip(&candidates) {
        detail.clear();
        match *candidate {
            CandidateJitter::Jitter { peer: "", .. } => {
                answer.usable(
                    node,
                    0,
                    if peers.is_empty() {
                        "no peer is placed yet"
                    } else {
                        "the same node"
                    },
                );
            }
            CandidateJitter::Jitter {
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
                    _ => answer.usable(node, i64::try_from(micros).unwrap_or(i64::MAX), &detail),
                }
            }
            CandidateJitter::Unreachable { peer } => {
                detail.extend(["no way to ", peer]);
                answer.unusable(node, "Unreachable", &detail, false);
            }
            CandidateJitter::NoData { few, peer } => {
                _ = write!(detail, "to {peer}: {few}");
                if no_samples {
                    detail += "; no candidate has them yet, they come with time";
                }
                let code = if no_samples {
                    "NothingMeasured"
                } else {
                    "NoData"
                };
                answer.unusable(node, code, &detail, false);
            }
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;

    use tautline_sdk::Rule;

    use super::*;
    use crate::{Latency, Network, measurement::RttStats, network::tests::network_of};

    fn stats(samples: u32, p50: u64, p95: u64) -> Measurement {
        Measurement::Fresh(RttStats {
            p50: Duration::from_micros(p50),
            p95: Duration::from_micros(p95),
            samples,
            ..RttStats::of(Duration::from_micros(p50))
        })
    }

    fn costs(network: &Arc<Network>, peers: &[&str], nodes: &[&str]) -> Vec<(i64, String, String)> {
        let request = CostRequest {
            rule: Rule {
                name: "jitter".into(),
                request: "1ms".into(),
                limit: "3ms".into(),
            },
            peer_nodes: peers.iter().map(|p| (*p).to_owned()).collect(),
            eligible_nodes: nodes.iter().map(|p| (*p).to_owned()).collect(),
            ..CostRequest::default()
        };
        let provider = Latency::with_network(Arc::clone(network));
        let answer = cost(provider.context(), request).unwrap();
        let row = |n: tautline_sdk::NodeCost<'_>| (n.cost, n.code.into(), n.detail.into());
        answer.nodes().into_iter().map(row).collect()
    }

    #[test]
    fn the_worst_peer_decides() {
        let network = network_of(&[]);
        network.set("p", "a", stats(60, 1_000, 1_200));
        network.set("q", "a", stats(20, 1_000, 2_500));
        network.set("p", "b", stats(60, 1_000, 4_001));
        network.set("q", "b", stats(60, 1_000, 1_001));
        network.set("p", "q", stats(19, 1_000, 1_001));
        let since = Duration::from_secs(3);
        network.set(
            "q",
            "c",
            Measurement::Unreachable {
                since,
                rarely_probed: false,
            },
        );
        let row = |cost, code: &str, detail: &str| (cost, code.to_owned(), detail.to_owned());
        assert_eq!(
            costs(&network, &["p", "q"], &["a", "b", "c", "p"]),
            [
                row(1_500, "", "1.5ms of jitter to q"),
                row(-1, "OverLimit", "3.001ms of jitter to p > 3ms"),
                row(-1, "Unreachable", "no way to q"),
                row(-1, "NoData", "to q: jitter needs 20 samples, there are 19"),
            ]
        );
        assert_eq!(
            costs(&network, &["p"], &["p"]),
            [row(0, "", "the same node")]
        );
        assert_eq!(
            costs(&network, &[], &["a"]),
            [row(0, "", "no peer is placed yet")]
        );
        let none = "to p: jitter needs 20 samples, there are 0; no candidate has them yet, they come with time";
        assert_eq!(
            costs(&network, &["p"], &["x", "y"]),
            [
                row(-1, "NothingMeasured", none),
                row(-1, "NothingMeasured", none)
            ]
        );
    }

    #[test]
    fn nearest_candidates_without_samples_are_demanded() {
        let names: Vec<String> = (0..30).map(|i| format!("n{i:02}")).collect();
        let nodes: Vec<&str> = names.iter().map(String::as_str).chain(["p"]).collect();
        let network = network_of(&nodes);
        // n00 has enough samples, n01 is unreachable; the even ones of the others have some,
        // the larger the nearer.
        network.set("p", "n00", stats(60, 1_000, 1_200));
        let (since, rarely_probed) = (Duration::from_secs(3), false);
        network.set(
            "p",
            "n01",
            Measurement::Unreachable {
                since,
                rarely_probed,
            },
        );
        for i in (2..30).step_by(2) {
            network.set("p", &names[i], stats(5, 9_000 - i as u64, 9_000));
        }
        costs(&network, &["p"], &nodes);
        let demand = network.demand.lock();
        let mut demanded: Vec<&str> = demand.pairs(0).map(|(node, _)| node).collect();
        demanded.sort_unstable();
        let expected: Vec<&str> = (10..30).step_by(2).map(|i| names[i].as_str()).collect();
        assert_eq!(demanded, expected);
    }
}
