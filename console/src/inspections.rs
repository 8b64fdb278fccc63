//! Keeps the GPU provider's view of the cluster, which is computed at most once a second.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tautline_core::Snapshot;
use tautline_gpu_placement::{PlannedClasses, dra::DeviceStore, inventory::CardPool};
use tautline_gpu_slice::{
    Config, Inspection, dra,
    inspection::NodeGpus,
    report::{Fragmentation, Order, Top, Total, Uses, has_gpus, warnings},
};
use tautline_runtime::cluster_store::ClusterStore;
use tokio::task::spawn_blocking;

use crate::{console::Console, draw::clean};

/// The time for which a view of an earlier snapshot is shown at least.
const MIN_FRESH_TIME: Duration = Duration::from_secs(1);
/// The time for which an earlier view is shown at least, as a multiple of the time to compute it.
/// Counting cards thus takes at most a tenth of a core.
const FRESH_FACTOR: u32 = 10;

/// The maximum number of warnings on a page.
pub(crate) const MAX_WARNINGS: usize = 20;
const MAX_WARNING_CHARS: usize = 300;

/// An [`Inspection`], with the results of one pass over all nodes.
pub(crate) struct Inspected {
    pub inspection: Inspection,
    /// The totals that `tautline gpu top` prints, without the agents' measurements.
    pub totals: Vec<Total>,
    /// The figures of all nodes, in the order of the inspection.
    pub figures: Vec<Figures>,
    pub fragmentation: Fragmentation,
    /// The products of all cards, for the filter.
    pub products: BTreeSet<String>,
    /// The namespaces of all pods with parts of cards, for the filter.
    pub namespaces: BTreeSet<String>,
    /// The first warnings, cleaned.
    pub warnings: Vec<String>,
    pub warning_count: usize,
    /// The number of nodes whose cards an agent gives to containers.
    pub agents: usize,
}

/// The figures by which a node is sorted and paged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub has_gpus: bool,
    pub free_milli: i64,
    /// The fragmented thousandths of the node's cards, not rounded.
    pub fragmented: f64,
    pub faults: usize,
    /// The number of the node's bars and segments, with two for its head.
    pub drawn: usize,
}

impl Inspected {
    fn new(snapshot: Arc<Snapshot>, devices: DeviceStore) -> Self {
        let inspection = Inspection::new(snapshot, Config::default(), devices);
        let uses = Uses::default();
        let nodes = inspection.nodes();
        let types = inspection.types();
        let pools = || nodes.iter().flat_map(|node| &node.inventory.pools);
        let counted = nodes.iter().flat_map(|node| &node.inventory.counted);
        let products = pools().map(|pool| &pool.kind.product);
        let products = products.chain(counted.map(|counted| &counted.product));
        let holders = pools().flat_map(|p| &p.cards).flat_map(|c| &c.holders);
        let has_agent = |node: &&NodeGpus<'_>| node.inventory.pools.iter().any(CardPool::has_agent);
        let mut warnings = nodes.iter().flat_map(|n| warnings(&inspection, &uses, n));
        let first = warnings.by_ref().take(MAX_WARNINGS);
        let first: Vec<String> = first.map(|warning| clean_warning(&warning)).collect();
        Self {
            totals: Top::new(&inspection, &uses, None, Order::Name).totals,
            figures: nodes.iter().map(|n| Figures::new(n, &types)).collect(),
            fragmentation: Fragmentation::new(&inspection, &uses),
            products: names(products.map(|name| &**name).filter(|name| !name.is_empty())),
            namespaces: names(holders.filter_map(|holder| holder.pod.split('/').next())),
            warning_count: first.len() + warnings.count(),
            warnings: first,
            agents: nodes.iter().filter(has_agent).count(),
            inspection,
        }
    }
}

/// Returns the names without duplicates.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let distinct: BTreeSet<&str> = all.collect();
    distinct.into_iter().map(str::to_owned).collect()
}

/// Returns a warning in one line, cut if it is long.
pub(crate) fn clean_warning(warning: &str) -> String {
    clean(warning, MAX_WARNING_CHARS)
}

impl Figures {
    fn new(node: &NodeGpus<'_>, types: &PlannedClasses) -> Self {
        let cards = || node.inventory.pools.iter().flat_map(|pool| &pool.cards);
        let rooms = node.capacities.iter();
        Self {
            has_gpus: has_gpus(node),
            free_milli: cards().map(|card| i64::from(card.left_milli())).sum(),
            fragmented: rooms.map(|room| types.fragmented_milli(room)).sum(),
            faults: cards().filter(|card| card.fault.is_some()).count(),
            drawn: 2 + cards().map(|card| 2 + card.holders.len()).sum::<usize>(),
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
    /// Returns the view of the current objects, or a fresh one of earlier objects.
    pub(crate) async fn get(&self, console: &Console) -> Result<Arc<Inspected>> {
        let (last, store) = (self.clone(), console.store.clone());
        let (slices, claims) = (console.slices.list(), console.claims.list());
        let source = Arc::clone(&console.source);
        // Devices and claims change without the snapshot.
        let steady = slices.is_empty();
        let devices = move || {
            source.planned_devices().unwrap_or_else(|| {
                dra::device_store(slices.iter().map(|s| &**s), claims.iter().map(|c| &**c))
            })
        };
        // The computation continues even if this request stops waiting for it.
        let made = spawn_blocking(move || last.get_blocking(&store, devices, steady)).await;
        made.context("the cards cannot be counted")
    }

    fn get_blocking(
        &self,
        store: &ClusterStore,
        devices: impl FnOnce() -> DeviceStore,
        steady: bool,
    ) -> Arc<Inspected> {
        // The first request computes the view under the lock. Requests at the same time wait for it.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = store.snapshot();
        if let Some(made) = last.as_ref().filter(|m| m.is_fresh(&snapshot, steady)) {
            return Arc::clone(&made.inspected);
        }
        let started = Instant::now();
        let inspected = Arc::new(Inspected::new(snapshot, devices()));
        *last = Some(Made {
            at: Instant::now(),
            took: started.elapsed(),
            inspected: Arc::clone(&inspected),
        });
        inspected
    }
}

impl Made {
    fn is_fresh(&self, now: &Arc<Snapshot>, steady: bool) -> bool {
        let fresh = MIN_FRESH_TIME.max(self.took * FRESH_FACTOR);
        let is_same = Arc::ptr_eq(self.inspected.inspection.snapshot(), now);
        (is_same && steady) || self.at.elapsed() < fresh
    }
}

#[cfg(test)]
mod tests {
    use tautline_core::{index::Object, model::Node};

    use super::*;
    use crate::tests::{self, FakeSource};

    #[tokio::test]
    async fn an_unchanged_cluster_is_inspected_once() {
        let console = tests::console("", FakeSource::default());
        let (inspections, store) = (Inspections::default(), console.store.clone());
        let node = |name: &str| {
            Object::Node(Node {
                name: name.into(),
                ..Node::default()
            })
        };
        store.apply(node("a"));
        let first = inspections.get(&console).await.unwrap();
        let again = inspections.get(&console).await.unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        store.apply(node("b"));
        let within_the_time = inspections.get(&console).await.unwrap();
        assert!(Arc::ptr_eq(&first, &within_the_time));
        {
            let mut last = inspections.0.lock().unwrap();
            let made = last.as_mut().unwrap();
            made.at -= MIN_FRESH_TIME.max(made.took * FRESH_FACTOR);
        }
        let later = inspections.get(&console).await.unwrap();
        assert_eq!(later.inspection.nodes().len(), 2);
    }
}
