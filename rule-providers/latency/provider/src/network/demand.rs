use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tautline_runtime::cluster_store::ClusterStore;

use super::{
    demanded_pairs::{DemandedPairs, Requester},
    measured_pairs::MeasuredPairs,
    signals::Signals,
};

#[derive(Debug)]
pub(crate) struct Demand {
    store: ClusterStore,
    clock: Arc<MeasuredPairs>,
    signals: Arc<Signals>,
    pairs: Mutex<DemandedPairs>,
}

impl Demand {
    pub fn new(store: ClusterStore, clock: Arc<MeasuredPairs>, signals: Arc<Signals>) -> Self {
        Self {
            store,
            clock,
            signals,
            pairs: Mutex::default(),
        }
    }

    /// Records that an active rule of the requester names the pair, which is then measured every
    /// two seconds until `keep` after the last call. Pairs of unknown nodes are ignored.
    pub fn add(&self, requester: Requester<'_>, a: &str, b: &str, keep: Duration) {
        let snapshot = self.store.snapshot();
        if snapshot.node(a).is_none() || snapshot.node(b).is_none() {
            return;
        }
        let until = self.clock.now() + keep;
        if self.pairs.lock().add(requester, a, b, until) {
            self.signals.assign.notify_one();
        }
    }

    pub fn expire(&self) -> bool {
        self.pairs.lock().expire(self.clock.now())
    }

    pub fn lock(&self) -> MutexGuard<'_, DemandedPairs> {
        self.pairs.lock()
    }
}
