//! What the agents have measured, as the answers see it.

#[cfg(test)]
mod fixed;
mod probing;
mod row;
mod seat;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use tautline_runtime::cluster_store::ClusterStore;
use tokio::sync::Notify;

use crate::{
    demand::{Asker, Demand},
    fitting::{Bell, Fitted},
    ledger::{Id, Ledger},
    metrics::Metrics,
    reading::Reading,
};
use probing::Probing;
pub use row::PeerRow;
pub(crate) use row::Spot;
pub(crate) use seat::{Handle, Seat};

/// The label of the rack that a node is in, unless another is named.
pub const RACK: &str = "topology.kubernetes.io/rack";
/// Targets that are measured from each node.
pub const TARGETS: usize = 32;
/// Measurements are kept, and called such, for so long after the last.
const LATELY: Duration = Duration::from_secs(600);
/// Agents connect again within half a minute, with their jitter.
const AGENTS_WITHIN: Duration = Duration::from_secs(45);

/// How to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    pub rack_label: String,
    /// How many targets each node measures, besides those that rules name.
    pub targets: usize,
    /// Where to keep what was learned, over a restart.
    pub state: Option<PathBuf>,
    /// Whether agents may be asked for transfers.
    pub transfers: bool,
    /// How long after the start it waits for its agents before it is ready: until
    /// four fifths of the nodes have theirs, at the most.
    pub agents_within: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rack_label: RACK.to_owned(),
            targets: TARGETS,
            state: None,
            transfers: false,
            agents_within: AGENTS_WITHIN,
        }
    }
}

/// All that is measured. Clones are one.
#[derive(Clone, Debug)]
pub struct Network(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub feed: ClusterStore,
    pub settings: Settings,
    pub metrics: Metrics,
    start: Instant,
    pub ledger: Mutex<Ledger>,
    pub demand: Mutex<Demand>,
    /// Locked before the ledger, where both are.
    pub streams: Mutex<HashMap<Id, Handle>>,
    /// What each instance is to measure, as the model chose.
    pub targets: ArcSwap<HashMap<Id, Arc<[Id]>>>,
    pub fitted: ArcSwapOption<Fitted>,
    /// Rung when there is something new to fit.
    pub fit: Bell,
    /// Woken when lists of targets may have changed.
    pub assign: Notify,
    /// Counts the changes of keys, which make all lists new.
    pub epoch: AtomicU64,
    probing: Probing,
    /// Milliseconds of `start` at the last frame, and 1; 0 for none yet.
    heard: AtomicU64,
    #[cfg(test)]
    fixed: fixed::Fixed,
}

/// What an agent is asked to do now.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    Probe {
        id: u64,
        targets: Vec<Id>,
        samples: u32,
        within: Duration,
    },
    Transfer {
        id: u64,
        to: Id,
        max_bytes: u64,
        within: Duration,
    },
}

impl Default for Network {
    fn default() -> Self {
        Self::new(ClusterStore::default(), Settings::default())
    }
}

impl Network {
    /// Knows the nodes from `feed`.
    pub fn new(feed: ClusterStore, settings: Settings) -> Self {
        Self(Arc::new(Inner {
            feed,
            settings,
            metrics: Metrics::default(),
            start: Instant::now(),
            ledger: Mutex::default(),
            demand: Mutex::default(),
            streams: Mutex::default(),
            targets: ArcSwap::default(),
            fitted: ArcSwapOption::empty(),
            fit: Bell::default(),
            assign: Notify::new(),
            epoch: AtomicU64::new(0),
            probing: Probing::default(),
            heard: AtomicU64::new(0),
            #[cfg(test)]
            fixed: fixed::Fixed::default(),
        }))
    }

    /// Since this began.
    pub(crate) fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// The way between two nodes.
    pub fn reading(&self, a: &str, b: &str) -> Reading {
        #[cfg(test)]
        if let Some(fixed) = self.0.fixed.reading(a, b) {
            return fixed;
        }
        let ledger = self.0.ledger.lock();
        match (ledger.id(a), ledger.id(b)) {
            (Some(a), Some(b)) => ledger.reading(a, b, self.now()),
            _ => Reading::Nothing,
        }
    }

    /// An active rule of `asker` names the pair: it is measured every two seconds, for as
    /// long as `keep` after the last call. Of nodes that are not there nothing is.
    pub(crate) fn demand(&self, asker: Asker<'_>, a: &str, b: &str, keep: Duration) {
        let snapshot = self.0.feed.snapshot();
        if snapshot.node(a).is_none() || snapshot.node(b).is_none() {
            return;
        }
        if self.0.demand.lock().ask(asker, a, b, self.now() + keep) {
            self.0.assign.notify_one();
        }
    }

    /// Speed of the slowest interface that leads out of the node, as its agent says.
    pub fn nic_bits_per_second(&self, node: &str) -> Option<u64> {
        #[cfg(test)]
        if let Some(fixed) = self.0.fixed.nic(node) {
            return Some(fixed);
        }
        let ledger = self.0.ledger.lock();
        ledger.get(ledger.id(node)?)?.nic_bits_per_second
    }

    /// Whether an agent was connected within the last ten minutes.
    pub fn is_measuring(&self) -> bool {
        #[cfg(test)]
        if self.0.fixed.any() {
            return true;
        }
        match self.0.heard.load(Ordering::Relaxed) {
            0 => false,
            at => self.now() < Duration::from_millis(at) + LATELY,
        }
    }

    pub(crate) fn heard(&self, now: Duration) {
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX - 1);
        self.0.heard.store(millis + 1, Ordering::Relaxed);
    }
}
