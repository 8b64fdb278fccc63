//! The verification of estimates by probes before an answer, within its deadline. Concurrent
//! questions share probes.

use std::{sync::Arc, time::Instant};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared, join_all},
};
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

use super::{
    answer_metrics::AnswerMetrics,
    context::{MIN_TIME, measuring_deadline},
    cost_matrix::{Cell, CostMatrix},
    pair_rtt::PairRtt,
    probe_selection::{group_by_peer, initial_probes, next_probes},
};
use crate::{measurement::Measurement, network::Network};

const PROBE_SAMPLES: u32 = 3;
const MAX_PAIRS_OF_PEER: usize = 512;
/// The maximum number of rounds of probes: the best candidates change as estimates become
/// measurements.
const MAX_ROUNDS: usize = 3;

type ProbeResult = Arc<HashMap<String, Measurement>>;
type Probe = Shared<BoxFuture<'static, ProbeResult>>;

#[derive(Clone, Debug)]
pub(crate) struct Verifier {
    network: Arc<Network>,
    metrics: AnswerMetrics,
    in_flight: Arc<Mutex<HashMap<String, Vec<InFlightProbe>>>>,
}

#[derive(Debug)]
struct InFlightProbe {
    nodes: HashSet<String>,
    probe: WeakShared<BoxFuture<'static, ProbeResult>>,
}

impl Verifier {
    pub(crate) fn new(network: Arc<Network>, metrics: AnswerMetrics) -> Self {
        Self {
            network,
            metrics,
            in_flight: Arc::default(),
        }
    }

    pub(crate) async fn verify(
        &self,
        matrix: &mut CostMatrix,
        limit: Option<u64>,
        deadline: Option<Instant>,
    ) {
        let mut pairs = initial_probes(matrix, limit);
        if pairs.is_empty() || !self.network.is_measuring() {
            return;
        }
        let until = measuring_deadline(deadline, Instant::now());
        for _ in 0..MAX_ROUNDS {
            if pairs.is_empty() {
                return;
            }
            let now = Instant::now();
            let Some(until) = until.filter(|u| *u >= now + MIN_TIME) else {
                self.metrics.verification("out_of_time", pairs.len());
                return;
            };
            let peers = matrix.peers().len();
            let (lists, left_out) = group_by_peer(pairs, peers, MAX_PAIRS_OF_PEER);
            self.metrics.verification("left_out", left_out);
            self.round(matrix, &lists, until).await;
            pairs = next_probes(matrix, limit);
        }
    }

    async fn round(&self, matrix: &mut CostMatrix, lists: &[Vec<Cell>], until: Instant) {
        let probed = lists.iter().zip(matrix.peers());
        let probed = probed.filter(|(list, _)| !list.is_empty());
        let probes = probed.map(|(list, peer)| {
            let nodes: Vec<&str> = list.iter().map(|cell| matrix.node(*cell)).collect();
            let probe = self.probe(peer, &nodes, PROBE_SAMPLES, until);
            async move { (list, probe.await) }
        });
        for (list, found) in join_all(probes).await {
            let mut answered = 0;
            for cell in list {
                let rtt = found.get(matrix.node(*cell)).and_then(PairRtt::verified);
                if let Some(rtt) = rtt {
                    matrix.set(*cell, rtt);
                    answered += 1;
                }
            }
            self.metrics.verification("asked", list.len());
            self.metrics.verification("answered", answered);
        }
    }

    /// Probes the pairs of `peer` and `nodes`, the most urgent of which come first. Returns the
    /// results that arrive by `until`.
    pub(crate) fn probe(
        &self,
        peer: &str,
        nodes: &[&str],
        samples: u32,
        until: Instant,
    ) -> impl Future<Output = HashMap<String, Measurement>> + Send + use<> {
        let probes = self.join_or_start(peer, nodes, samples, until);
        let probes = probes.into_iter().map(move |probe| async move {
            tokio::time::timeout_at(until.into(), probe).await.ok()
        });
        let wanted: HashSet<String> = nodes.iter().map(|n| (*n).to_owned()).collect();
        let all = join_all(probes);
        async move {
            let mut found = HashMap::new();
            for one in all.await.into_iter().flatten() {
                let known = one.iter().filter(|(node, _)| wanted.contains(*node));
                found.extend(known.map(|(node, result)| (node.clone(), result.clone())));
            }
            found
        }
    }

