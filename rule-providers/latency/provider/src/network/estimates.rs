use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tautline_rtt_model::{Fit, NodeId, Row};

use super::pair_store::InstanceId;

/// The maximum number of cached rows of a fit; at 5,000 nodes each row has 40 KB.
const MAX_ROWS: usize = 32;

pub(crate) type Estimates = ArcSwapOption<PublishedFit>;

#[derive(Debug)]
pub(crate) struct PublishedFit {
    fit: Arc<Fit>,
    ids: HashMap<InstanceId, NodeId>,
    at: Instant,
    /// The cached rows by peer; requests often name the same peers.
    rows: Mutex<HashMap<InstanceId, Arc<Row>>>,
}

impl PublishedFit {
    pub fn new(fit: Arc<Fit>, ids: HashMap<InstanceId, NodeId>, at: Instant) -> Self {
        Self {
            fit,
            ids,
            at,
            rows: Mutex::default(),
        }
    }

    pub fn node(&self, id: InstanceId) -> Option<NodeId> {
        self.ids.get(&id).copied()
    }

    pub fn row(&self, peer: InstanceId) -> Option<Arc<Row>> {
        if let Some(row) = self.rows.lock().get(&peer) {
            return Some(Arc::clone(row));
        }
        let row = Arc::new(self.fit.row(self.node(peer)?)?);
        let mut rows = self.rows.lock();
        if rows.len() >= MAX_ROWS {
            rows.clear();
        }
        rows.insert(peer, Arc::clone(&row));
        Some(row)
    }

    pub fn age(&self) -> Duration {
        self.at.elapsed()
    }
}
