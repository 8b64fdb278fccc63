use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tautline_proto::latency::Hello;
use tautline_runtime::cluster_store::ClusterStore;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::{
    measured_pairs::MeasuredPairs, metrics::NetworkMetrics, pair_store::InstanceId,
    signals::Signals,
};

pub(crate) const MAX_QUEUED_ORDERS: usize = 8;
/// The time after the last frame of any agent for which the network counts as measured.
const MEASURING_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub(crate) enum Order {
    Probe {
        id: u64,
        targets: Vec<InstanceId>,
        samples: u32,
        within: Duration,
    },
    Transfer {
        id: u64,
        to: InstanceId,
        max_bytes: u64,
        within: Duration,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TargetList {
    /// The targets, each with `true` if an active rule names the pair.
    pub targets: Arc<[(InstanceId, bool)]>,
    /// A number that changes with the echo keys.
    pub key_epoch: u64,
    /// False for the empty list at the start of a session.
    pub made: bool,
}

/// The sending side of a session; the session ends when it is dropped.
#[derive(Debug)]
pub(crate) struct SessionHandle {
    pub stream: u64,
    pub targets: watch::Sender<TargetList>,
    /// The orders are boxed because a channel allocates room for 32.
    pub orders: mpsc::Sender<Box<Order>>,
}

/// The receiving side of a session, held by the agent's stream. The session closes when it is
/// dropped.
pub(crate) struct AgentSession {
    sessions: Arc<AgentSessions>,
    pub id: InstanceId,
    pub stream: u64,
    pub targets: watch::Receiver<TargetList>,
    pub orders: mpsc::Receiver<Box<Order>>,
    pub closed_by_agent: bool,
    /// The hash of the last list that was sent; 0 before the first one.
    pub sent_list: u64,
}

#[derive(Debug)]
pub(crate) struct AgentSessions {
    store: ClusterStore,
    pairs: Arc<MeasuredPairs>,
    signals: Arc<Signals>,
    metrics: NetworkMetrics,
    open: Mutex<HashMap<InstanceId, SessionHandle>>,
    /// The time of the last frame on the pair store's clock, in milliseconds plus 1; 0 before the
    /// first frame.
    last_frame: AtomicU64,
}

impl AgentSessions {
    pub fn new(
        store: ClusterStore,
        pairs: Arc<MeasuredPairs>,
        signals: Arc<Signals>,
        metrics: NetworkMetrics,
    ) -> Self {
        Self {
            store,
            pairs,
            signals,
            metrics,
            open: Mutex::default(),
            last_frame: AtomicU64::new(0),
        }
    }

    /// Opens the session of an authenticated agent, if the cluster has its node; an older session
    /// of the node ends.
    pub fn open(self: &Arc<Self>, hello: &Hello) -> Result<AgentSession, Status> {
        let snapshot = self.store.snapshot();
        let Some(node) = snapshot.node(&hello.node) else {
            return Err(Status::failed_precondition(format!(
                "the cluster has no node {} (yet); connect again",
                hello.node
            )));
        };
        let (targets, target_lists) = watch::channel(TargetList::default());
        let (orders, order_queue) = mpsc::channel(MAX_QUEUED_ORDERS);
        let now = self.pairs.now();
        let mut open = self.open.lock();
        let (id, stream) = self.pairs.lock().join(&node.uid, hello, now);
        let handle = SessionHandle {
            stream,
            targets,
            orders,
        };
        open.insert(id, handle);
        self.metrics.agents.set(open.len() as i64);
        drop(open);
        self.frame_received(now);
        self.signals.agents_changed();
        Ok(AgentSession {
            sessions: Arc::clone(self),
            id,
            stream,
            targets: target_lists,
            orders: order_queue,
            closed_by_agent: false,
            sent_list: 0,
        })
    }

    pub fn close(&self, gone: &[InstanceId]) {
        if gone.is_empty() {
            return;
        }
        {
            let mut open = self.open.lock();
            for id in gone {
                open.remove(id);
            }
            self.metrics.agents.set(open.len() as i64);
        }
        self.signals.agents_changed();
    }

    /// Locks the open sessions. A caller that needs both locks must lock the pair store second.
    pub fn lock(&self) -> MutexGuard<'_, HashMap<InstanceId, SessionHandle>> {
        self.open.lock()
    }

    pub fn frame_received(&self, now: Duration) {
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX - 1);
        self.last_frame.store(millis + 1, Ordering::Relaxed);
    }

    pub fn is_measuring(&self) -> bool {
        match self.last_frame.load(Ordering::Relaxed) {
            0 => false,
            at => self.pairs.now() < Duration::from_millis(at) + MEASURING_TIMEOUT,
        }
    }

    pub fn cover_cluster(&self) -> bool {
        let nodes = self.store.snapshot().node_count();
        self.open.lock().len().saturating_mul(5) >= nodes.saturating_mul(4)
    }
}

impl Drop for AgentSession {
    fn drop(&mut self) {
        let sessions = &self.sessions;
        let mut open = sessions.open.lock();
        if open
            .get(&self.id)
            .is_some_and(|handle| handle.stream == self.stream)
        {
            open.remove(&self.id);
            sessions.metrics.agents.set(open.len() as i64);
        }
        let now = sessions.pairs.now();
        let mut store = sessions.pairs.lock();
        store.leave(self.id, self.stream, self.closed_by_agent, now);
    }
}
