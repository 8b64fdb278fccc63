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
use tokio::{
    sync::Semaphore,
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

use crate::pages::gpu::Summary;

/// The time for which a view of an earlier snapshot is shown at least.
const MIN_FRESH_TIME: Duration = Duration::from_secs(1);
/// The time for which an earlier view is shown at least, as a multiple of the time to compute it.
/// Counting cards thus takes at most a tenth of a core.
const FRESH_FACTOR: u32 = 10;
/// The maximum wait for a new view before the earlier one is shown.
const MAX_NEW_VIEW_WAIT: Duration = Duration::from_millis(150);
/// The maximum wait for the first view.
const DEADLINE: Duration = Duration::from_secs(10);

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

/// The last view, and the permit to compute a new one.
pub(crate) struct Inspections {
    last: Arc<Mutex<Option<Made>>>,
    turn: Arc<Semaphore>,
}

/// A computed view.
struct Made {
    at: Instant,
    took: Duration,
    inspected: Arc<Inspected>,
}

impl Default for Inspections {
    fn default() -> Self {
        Self {
            last: Arc::default(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Inspections {
    /// Returns the view of the store's current snapshot, or an earlier one while the new one is
    /// computed.
    pub(crate) async fn get(&self, store: &ClusterStore) -> Result<Arc<Inspected>> {
        let snapshot = store.snapshot();
        let earlier = match &*lock(&self.last) {
            Some(made) if made.is_fresh(&snapshot) => return Ok(Arc::clone(&made.inspected)),
            made => made.as_ref().map(|made| Arc::clone(&made.inspected)),
        };
        // The computation continues even if this request stops waiting for it.
        let making = self.make(store.clone());
        match earlier {
            Some(earlier) => match timeout(MAX_NEW_VIEW_WAIT, making).await {
                Ok(made) => made.context("the cards cannot be counted")?,
                Err(_) => Ok(earlier),
            },
            None => {
                let made = timeout(DEADLINE, making).await;
                let made = made.context("the cards are being counted; try again")?;
                made.context("the cards cannot be counted")?
            }
        }
    }

    fn make(&self, store: ClusterStore) -> JoinHandle<Result<Arc<Inspected>>> {
        let (last, turn) = (Arc::clone(&self.last), Arc::clone(&self.turn));
        tokio::spawn(async move {
            let _turn = turn.acquire().await?;
            let snapshot = store.snapshot();
            if let Some(made) = &*lock(&last)
                && made.is_fresh(&snapshot)
            {
                return Ok(Arc::clone(&made.inspected));
            }
            let at = Instant::now();
            let inspected = Arc::new(spawn_blocking(move || Inspected::new(snapshot)).await?);
            *lock(&last) = Some(Made {
                at: Instant::now(),
                took: at.elapsed(),
                inspected: Arc::clone(&inspected),
            });
            Ok(inspected)
        })
    }
}

impl Made {
    fn is_fresh(&self, now: &Arc<Snapshot>) -> bool {
        let fresh = MIN_FRESH_TIME.max(self.took * FRESH_FACTOR);
        Arc::ptr_eq(self.inspected.inspection.snapshot(), now) || self.at.elapsed() < fresh
    }
}

fn lock(last: &Mutex<Option<Made>>) -> std::sync::MutexGuard<'_, Option<Made>> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
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
            let mut last = lock(&inspections.last);
            let made = last.as_mut().unwrap();
            made.at -= MIN_FRESH_TIME.max(made.took * FRESH_FACTOR);
        }
        // The request gets an earlier view if the machine is busy.
        let until = Instant::now() + DEADLINE;
        while inspections
            .get(&store)
            .await
            .unwrap()
            .inspection
            .nodes()
            .len()
            < 2
        {
            assert!(Instant::now() < until, "the change is not seen");
        }
    }
}
