#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::timeout;

use super::{
    measured_pairs::MeasuredPairs,
    metrics::NetworkMetrics,
    orders::{Orders, RETURN_TIME},
    pair_store::{Instance, InstanceId, PairStore},
    sessions::Order,
};
use crate::measurement::Measurement;

const MAX_NODES: usize = 512;
/// The time for which a pair is not probed again after a probe without an answer.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(15);
const MAX_UNANSWERED: usize = 16_384;

#[derive(Debug)]
pub(crate) struct Probes {
    pairs: Arc<MeasuredPairs>,
    orders: Arc<Orders>,
    metrics: NetworkMetrics,
    /// The time of the last probe without an answer, by pair (the lesser ID first).
    unanswered: Mutex<HashMap<(InstanceId, InstanceId), Duration>>,
}

/// The pairs of a running probe. At its end the pairs without an answer are recorded, if there was
/// time for one.
struct ProbedPairs<'a> {
    probes: &'a Probes,
    peer: InstanceId,
    nodes: Vec<InstanceId>,
    began: Duration,
    until: Duration,
}

impl Drop for ProbedPairs<'_> {
    fn drop(&mut self) {
        let now = self.probes.pairs.now();
        if now < self.until {
            return;
        }
        let store = self.probes.pairs.lock();
        let mut unanswered = self.probes.unanswered.lock();
        if unanswered.len() + self.nodes.len() > MAX_UNANSWERED {
            unanswered.retain(|_, at| now < *at + UNANSWERED_PAUSE);
        }
        for node in &self.nodes {
            if !store.reported_since(self.peer, *node, self.began)
                && unanswered.len() < MAX_UNANSWERED
            {
                unanswered.insert(ordered(self.peer, *node), now);
            }
        }
    }
}

fn ordered(a: InstanceId, b: InstanceId) -> (InstanceId, InstanceId) {
    (a.min(b), a.max(b))
}

impl Probes {
    pub fn new(pairs: Arc<MeasuredPairs>, orders: Arc<Orders>, metrics: NetworkMetrics) -> Self {
        Self {
            pairs,
            orders,
            metrics,
            unanswered: Mutex::default(),
        }
    }

    /// Measures the pairs of `peer` and `nodes` now, by the peer's agent, or by the nodes' own
    /// agents if the peer has none. Returns the pairs that were measured within the time `within`.
    /// Nodes without an agent and pairs that recently did not answer are left out.
    pub async fn probe(
        &self,
        peer: &str,
        nodes: &[&str],
        samples: u32,
        within: Duration,
    ) -> Vec<(String, Measurement)> {
        let began = self.pairs.now();
        let (peer, peer_has_agent, nodes) = {
            let store = self.pairs.lock();
            let Some(peer) = store.id(peer) else {
                return Vec::new();
            };
            let has_agent = |id| store.get(id).is_some_and(Instance::has_agent);
            let worth_probing = |id: InstanceId| {
                id != peer && has_agent(id) && !self.is_paused(&store, peer, id, began)
            };
            let nodes = nodes.iter().take(MAX_NODES);
            let known = nodes.filter_map(|node| Some((*node, store.id(node)?)));
            let known: Vec<(&str, InstanceId)> =
                known.filter(|(_, id)| worth_probing(*id)).collect();
            (peer, has_agent(peer), known)
        };
        let ids: Vec<InstanceId> = nodes.iter().map(|(_, id)| *id).collect();
        let send = |to: InstanceId, targets: Vec<InstanceId>| {
            self.orders.send(to, |id| Order::Probe {
                id,
                targets,
                samples: samples.clamp(1, 60),
                within: within.saturating_sub(RETURN_TIME),
            })
        };
        if ids.is_empty() {
            return Vec::new();
        }
        let (mut sent, mut probed) = (Vec::new(), Vec::new());
        if peer_has_agent {
            if let Some(order) = send(peer, ids.clone()) {
                (sent, probed) = (vec![order], ids);
            }
        } else {
            for id in ids {
                if let Some(order) = send(id, vec![peer]) {
                    sent.push(order);
                    probed.push(id);
                }
            }
        }
        let _probed = ProbedPairs {
            probes: self,
            peer,
            nodes: probed,
            began,
            until: began + within.mul_f64(0.9),
        };
        self.metrics.probes_sent.inc_by(sent.len() as u64);
        let answers = async {
            for mut order in sent {
                if (&mut order.answer).await.is_ok() {
                    self.metrics.probes_answered.inc();
                }
            }
        };
        _ = timeout(within, answers).await;
        let (store, now) = (self.pairs.lock(), self.pairs.now());
        let measured = nodes
            .into_iter()
            .filter(|(_, id)| store.reported_since(peer, *id, began));
        measured
            .map(|(node, id)| (node.to_owned(), store.measurement(peer, id, now)))
            .collect()
    }

    /// Returns whether a recent probe of the pair had no answer, and no report has come since.
    fn is_paused(&self, store: &PairStore, a: InstanceId, b: InstanceId, now: Duration) -> bool {
        let at = self.unanswered.lock().get(&ordered(a, b)).copied();
        at.is_some_and(|at| now < at + UNANSWERED_PAUSE && !store.reported_since(a, b, at))
    }
}
