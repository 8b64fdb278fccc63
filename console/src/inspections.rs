//! Keeps the GPU provider's view of the cluster, which is computed at most once a second.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tautline_core::Snapshot;
use tautline_gpu_slice::{
    Config, Inspection,
    report::{Order, Top, Total, Uses},
};
use tautline_runtime::cluster_store::ClusterStore;
use tokio::task::spawn_blocking;

use crate::pages::gpu::Summary;

/// The time for which a view of an earlier snapshot is shown at least.
const MIN_FRESH_TIME: Duration = Duration::from_secs(1);
/// The time for which an earlier view is shown at least, as a multiple of the time to compute it.
/// Counting cards thus takes at most a tenth of a core.
const FRESH_FACTOR: u32 = 10;

/// An [`Inspection`], with the sums over all nodes.
pub(crate) struct Inspected {
    pub inspection: Inspection,
    /// The totals that `tautline gpu top` prints, without the agents' measurements.
    pub totals: Vec<Total>,
    pub summary: Summary,
}

impl Inspected {
    fn new(snapshot: Arc<Snapshot>) -> Self {
        let inspection = Inspection::new(snapshot, Config::default());
        Self {
            totals: Top::new(&inspection, &Uses::default(), None, Order::Name).totals,
            summary: Summary::new(&inspection),
            inspection,
        }
    }
}

/// The last view.
#[derive(Clone, Default)]
pub(crate) struct Inspections(Arc<Mutex<Option<Made>>>);

/// A computed view.
struct Made {
    at: Instant,
    took: Duration,
    inspected: Arc<Inspected>,
}

impl Inspections {
    /// Returns the view of the store's current snapshot, or a fresh one of an earlier snapshot.
    pub(crate) async fn get(&self, store: &ClusterStore) -> Result<Arc<Inspected>> {
        let (last, store) = (self.clone(), store.clone());
        // The computation continues even if this request stops waiting for it.
        let made = spawn_blocking(move || last.get_blocking(&store)).await;
        made.context("the cards cannot be counted")
    }

    fn get_blocking(&self, store: &ClusterStore) -> Arc<Inspected> {
        // One request computes, and the others wait for its view.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = store.snapshot();
        if let Some(made) = last.as_ref().filter(|made| made.is_fresh(&snapshot)) {
            return Arc::clone(&made.inspected);
        }
        let started = Instant::now();
        let inspected = Arc::new(Inspected::new(snapshot));
        *last = Some(Made {
            at: Instant::now(),
            took: started.elapsed(),
            inspected: Arc::clone(&inspected),
        });
        inspected
    }
}

impl Made {
    fn is_fresh(&self, now: &Arc<Snapshot>) -> bool {
        let fresh = MIN_FRESH_TIME.max(self.took * FRESH_FACTOR);
        Arc::ptr_eq(self.inspected.inspection.snapshot(), now) || self.at.elapsed() < fresh
    }
}

#[cfg(test)]
mod tests {
    use tautline_core::{index::Object, model::Node};

    use super::*;

    #[tokio::test]
    async fn an_unchanged_cluster_is_inspected_once() {
        let (inspections, store) = (Inspections::default(), ClusterStore::default());
        let node = |name: &str| {
            Object::Node(Node {
                name: name.into(),
                ..Node::default()
            })
        };
        store.apply(node("a"));
        let first = inspections.get(&store).await.unwrap();
        let again = inspections.get(&store).await.unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        store.apply(node("b"));
        let within_the_time = inspections.get(&store).await.unwrap();
        assert!(Arc::ptr_eq(&first, &within_the_time));
        {
            let mut last = inspections.0.lock().unwrap();
            let made = last.as_mut().unwrap();
            made.at -= MIN_FRESH_TIME.max(made.took * FRESH_FACTOR);
        }
        let later = inspections.get(&store).await.unwrap();
        assert_eq!(later.inspection.nodes().len(), 2);
    }
}
