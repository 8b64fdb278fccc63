use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tautline_proto::latency::Transferred;
use tokio::sync::oneshot;

use super::{
    pair_store::InstanceId,
    sessions::{AgentSessions, Order},
};

const MAX_PENDING_ORDERS: usize = 512;
/// The time reserved for the answer to reach the provider.
pub(super) const RETURN_TIME: Duration = Duration::from_millis(20);

/// The channel of an order's answer, which has the result if the order was a transfer.
type AnswerSender = oneshot::Sender<Option<Transferred>>;

#[derive(Debug)]
pub(crate) struct Orders {
    sessions: Arc<AgentSessions>,
    last_id: AtomicU64,
    pending: Mutex<HashMap<u64, (InstanceId, AnswerSender)>>,
}

pub(crate) struct PendingOrder<'a> {
    orders: &'a Orders,
    id: u64,
    pub answer: oneshot::Receiver<Option<Transferred>>,
}

impl Drop for PendingOrder<'_> {
    fn drop(&mut self) {
        self.orders.pending.lock().remove(&self.id);
    }
}

impl Orders {
    pub fn new(sessions: Arc<AgentSessions>) -> Self {
        Self {
            sessions,
            last_id: AtomicU64::new(0),
            pending: Mutex::default(),
        }
    }

    /// Sends an order; returns `None` if the agent is not connected or has a full queue, or if too
    /// many orders are pending.
    pub fn send(
        &self,
        to: InstanceId,
        order: impl FnOnce(u64) -> Order,
    ) -> Option<PendingOrder<'_>> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = oneshot::channel();
        {
            let mut pending = self.pending.lock();
            if pending.len() >= MAX_PENDING_ORDERS {
                return None;
            }
            pending.insert(id, (to, sender));
        }
        let pending = PendingOrder {
            orders: self,
            id,
            answer,
        };
        let open = self.sessions.lock();
        let sent = open.get(&to)?.orders.try_send(Box::new(order(id))).is_ok();
        sent.then_some(pending)
    }

    /// Delivers an agent's answer. An answer to the order of another agent is ignored.
    pub fn complete(&self, from: InstanceId, id: u64, transferred: Option<Transferred>) {
        let mut pending = self.pending.lock();
        if pending.get(&id).is_some_and(|(to, _)| *to == from)
            && let Some((_, answer)) = pending.remove(&id)
        {
            _ = answer.send(transferred);
        }
    }
}