    /// Returns the probes in flight that include some of `nodes`, and a new probe for the rest.
    fn join_or_start(
        &self,
        peer: &str,
        nodes: &[&str],
        samples: u32,
        until: Instant,
    ) -> Vec<Probe> {
        let mut in_flight = self.in_flight.lock();
        in_flight.retain(|_, of_peer| {
            of_peer.retain(|f| f.probe.upgrade().is_some_and(|p| p.peek().is_none()));
            !of_peer.is_empty()
        });
        let mut rest: Vec<String> = nodes.iter().map(|n| (*n).to_owned()).collect();
        let mut probes = Vec::new();
        for flight in in_flight.get(peer).into_iter().flatten() {
            let before = rest.len();
            rest.retain(|node| !flight.nodes.contains(node));
            if rest.len() < before {
                probes.extend(flight.probe.upgrade());
            }
        }
        if rest.is_empty() {
            return probes;
        }
        let (network, to) = (Arc::clone(&self.network), peer.to_owned());
        let nodes: HashSet<String> = rest.iter().cloned().collect();
        let within = until.saturating_duration_since(Instant::now());
        let probe = async move {
            let nodes: Vec<&str> = rest.iter().map(String::as_str).collect();
            let found = network.probe(&to, &nodes, samples, within).await;
            Arc::new(found.into_iter().collect())
        };
        let probe: Probe = probe.boxed().shared();
        if let Some(weak) = probe.downgrade() {
            let flight = InFlightProbe { nodes, probe: weak };
            in_flight.entry_ref(peer).or_default().push(flight);
        }
        probes.push(probe);
        probes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::{
        measurement::RttStats,
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
        let verifier = Verifier::new(network, metrics.clone());
        verifier.verify(&mut matrix, None, None).await;
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
        let network = network_of(&[]);
        network.set_estimate("p", "n0", 1.0);
        let mut matrix = CostMatrix::new(vec!["n0".into()], vec!["p".into()], [guess(10)]);
        let metrics = AnswerMetrics::default();
        let verifier = Verifier::new(network, metrics.clone());
        let now = Instant::now();
        verifier.verify(&mut matrix, None, Some(now)).await;
        assert_eq!(metrics.verifications("out_of_time"), 1);
        assert_eq!(metrics.verifications("asked"), 0);
        let answer = matrix.into_answer(None);
        assert!(answer.nodes()[0].detail.ends_with(", not verified"));
    }

    #[tokio::test]
    async fn concurrent_questions_share_probes() {
        let verifier = Verifier::new(network_of(&[]), AnswerMetrics::default());
        let until = Instant::now() + Duration::from_secs(5);
        let start = |nodes: &[&str]| verifier.join_or_start("p", nodes, 3, until);
        let first = start(&["a", "b"]);
        assert_eq!(first.len(), 1);
        let same = start(&["b"]);
        assert_eq!(same.len(), 1);
        assert!(same[0].ptr_eq(&first[0]));
        let both = start(&["b", "c"]);
        assert!(both[0].ptr_eq(&first[0]) && !both[1].ptr_eq(&first[0]));
        assert!(!verifier.join_or_start("q", &["b"], 3, until)[0].ptr_eq(&first[0]));
        let old = first[0].clone();
        for probe in first.into_iter().chain(same).chain(both) {
            probe.await;
        }
        assert!(!start(&["a"])[0].ptr_eq(&old));
        drop(old);
        assert_eq!(start(&["a", "b", "c"]).len(), 1);
    }
}
