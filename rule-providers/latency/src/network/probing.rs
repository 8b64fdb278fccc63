//! Measuring at once: samples for a question that waits, and transfers.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tautline_proto::latency::Transferred;
use tokio::{sync::oneshot, time::timeout};

use super::{Network, Order};
use crate::{ledger::Id, reading::Reading};

/// Orders that wait for their answer, of all agents.
const MOST_WAITING: usize = 512;
/// Nodes that one probe may name.
const MOST_PROBED: usize = 512;
/// Between two transfers, anywhere; and from or to the same node.
const BETWEEN_TRANSFERS: Duration = Duration::from_secs(10);
const BETWEEN_TRANSFERS_OF_A_NODE: Duration = Duration::from_secs(300);
/// For the answer's way back.
const RETURN: Duration = Duration::from_millis(20);

/// Takes the answer, with the figure if it was of a transfer.
type Answer = oneshot::Sender<Option<Transferred>>;

#[derive(Debug, Default)]
pub(super) struct Probing {
    last: AtomicU64,
    /// By the order's number: whom it went to, and who waits.
    waiting: Mutex<HashMap<u64, (Id, Answer)>>,
    /// When nodes last had a transfer.
    transfers: Mutex<HashMap<Box<str>, Duration>>,
}

/// An order that was sent; forgotten when dropped.
struct Waiting<'a> {
    network: &'a Network,
    id: u64,
    answer: oneshot::Receiver<Option<Transferred>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.network.0.probing.waiting.lock().remove(&self.id);
    }
}

impl Network {
    /// Has the ways between `peer` and `nodes` measured now, `samples` times each,
    /// by the peer's agent or else by the nodes' own; gives what came `within`.
    pub async fn probe(
        &self,
        peer: &str,
        nodes: &[&str],
        samples: u32,
        within: Duration,
    ) -> Vec<(String, Reading)> {
        #[cfg(test)]
        if let Some(fixed) = self.0.fixed.probed(peer, nodes) {
            return fixed;
        }
        let began = self.now();
        let (peer, nodes) = {
            let ledger = self.0.ledger.lock();
            let Some(peer) = ledger.id(peer) else {
                return Vec::new();
            };
            let mut known: Vec<(&str, Id)> = Vec::new();
            for node in nodes.iter().take(MOST_PROBED) {
                known.extend(
                    ledger
                        .id(node)
                        .filter(|id| *id != peer)
                        .map(|id| (*node, id)),
                );
            }
            (peer, known)
        };
        let ids: Vec<Id> = nodes.iter().map(|(_, id)| *id).collect();
        let ask = |of: Id, targets: Vec<Id>| {
            self.order(of, |id| Order::Probe {
                id,
                targets,
                samples: samples.clamp(1, 60),
                within: within.saturating_sub(RETURN),
            })
        };
        let asked: Vec<Waiting<'_>> = match ask(peer, ids.clone()) {
            _ if ids.is_empty() => return Vec::new(),
            Some(asked) => vec![asked],
            None => ids.iter().filter_map(|id| ask(*id, vec![peer])).collect(),
        };
        let metrics = &self.0.metrics;
        metrics.probes_asked.inc_by(asked.len() as u64);
        let answered = async {
            for mut asked in asked {
                if (&mut asked.answer).await.is_ok() {
                    metrics.probes_answered.inc();
                }
            }
        };
        _ = timeout(within, answered).await;
        let (ledger, now) = (self.0.ledger.lock(), self.now());
        let came = nodes
            .into_iter()
            .filter(|(_, id)| ledger.told_since(peer, *id, began));
        came.map(|(node, id)| (node.to_owned(), ledger.reading(peer, id, now)))
            .collect()
    }

    /// Measures bits a second by a transfer: only if that is allowed, and seldom.
    ///
    /// # Errors
    /// Why there is no figure, for people.
    pub async fn throughput(
        &self,
        from: &str,
        to: &str,
        max_bytes: u64,
        within: Duration,
    ) -> Result<u64, String> {
        #[cfg(test)]
        if let Some(fixed) = self.0.fixed.throughput(from, to) {
            return fixed;
        }
        if !self.0.settings.transfers {
            return Err("transfers are not allowed here (--allow-transfers)".to_owned());
        }
        let ends = {
            let ledger = self.0.ledger.lock();
            ledger.id(from).zip(ledger.id(to))
        };
        let (source, target) = ends.ok_or_else(|| format!("no agents on {from} and {to}"))?;
        self.0.probing.may_transfer(from, to, self.now())?;
        let order = |id| Order::Transfer {
            id,
            to: target,
            max_bytes,
            within: within.saturating_sub(RETURN),
        };
        let asked = self.order(source, order);
        let mut asked = asked.ok_or_else(|| format!("the agent on {from} takes no orders now"))?;
        match timeout(within, &mut asked.answer).await {
            Ok(Ok(Some(done))) if done.bits_per_second > 0 => Ok(done.bits_per_second),
            Ok(Ok(Some(done))) => Err(done.error.chars().take(200).collect()),
            Ok(_) => Err(format!("the agent on {from} has gone")),
            Err(_) => Err(format!(
                "no answer from the agent on {from} within {within:?}"
            )),
        }
    }

    /// Sends an order, if the agent is there and not behind with others.
    fn order(&self, to: Id, order: impl FnOnce(u64) -> Order) -> Option<Waiting<'_>> {
        let probing = &self.0.probing;
        let id = probing.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = oneshot::channel();
        {
            let mut waiting = probing.waiting.lock();
            if waiting.len() >= MOST_WAITING {
                return None;
            }
            waiting.insert(id, (to, sender));
        }
        let waiting = Waiting {
            network: self,
            id,
            answer,
        };
        let streams = self.0.streams.lock();
        let sent = streams.get(&to)?.orders.try_send(Box::new(order(id)));
        sent.is_ok().then_some(waiting)
    }

    /// An agent's answer to an order of ours; others' are ignored.
    pub(crate) fn answered(&self, from: Id, id: u64, transferred: Option<Transferred>) {
        let mut waiting = self.0.probing.waiting.lock();
        if waiting.get(&id).is_some_and(|(asked, _)| *asked == from)
            && let Some((_, answer)) = waiting.remove(&id)
        {
            _ = answer.send(transferred);
        }
    }
}

impl Probing {
    fn may_transfer(&self, from: &str, to: &str, now: Duration) -> Result<(), String> {
        let mut last = self.transfers.lock();
        last.retain(|_, at| now < *at + BETWEEN_TRANSFERS_OF_A_NODE);
        if last.values().any(|at| now < *at + BETWEEN_TRANSFERS) {
            return Err(format!("another transfer was within {BETWEEN_TRANSFERS:?}"));
        }
        if let Some(busy) = [from, to].into_iter().find(|n| last.contains_key(*n)) {
            let span = BETWEEN_TRANSFERS_OF_A_NODE;
            return Err(format!("{busy} had a transfer within {span:?}"));
        }
        for node in [from, to] {
            last.insert(node.into(), now);
        }
        Ok(())
    }
}

#[test]
fn transfers_are_seldom() {
    let (probing, second) = (Probing::default(), Duration::from_secs(1));
    probing.may_transfer("a", "b", Duration::ZERO).unwrap();
    let error = probing.may_transfer("c", "d", second * 9).unwrap_err();
    assert_eq!(error, "another transfer was within 10s");
    probing.may_transfer("c", "d", second * 10).unwrap();
    let error = probing.may_transfer("a", "e", second * 299).unwrap_err();
    assert_eq!(error, "a had a transfer within 300s");
    probing.may_transfer("a", "e", second * 300).unwrap();
}
