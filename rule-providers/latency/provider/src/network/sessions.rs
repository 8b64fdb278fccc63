//! The sessions of the agents that are connected.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use tautline_proto::latency::Hello;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::{
    Network,
    orders::{AnswerSender, Order},
    pair_store::InstanceId,
};

pub(crate) const MAX_QUEUED_ORDERS: usize = 8;

/// The pairs that an agent measures regularly.
pub(crate) type TargetList = Arc<[ListedTarget]>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ListedTarget {
    pub id: InstanceId,
    pub address: SocketAddr,
    /// True if an active rule names the pair.
    pub demand: bool,
    /// The interval between visits of an address outside the cluster.
    pub outside_interval: Option<Duration>,
}

/// The sending side of a session; the session ends when it is dropped.
#[derive(Debug)]
pub(crate) struct SessionHandle {
    pub stream: u64,
    /// The agent's list, which is `None` until the first one is made.
    pub targets: watch::Sender<Option<TargetList>>,
    /// The orders are boxed because a channel allocates room for 32.
    pub orders: mpsc::Sender<Box<Order>>,
}

/// The receiving side of a session, held by the agent's stream. The session closes when it is
/// dropped.
pub(crate) struct AgentSession {
    network: Arc<Network>,
    pub id: InstanceId,
    /// The agent's name for itself: the node's UID and boot ID.
    pub name: Arc<str>,
    pub stream: u64,
    pub targets: watch::Receiver<Option<TargetList>>,
    pub orders: mpsc::Receiver<Box<Order>>,
    /// The orders that the agent has not answered, by their number.
    pub unanswered: HashMap<u64, AnswerSender>,
    pub last_order: u64,
    pub closed_by_agent: bool,
}

impl Network {
    /// Opens the session of an authenticated agent, if the cluster has its node; an older session
    /// of the node ends.
    pub(crate) fn open_session(self: &Arc<Self>, hello: &Hello) -> Result<AgentSession, Status> {
        let snapshot = self.store.snapshot();
        let Some(node) = snapshot.node(&hello.node) else {
            return Err(Status::failed_precondition(format!(
                "the cluster has no node {} (yet); connect again",
                hello.node
            )));
        };
        let (list_sender, targets) = watch::channel(None);
        let (order_sender, orders) = mpsc::channel(MAX_QUEUED_ORDERS);
        let now = self.now();
        let mut open = self.sessions.lock();
        let mut pairs = self.pairs.lock();
        let (id, stream) = pairs.join(&node.uid, hello, now);
        let name = pairs.get(id).map(|i| Arc::clone(&i.name));
        drop(pairs);
        let handle = SessionHandle {
            stream,
            targets: list_sender,
            orders: order_sender,
        };
        open.insert(id, handle);
        self.metrics.agents.set(open.len() as i64);
        drop(open);
        self.agents_changed.notify_one();
        self.lists_outdated.notify_one();
        Ok(AgentSession {
            network: Arc::clone(self),
            id,
            name: name.unwrap_or_default(),
            stream,
            targets,
            orders,
            unanswered: HashMap::new(),
            last_order: 0,
            closed_by_agent: false,
        })
    }

    pub(crate) fn close_sessions(&self, gone: &[InstanceId]) {
        if gone.is_empty() {
            return;
        }
        {
            let mut open = self.sessions.lock();
            open.retain(|id, _| !gone.contains(id));
            self.metrics.agents.set(open.len() as i64);
        }
        self.agents_changed.notify_one();
        self.lists_outdated.notify_one();
    }
}

impl Drop for AgentSession {
    fn drop(&mut self) {
        let network = &self.network;
        let mut open = network.sessions.lock();
        if open.get(&self.id).is_some_and(|h| h.stream == self.stream) {
            open.remove(&self.id);
            network.metrics.agents.set(open.len() as i64);
        }
        let mut pairs = network.pairs.lock();
        pairs.leave(self.id, self.stream, self.closed_by_agent, network.now());
    }
}
