//! The orders to agents to measure at once: probes of round-trip times, and transfers.

use std::{collections::HashMap, time::Duration};

use tautline_proto::latency::Transferred;
use tokio::{sync::oneshot, time::timeout};

use super::{
    Network,
    pair_store::{Instance, InstanceId, PairStore},
};
use crate::measurement::Measurement;

/// The time reserved for the answer to reach the provider.
const RETURN_TIME: Duration = Duration::from_millis(20);
const MAX_PROBED_NODES: usize = 512;
/// The time for which a pair is not probed again after a probe without an answer.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(15);
const MAX_LAST_PROBES: usize = 16_384;

#[derive(Debug)]
pub(crate) struct Order {
    pub what: Measure,
    pub within: Duration,
    pub answer: AnswerSender,
}

/// The sender of an order's answer, which has the result if the order was a transfer.
pub(crate) type AnswerSender = oneshot::Sender<Option<Transferred>>;

#[derive(Debug)]
pub(crate) enum Measure {
    Probe {
        targets: Vec<InstanceId>,
        samples: u32,
    },
    Transfer {
        to: InstanceId,
        max_bytes: u64,
    },
}

/// The time of a probe; an agent could have answered by its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeTime {
    began: Duration,
    end: Duration,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TransferError {
    #[error("no agents on {0} and {1}")]
    NoAgents(String, String),
    #[error("the agent on {0} takes no orders now")]
    Busy(String),
    #[error("{0}")]
    Failed(String),
    #[error("the agent on {0} has gone")]
    Gone(String),
    #[error("no answer from the agent on {0} within {1:?}")]
    Late(String, Duration),
}

impl Network {
    /// Sends an order; returns `None` if the agent is not connected or has a full queue.
    pub(crate) fn order(
        &self,
        to: InstanceId,
        what: Measure,
        within: Duration,
    ) -> Option<oneshot::Receiver<Option<Transferred>>> {
        let (sender, answer) = oneshot::channel();
        let order = Order {
            what,
            within: within.saturating_sub(RETURN_TIME),
            answer: sender,
        };
        let open = self.sessions.lock();
        open.get(&to)?.orders.try_send(Box::new(order)).ok()?;
        Some(answer)
    }

    /// Measures the pairs of `peer` and `nodes` now, by the peer's agent, or by the nodes' own
    /// agents if the peer has none. Returns the pairs that were measured within the time `within`.
    /// Nodes without an agent and pairs that recently did not answer are left out.
    pub(crate) async fn probe<'n>(
        &self,
        peer: &str,
        nodes: &[&'n str],
        samples: u32,
        within: Duration,
    ) -> HashMap<&'n str, Measurement> {
        let began = self.now();
        let (peer, peer_has_agent, nodes) = {
            let store = self.pairs.lock();
            let Some(peer) = store.id(peer) else {
                return HashMap::new();
            };
            // Many nodes at once must not connect to an address of somebody else.
            if store.get(peer).is_some_and(|i| i.is_outside) {
                return HashMap::new();
            }
            let has_agent = |id| store.get(id).is_some_and(Instance::has_agent);
            let nodes = nodes.iter().take(MAX_PROBED_NODES);
            let known = nodes.filter_map(|node| Some((*node, store.id(node)?)));
            let worth_probing = known.filter(|(_, id)| {
                *id != peer && has_agent(*id) && !self.is_paused(&store, peer, *id, began)
            });
            let nodes: Vec<(&'n str, InstanceId)> = worth_probing.collect();
            (peer, has_agent(peer), nodes)
        };
        let ids: Vec<InstanceId> = nodes.iter().map(|(_, id)| *id).collect();
        let samples = samples.clamp(1, 60);
        let send = |to, targets| self.order(to, Measure::Probe { targets, samples }, within);
        let (mut sent, mut probed) = (Vec::new(), Vec::new());
        if ids.is_empty() {
            return HashMap::new();
        } else if peer_has_agent {
            if let Some(answer) = send(peer, ids.clone()) {
                (sent, probed) = (vec![answer], ids);
            }
        } else {
            for id in ids {
                if let Some(answer) = send(id, vec![peer]) {
                    sent.push(answer);
                    probed.push(id);
                }
            }
        }
        let end = began + within.mul_f64(0.9);
        self.record_probe(peer, &probed, ProbeTime { began, end });
        self.metrics.probes_sent.inc_by(sent.len() as u64);
        let answers = async {
            for answer in sent {
                if answer.await.is_ok() {
                    self.metrics.probes_answered.inc();
                }
            }
        };
        _ = timeout(within, answers).await;
        let (store, now) = (self.pairs.lock(), self.now());
        let measured = nodes
            .into_iter()
            .filter(|(_, id)| store.reported_since(peer, *id, began));
        measured
            .map(|(node, id)| (node, store.measurement(peer, id, now)))
            .collect()
    }

    /// Records a probe of these pairs, which pause at its end unless a report comes.
    fn record_probe(&self, peer: InstanceId, nodes: &[InstanceId], probe: ProbeTime) {
        let mut last = self.last_probes.lock();
        if last.len() + nodes.len() > MAX_LAST_PROBES {
            last.retain(|_, old| probe.began < old.end + UNANSWERED_PAUSE);
        }
        let room = MAX_LAST_PROBES.saturating_sub(last.len());
        let probed = nodes.iter().take(room);
        last.extend(probed.map(|node| (ordered(peer, *node), probe)));
    }

    /// Returns whether a recent probe of the pair had no answer, and no report has come since.
    fn is_paused(&self, store: &PairStore, a: InstanceId, b: InstanceId, now: Duration) -> bool {
        let last = self.last_probes.lock().get(&ordered(a, b)).copied();
        last.is_some_and(|probe| {
            let pause = probe.end..probe.end + UNANSWERED_PAUSE;
            pause.contains(&now) && !store.reported_since(a, b, probe.began)
        })
    }

    /// Measures the throughput by a transfer, in bits per second.
    pub(crate) async fn transfer(
        &self,
        from: &str,
        to: &str,
        max_bytes: u64,
        within: Duration,
    ) -> Result<u64, TransferError> {
        let ends = {
            let store = self.pairs.lock();
            store.id(from).zip(store.id(to))
        };
        let name = || from.to_owned();
        let no_agents = || TransferError::NoAgents(name(), to.to_owned());
        let (source, to) = ends.ok_or_else(no_agents)?;
        let order = self.order(source, Measure::Transfer { to, max_bytes }, within);
        let answer = order.ok_or_else(|| TransferError::Busy(name()))?;
        match timeout(within, answer).await {
            Ok(Ok(Some(done))) if done.bits_per_second > 0 => Ok(done.bits_per_second),
            Ok(Ok(Some(done))) => {
                let why = done.error.chars().take(200).collect();
                Err(TransferError::Failed(why))
            }
            Ok(_) => Err(TransferError::Gone(name())),
            Err(_) => Err(TransferError::Late(name(), within)),
        }
    }
}

fn ordered(a: InstanceId, b: InstanceId) -> (InstanceId, InstanceId) {
    (a.min(b), a.max(b))
}

#[cfg(test)]
mod tests;
