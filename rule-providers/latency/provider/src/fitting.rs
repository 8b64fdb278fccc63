//! The background thread that fits: it takes what has changed, and publishes
//! estimates and what each node is to measure. Nobody waits for it.

mod fitter;
mod state;

#[cfg(test)]
mod tests;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use tautline_rtt_model::{Fit, NodeId, Row};
use tokio_util::sync::CancellationToken;

use crate::{ledger::Id, network::Network};
use fitter::Fitter;

/// How long news wait at the most before they are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// After a fit that panicked.
const RECOVER: Duration = Duration::from_secs(5);

/// Rows that are kept of a fit; at 5,000 nodes each has 40 KB.
const MOST_ROWS: usize = 32;

/// What the last fit says, and how it numbers the instances.
#[derive(Debug)]
pub(crate) struct Fitted {
    fit: Arc<Fit>,
    ids: HashMap<Id, NodeId>,
    at: Instant,
    /// Those that were asked for: the same peers are asked about again and again.
    rows: Mutex<HashMap<Id, Arc<Row>>>,
}

impl Fitted {
    pub fn node(&self, id: Id) -> Option<NodeId> {
        self.ids.get(&id).copied()
    }

    fn new(fit: Arc<Fit>, ids: HashMap<Id, NodeId>, at: Instant) -> Self {
        Self {
            fit,
            ids,
            at,
            rows: Mutex::default(),
        }
    }

    /// All estimates from a peer.
    pub fn row(&self, peer: Id) -> Option<Arc<Row>> {
        if let Some(row) = self.rows.lock().get(&peer) {
            return Some(Arc::clone(row));
        }
        let row = Arc::new(self.fit.row(self.node(peer)?)?);
        let mut rows = self.rows.lock();
        if rows.len() >= MOST_ROWS {
            rows.clear();
        }
        rows.insert(peer, Arc::clone(&row));
        Some(row)
    }

    pub fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

/// Wakes the thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.heard.notify_one();
    }

    fn wait(&self, most: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            _ = self.heard.wait_for(&mut rung, most);
        }
        *rung = false;
    }
}

/// Fits until told to stop. A fit that panics is counted, and all begins anew from
/// what the ledger holds; readers keep the last one.
pub(crate) fn run(network: &Network, stop: &CancellationToken) {
    let mut fitter = state::restore(network).unwrap_or_else(|| Fitter::new(network.clone()));
    while !stop.is_cancelled() {
        network.0.fit.wait(LOOK);
        if !contained(network, &mut fitter, |fitter| fitter.step(Instant::now())) {
            let until = Instant::now() + RECOVER;
            while Instant::now() < until && !stop.is_cancelled() {
                network.0.fit.wait(LOOK);
            }
        }
    }
    fitter.save();
}

/// Does a step; false if it panicked, and the fitter is a new one.
fn contained(network: &Network, fitter: &mut Fitter, step: impl FnOnce(&mut Fitter)) -> bool {
    if catch_unwind(AssertUnwindSafe(|| step(fitter))).is_ok() {
        return true;
    }
    network.0.metrics.fit_panics.inc();
    tracing::error!("a fit panicked; the estimates stay as they were, and it begins anew");
    *fitter = Fitter::new(network.clone());
    network.0.ledger.lock().tell_all();
    false
}
