//! The pair store that requests and tasks share, and its clock.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::pair_store::PairStore;
use crate::measurement::Measurement;

#[derive(Debug)]
pub(crate) struct MeasuredPairs {
    start: Instant,
    store: Mutex<PairStore>,
}

impl Default for MeasuredPairs {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            store: Mutex::default(),
        }
    }
}

impl MeasuredPairs {
    /// Returns the time since the start; all times in the store are such durations.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn at(&self, time: Instant) -> Duration {
        time.saturating_duration_since(self.start)
    }

    /// Locks the pair store. A caller that needs both locks must lock the sessions first.
    pub fn lock(&self) -> MutexGuard<'_, PairStore> {
        self.store.lock()
    }

    pub fn measurement(&self, a: &str, b: &str) -> Measurement {
        let store = self.lock();
        match (store.id(a), store.id(b)) {
            (Some(a), Some(b)) => store.measurement(a, b, self.now()),
            _ => Measurement::Missing,
        }
    }

    /// Returns the speed of the slowest interface that leads out of the node.
    pub fn nic_bits_per_second(&self, node: &str) -> Option<u64> {
        let store = self.lock();
        store.get(store.id(node)?)?.nic_bits_per_second
    }
}
