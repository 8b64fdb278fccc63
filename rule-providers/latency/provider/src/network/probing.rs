//! Measuring at once: samples for a question that waits, and transfers.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tautline_proto::latency::Transferred;
use tokio::{sync::oneshot, time::timeout};

use super::{Network, Order};
use crate::{
    ledger::{Id, Instance, Ledger},
    reading::Reading,
};

/// Orders that wait for their answer, of all agents.
const MOST_WAITING: usize = 512;
/// Nodes that one probe may name.
const MOST_PROBED: usize = 512;
/// A pair that was probed without an answer is not probed again for so long.
const UNANSWERED: Duration = Duration::from_secs(15);
/// Such pairs that are remembered.
const MOST_UNANSWERED: usize = 16_384;
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
    /// Pairs probed without an answer, and when that was; the lesser end first.
    unanswered: Mutex<HashMap<(Id, Id), Duration>>,
    /// When nodes last had a transfer.
    transfers: Mutex<HashMap<Box<str>, Duration>>,
}

/// An order that was sent; forgotten when dropped.
pub(super) struct Waiting<'a> {
    network: &'a Network,
    id: u64,
    answer: oneshot::Receiver<Option<Transferred>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.network.0.probing.waiting.lock().remove(&self.id);
    }
}

/// Pairs that a probe is under way for; when it ends those without an answer are
/// remembered, if they had the time for one.
struct Asked<'a> {
    network: &'a Network,
    peer: Id,
    nodes: Vec<Id>,
    began: Duration,
    until: Duration,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let now = self.network.now();
        if now < self.until {
            return;
        }
        let ledger = self.network.0.ledger.lock();
        let mut unanswered = self.network.0.probing.unanswered.lock();
        if unanswered.len() + self.nodes.len() > MOST_UNANSWERED {
            unanswered.retain(|_, at| now < *at + UNANSWERED);
        }
        for node in &self.nodes {
            if !ledger.told_since(self.peer, *node, self.began)
                && unanswered.len() < MOST_UNANSWERED
            {
                unanswered.insert(pair(self.peer, *node), now);
            }
        }
    }
}

fn pair(a: Id, b: Id) -> (Id, Id) {
    (a.min(b), a.max(b))
}

impl Network {
    /// Has the ways between `peer` and `nodes` measured now, `samples` times each,
    /// by the peer's agent, or by the nodes' own if it has none; gives what came
    /// `within`. Ways to nodes whose agents have gone, and those that nobody answered
    /// for lately, are left out.
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
        let (peer, heard, nodes) = {
            let ledger = self.0.ledger.lock();
            let Some(peer) = ledger.id(peer) else {
                return Vec::new();
            };
            let heard = |id| ledger.get(id).is_some_and(Instance::has_agent);
            let worth = |id: Id| {
                id != peer && heard(id) && !self.0.probing.is_vain(&ledger, peer, id, began)
            };
            let nodes = nodes.iter().take(MOST_PROBED);
            let known = nodes.filter_map(|node| Some((*node, ledger.id(node)?)));
            let known: Vec<(&str, Id)> = known.filter(|(_, id)| worth(*id)).collect();
            (peer, heard(peer), known)
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
        let (mut asked, mut of) = (Vec::new(), Vec::new());
        match heard {
            _ if ids.is_empty() => return Vec::new(),
            true => {
                if let Some(order) = ask(peer, ids.clone()) {
                    (asked, of) = (vec![order], ids);
                }
            }
            false => {
                for id in ids {
                    if let Some(order) = ask(id, vec![peer]) {
                        asked.push(order);
                        of.push(id);
                    }
                }
            }
        }
        let _of = Asked {
            network: self,
            peer,
            nodes: of,
            began,
            until: began + within.mul_f64(0.9),
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
    pub(super) fn order(&self, to: Id, order: impl FnOnce(u64) -> Order) -> Option<Waiting<'_>> {
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
        let order = Box::new(order(id));
        let sent = streams.get(&to)?.orders.try_send(order).is_ok();
        sent.then_some(waiting)
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
    /// Whether the pair was probed lately without an answer, and none has come since.
    fn is_vain(&self, ledger: &Ledger, a: Id, b: Id, now: Duration) -> bool {
        let at = self.unanswered.lock().get(&pair(a, b)).copied();
        at.is_some_and(|at| now < at + UNANSWERED && !ledger.told_since(a, b, at))
    }

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
