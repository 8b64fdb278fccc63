//! Measures before answering, within what is left of the caller's time.
//! Questions about the same peer at the same time share their probes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared, join_all},
};
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

use crate::{
    board::{Board, Pair},
    counts::Counts,
    figures::Known,
    network::Network,
    reading::Reading,
    shortlist,
};

/// For callers that do not say how long they wait.
const PATIENCE: Duration = Duration::from_millis(500);
/// The scheduler waits: more than this is not for measuring.
const LONGEST: Duration = Duration::from_secs(2);
/// Less than this is no time for a round trip to the agent and its echoes.
const SHORTEST: Duration = Duration::from_millis(5);
const SAMPLES: u32 = 3;
/// Pairs that one question has measured for one peer.
const MOST_OF_A_PEER: usize = 512;
/// The best-looking nodes change as estimates turn into figures.
const ROUNDS: usize = 3;

type Found = Arc<HashMap<String, Reading>>;
type Probe = Shared<BoxFuture<'static, Found>>;

/// Asks for measurements. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Verifier {
    network: Network,
    counts: Counts,
    /// Probes under way, by peer.
    flights: Arc<Mutex<HashMap<String, Vec<Flight>>>>,
}

#[derive(Debug)]
struct Flight {
    nodes: HashSet<String>,
    probe: WeakShared<BoxFuture<'static, Found>>,
}

/// Until when there is time to measure: four fifths of the caller's time, the rest
/// is for the answer. `None` if that is too little.
pub(crate) fn time_to_measure(deadline: Option<Instant>, now: Instant) -> Option<Instant> {
    let left = deadline.map_or(PATIENCE, |d| d.saturating_duration_since(now));
    let until = left.min(LONGEST).mul_f64(0.8);
    (until >= SHORTEST).then_some(now + until)
}

impl Verifier {
    pub(crate) fn new(network: Network, counts: Counts) -> Self {
        Self {
            network,
            counts,
            flights: Arc::default(),
        }
    }

    /// Turns guesses of the board into facts, as far as they matter and time allows.
    pub(crate) async fn verify(
        &self,
        board: &mut Board,
        limit: Option<u64>,
        deadline: Option<Instant>,
    ) {
        let mut pairs = shortlist::first(board, limit);
        if pairs.is_empty() || !self.network.is_measuring() {
            return;
        }
        let until = time_to_measure(deadline, Instant::now());
        for _ in 0..ROUNDS {
            if pairs.is_empty() {
                return;
            }
            let now = Instant::now();
            let Some(until) = until.filter(|u| *u >= now + SHORTEST) else {
                self.counts.verification("out_of_time", pairs.len());
                return;
            };
            let peers = board.peers().len();
            let (lists, left_out) = shortlist::by_peer(pairs, peers, MOST_OF_A_PEER);
            self.counts.verification("left_out", left_out);
            self.round(board, &lists, until).await;
            pairs = shortlist::next(board, limit);
        }
    }

    /// One round: the peers at the same time.
    async fn round(&self, board: &mut Board, lists: &[Vec<Pair>], until: Instant) {
        let asked = lists.iter().zip(board.peers());
        let asked = asked.filter(|(list, _)| !list.is_empty());
        let probes = asked.map(|(list, peer)| {
            let nodes: Vec<&str> = list.iter().map(|p| board.node(*p)).collect();
            let probe = self.probe(peer, &nodes, SAMPLES, until);
            async move { (list, probe.await) }
        });
        for (list, found) in join_all(probes).await {
            let mut answered = 0;
            for pair in list {
                let known = found.get(board.node(*pair)).and_then(Known::verified);
                if let Some(known) = known {
                    board.set(*pair, known);
                    answered += 1;
                }
            }
            self.counts.verification("asked", list.len());
            self.counts.verification("answered", answered);
        }
    }

    /// Has the ways between `peer` and `nodes` measured, most urgent first; gives
    /// what is known by `until`.
    pub(crate) fn probe(
        &self,
        peer: &str,
        nodes: &[&str],
        samples: u32,
        until: Instant,
    ) -> impl Future<Output = HashMap<String, Reading>> + Send + use<> {
        let wanted: HashSet<&str> = nodes.iter().copied().collect();
        let probes = self.join_or_start(peer, nodes, samples, until);
        let probes = probes.into_iter().map(move |probe| async move {
            tokio::time::timeout_at(until.into(), probe).await.ok()
        });
        let wanted: HashSet<String> = wanted.into_iter().map(str::to_owned).collect();
        let all = join_all(probes);
        async move {
            let mut found = HashMap::new();
            for one in all.await.into_iter().flatten() {
                let known = one.iter().filter(|(node, _)| wanted.contains(*node));
                found.extend(known.map(|(node, reading)| (node.clone(), reading.clone())));
            }
            found
        }
    }

