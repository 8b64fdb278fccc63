//! The verification of estimates by probes before an answer, within its deadline.

use std::time::{Duration, Instant};

use futures::future::join_all;

use super::{
    answer_metrics::AnswerMetrics,
    context::{MIN_TIME, measuring_deadline},
    cost_matrix::{Cell, CostMatrix},
    pair_rtt::PairRtt,
    probe_selection::{group_by_peer, initial_probes, next_probes},
};
use crate::network::Network;

const PROBE_SAMPLES: u32 = 3;
const MAX_PAIRS_OF_PEER: usize = 512;
/// The maximum number of rounds of probes: the best candidates change as estimates become
/// measurements.
const MAX_ROUNDS: usize = 3;

/// Measures pairs of the matrix until none is selected, and puts their times in place of estimates.
pub(crate) async fn verify(
    network: &Network,
    metrics: &AnswerMetrics,
    matrix: &mut CostMatrix,
    limit: Option<u64>,
    deadline: Option<Instant>,
) {
    let mut pairs = initial_probes(matrix, limit);
    if pairs.is_empty() || !network.has_agents() {
        return;
    }
    let until = measuring_deadline(deadline, Instant::now());
    for _ in 0..MAX_ROUNDS {
        if pairs.is_empty() {
            return;
        }
        let now = Instant::now();
        let Some(until) = until.filter(|u| *u >= now + MIN_TIME) else {
            metrics.verification("out_of_time", pairs.len());
            return;
        };
        let peers = matrix.peers().len();
        let (lists, left_out) = group_by_peer(pairs, peers, MAX_PAIRS_OF_PEER);
        metrics.verification("left_out", left_out);
        round(network, metrics, matrix, &lists, until - now).await;
        pairs = next_probes(matrix, limit);
    }
}

async fn round(
    network: &Network,
    metrics: &AnswerMetrics,
    matrix: &mut CostMatrix,
    lists: &[Vec<Cell>],
    within: Duration,
) {
    let probed = lists.iter().zip(matrix.peers());
    let probed = probed.filter(|(list, _)| !list.is_empty());
    let probes = probed.map(async |(list, peer)| {
        let nodes: Vec<&str> = list.iter().map(|cell| matrix.node(*cell)).collect();
        let found = network.probe(peer, &nodes, PROBE_SAMPLES, within).await;
        let rtt = |cell: Cell| PairRtt::verified(found.get(matrix.node(cell))?);
        let rtts = list.iter().filter_map(|cell| Some((*cell, rtt(*cell)?)));
        (list.len(), rtts.collect::<Vec<_>>())
    });
    for (asked, rtts) in join_all(probes).await {
        metrics.verification("asked", asked);
        metrics.verification("answered", rtts.len());
        for (cell, rtt) in rtts {
            matrix.set(cell, rtt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::{
        measurement::{Measurement, RttStats},
        network::tests::{AnsweringAgent, network_of},
        rules::pair_rtt::Basis,
    };

    fn guess(micros: u64) -> PairRtt {
        let basis = Basis::Estimated { low: 0, high: 0 };
        PairRtt::Rtt { micros, basis }
    }

    #[tokio::test]
    async fn rounds_continue_until_the_best_is_verified() {
        let names: Vec<String> = (0..40).map(|i| format!("n{i}")).collect();
        let nodes: Vec<&str> = names.iter().map(String::as_str).chain(["p"]).collect();
        let network = network_of(&nodes);
        let peer = AnsweringAgent::connect(&network, "p");
        for (i, name) in names.iter().enumerate() {
            let micros = if i < 16 { 900 } else { 10 * (i + 1) };
            let stats = RttStats::of(Duration::from_micros(micros as u64));
            peer.finds(name, Measurement::Fresh(stats));
            network.set_nic(name, 1);
        }
        let rtts = (0..40).map(|i| guess(10 * (i + 1)));
        let mut matrix = CostMatrix::new(names.clone(), vec!["p".to_owned()], rtts);
        let metrics = AnswerMetrics::default();
        verify(&network, &metrics, &mut matrix, None, None).await;
        let best = matrix
            .rows()
            .enumerate()
            .min_by_key(|(_, row)| match row[0] {
                PairRtt::Rtt { micros, .. } => micros,
                _ => u64::MAX,
            });
        let (micros, basis) = (170, Basis::Verified);
        assert_eq!(best, Some((16, &[PairRtt::Rtt { micros, basis }][..])));
        assert_eq!(metrics.verifications("asked"), 32);
        assert_eq!(metrics.verifications("answered"), 32);
    }

    #[tokio::test]
    async fn without_time_no_probe_is_sent() {
        let network = network_of(&["p"]);
        let _p = AnsweringAgent::connect(&network, "p");
        let mut matrix = CostMatrix::new(vec!["n0".into()], vec!["p".into()], [guess(10)]);
        let metrics = AnswerMetrics::default();
        let now = Some(Instant::now());
        verify(&network, &metrics, &mut matrix, None, now).await;
        assert_eq!(metrics.verifications("out_of_time"), 1);
        assert_eq!(metrics.verifications("asked"), 0);
        let answer = matrix.into_answer(None);
        assert!(answer.nodes()[0].detail.ends_with(", not verified"));
    }
}
