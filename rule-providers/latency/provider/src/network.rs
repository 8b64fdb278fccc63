//! The measured network: the round-trip times that agents report, the estimates of all other pairs,
//! and the orders to measure more.

pub(crate) mod demanded_pairs;
pub(crate) mod metrics;
pub(crate) mod orders;
pub(crate) mod outside;
mod outside_lists;
pub(crate) mod pair_store;
pub(crate) mod sessions;
mod target_lists;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod view;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tautline_runtime::cluster_store::ClusterStore;
use tokio::sync::Notify;

use crate::measurement::Measurement;
use demanded_pairs::{DemandedPairs, Requester};
use metrics::NetworkMetrics;
use orders::ProbeTime;
use outside::{OutsidePoints, host_and_port};
use pair_store::{InstanceId, PairStore};
use sessions::SessionHandle;
use target_lists::ChosenTargets;
pub use view::PeerRow;
use view::PublishedFit;

/// The time on the network's clock at its start, for samples that are older than this process.
const CLOCK_START: Duration = Duration::from_secs(3_600);

/// The measured and predicted round-trip times between nodes. A caller that needs two locks must
/// take those of `demand`, of `outside` and of `sessions` before that of `pairs`.
#[derive(Debug)]
pub struct Network {
    pub(crate) store: ClusterStore,
    pub(crate) allows_transfers: bool,
    start: Instant,
    pub(crate) pairs: Mutex<PairStore>,
    /// The sessions of the connected agents.
    pub(crate) sessions: Mutex<HashMap<InstanceId, SessionHandle>>,
    pub(crate) demand: Mutex<DemandedPairs>,
    pub(crate) outside: Mutex<OutsidePoints>,
    /// The targets of each instance that the model chose.
    pub(crate) chosen: ArcSwap<ChosenTargets>,
    /// The last probe of each pair (the lesser ID first).
    last_probes: Mutex<HashMap<(InstanceId, InstanceId), ProbeTime>>,
    pub(crate) estimates: ArcSwapOption<PublishedFit>,
    pub(crate) agents_changed: Notify,
    lists_outdated: Notify,
    pub(crate) metrics: NetworkMetrics,
}

impl Network {
    /// Creates the network of the store's nodes, without measurements. `allows_transfers` allows
    /// tests of bandwidth.
    pub fn new(store: ClusterStore, allows_transfers: bool) -> Arc<Self> {
        Arc::new(Self {
            store,
            allows_transfers,
            start: Instant::now(),
            pairs: Mutex::default(),
            sessions: Mutex::default(),
            demand: Mutex::default(),
            outside: Mutex::default(),
            chosen: ArcSwap::default(),
            last_probes: Mutex::default(),
            estimates: ArcSwapOption::default(),
            agents_changed: Notify::default(),
            lists_outdated: Notify::default(),
            metrics: NetworkMetrics::default(),
        })
    }

    /// Returns the time on the clock of the pairs and of the demand.
    pub(crate) fn now(&self) -> Duration {
        self.at(Instant::now())
    }

    pub(crate) fn at(&self, time: Instant) -> Duration {
        CLOCK_START + time.saturating_duration_since(self.start)
    }

    pub(crate) fn measurement(&self, a: &str, b: &str) -> Measurement {
        let store = self.pairs.lock();
        match (store.id(a), store.id(b)) {
            (Some(a), Some(b)) => store.measurement(a, b, self.now()),
            _ => Measurement::Missing,
        }
    }

    /// Returns the speed of the slowest interface that leads out of the node.
    pub(crate) fn nic_bits_per_second(&self, node: &str) -> Option<u64> {
        let store = self.pairs.lock();
        store.get(store.id(node)?)?.nic_bits_per_second
    }

    pub(crate) fn has_agents(&self) -> bool {
        !self.sessions.lock().is_empty()
    }

    /// Returns whether four fifths of the nodes have an agent.
    pub(crate) fn agents_cover_cluster(&self) -> bool {
        let nodes = self.store.snapshot().node_count();
        self.sessions.lock().len().saturating_mul(5) >= nodes.saturating_mul(4)
    }

    /// Records that an active rule of the requester names the pair, which is then measured every
    /// two seconds until `keep` after the last call; a pair with an address outside the cluster is
    /// measured more rarely. Pairs of unknown nodes are ignored.
    pub(crate) fn demand(&self, requester: Requester<'_>, a: &str, b: &str, keep: Duration) {
        let snapshot = self.store.snapshot();
        let known = |place| snapshot.node(place).is_some() || host_and_port(place).is_some();
        if !known(a) || !known(b) {
            return;
        }
        let until = self.now() + keep;
        if self.demand.lock().add(requester, a, b, until) {
            self.lists_outdated.notify_one();
        }
    }
}