    /// Probes that will tell of `nodes`: those under way, and one for the rest.
    fn join_or_start(
        &self,
        peer: &str,
        nodes: &[&str],
        samples: u32,
        until: Instant,
    ) -> Vec<Probe> {
        let mut flights = self.flights.lock();
        flights.retain(|_, of_peer| {
            of_peer.retain(|f| f.probe.upgrade().is_some_and(|p| p.peek().is_none()));
            !of_peer.is_empty()
        });
        let mut rest: Vec<String> = nodes.iter().map(|n| (*n).to_owned()).collect();
        let mut probes = Vec::new();
        for flight in flights.get(peer).into_iter().flatten() {
            let before = rest.len();
            rest.retain(|node| !flight.nodes.contains(node));
            if rest.len() < before {
                probes.extend(flight.probe.upgrade());
            }
        }
        if rest.is_empty() {
            return probes;
        }
        let (network, to) = (self.network.clone(), peer.to_owned());
        let nodes: HashSet<String> = rest.iter().cloned().collect();
        let within = until.saturating_duration_since(Instant::now());
        let probe = async move {
            let nodes: Vec<&str> = rest.iter().map(String::as_str).collect();
            let found = network.probe(&to, &nodes, samples, within).await;
            Arc::new(found.into_iter().collect())
        };
        let probe: Probe = probe.boxed().shared();
        if let Some(weak) = probe.downgrade() {
            let flight = Flight { nodes, probe: weak };
            flights.entry_ref(peer).or_default().push(flight);
        }
        probes.push(probe);
        probes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{figures::Basis, reading::Figure};

    #[test]
    fn a_fifth_of_the_time_is_for_the_answer() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let left = |d| time_to_measure(d, now).map(|u| u - now);
        assert_eq!(left(Some(now + ms(500))), Some(ms(400)));
        assert_eq!(left(None), Some(ms(400)));
        assert_eq!(left(Some(now + ms(90_000))), Some(ms(1_600)));
        assert_eq!(left(Some(now + ms(5))), None);
        assert_eq!(left(Some(now)), None);
    }

    fn guess(micros: u64) -> Known {
        let basis = Basis::Estimated { low: 0, high: 0 };
        Known::Rtt { micros, basis }
    }

    #[tokio::test]
    async fn rounds_go_on_until_the_best_is_certain() {
        let network = Network::default();
        // Estimates 10, 20, 30.. of which the first sixteen are far off.
        for i in 0..40 {
            let micros = if i < 16 { 900 } else { 10 * (i + 1) };
            let figure = Figure::of(Duration::from_micros(micros));
            network.set_probe("p", &format!("n{i}"), Reading::Fresh(figure));
            network.set_reading("p", &format!("n{i}"), Reading::Nothing);
        }
        let nodes = (0..40).map(|i| format!("n{i}")).collect();
        let known = (0..40).map(|i| guess(10 * (i + 1)));
        let mut board = Board::new(nodes, vec!["p".to_owned()], known);
        let counts = Counts::default();
        let verifier = Verifier::new(network, counts.clone());
        verifier.verify(&mut board, None, None).await;
        let best = board
            .rows()
            .enumerate()
            .min_by_key(|(_, row)| match row[0] {
                Known::Rtt { micros, .. } => micros,
                _ => u64::MAX,
            });
        let (micros, basis) = (170, Basis::Verified);
        assert_eq!(best, Some((16, &[Known::Rtt { micros, basis }][..])));
        assert_eq!(counts.verifications("asked"), 32);
        assert_eq!(counts.verifications("answered"), 32);
    }

    #[tokio::test]
    async fn without_time_nothing_is_asked_and_it_is_counted() {
        let network = Network::default();
        network.set_estimate(
            "p",
            "n0",
            tautline_rtt_model::Estimate {
                micros: 1.0,
                low: 1.0,
                high: 1.0,
            },
        );
        let mut board = Board::new(vec!["n0".into()], vec!["p".into()], [guess(10)]);
        let counts = Counts::default();
        let verifier = Verifier::new(network, counts.clone());
        let now = Instant::now();
        verifier.verify(&mut board, None, Some(now)).await;
        assert_eq!(counts.verifications("out_of_time"), 1);
        assert_eq!(counts.verifications("asked"), 0);
        let answer = board.answer(None, Duration::ZERO);
        assert!(answer.nodes()[0].detail.ends_with(", not verified"));
    }

    #[tokio::test]
    async fn questions_at_the_same_time_share_probes() {
        let verifier = Verifier::new(Network::default(), Counts::default());
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
        // Once it has ended, the next one asks again.
        let old = first[0].clone();
        for probe in first.into_iter().chain(same).chain(both) {
            probe.await;
        }
        assert!(!start(&["a"])[0].ptr_eq(&old));
        // And one that nobody waits for any more has ended too.
        drop(old);
        assert_eq!(start(&["a", "b", "c"]).len(), 1);
    }
}
