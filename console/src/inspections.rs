//! Keeps the GPU provider's view of the cluster, which is computed at most once a second.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tautline_core::Snapshot;
use tautline_gpu_slice::{
    Config, Inspection,
    inspection::NodeGpus,
    report::{Fragmentation, Order, Top, Total, Uses, has_gpus, warnings},
};
use tautline_runtime::cluster_store::ClusterStore;
use tokio::task::spawn_blocking;

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

/// The maximum number of warnings on a page.
pub(crate) const MAX_WARNINGS: usize = 20;
pub(crate) const MAX_WARNING_CHARS: usize = 300;

/// The results of one pass over all nodes.
pub(crate) struct Summary {
    /// The figures of all nodes, in the order of the inspection.
    pub figures: Vec<Figures>,
    pub fragmentation: Fragmentation,
    /// The products of all cards, for the filter.
    pub products: BTreeSet<String>,
    /// The namespaces of all pods with parts of cards, for the filter.
    pub namespaces: BTreeSet<String>,
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

impl Summary {
    pub(crate) fn new(inspection: &Inspection) -> Self {
        let nodes = inspection.nodes();
        let types = inspection.types();
        let uses = Uses::default();
        let mut summary = Self {
            figures: Vec::with_capacity(nodes.len()),
            fragmentation: Fragmentation::new(inspection, &uses),
            products: BTreeSet::new(),
            namespaces: BTreeSet::new(),
            warnings: Vec::new(),
            warning_count: 0,
            agents: 0,
        };
        for node in &nodes {
            let mut figures = Figures::new(node);
            let rooms = node.capacities.iter();
            figures.fragmented = rooms.map(|room| types.fragmented_milli(room)).sum();
            summary.figures.push(figures);
            summary.add_names(node);
            for warning in warnings(inspection, &uses, node) {
                summary.warning_count += 1;
                if summary.warnings.len() < MAX_WARNINGS {
                    summary.warnings.push(warning);
                }
            }
        }
        summary
    }

    fn add_names(&mut self, node: &NodeGpus<'_>) {
        let pools = &node.inventory.pools;
        self.agents += usize::from(pools.iter().any(|pool| pool.has_agent()));
        let counted = node.inventory.counted.iter().map(|c| &c.product);
        for product in pools.iter().map(|pool| &pool.kind.product).chain(counted) {
            if !product.is_empty() && !self.products.contains(&**product) {
                self.products.insert(product.to_string());
            }
        }
        for holder in pools.iter().flat_map(|p| &p.cards).flat_map(|c| &c.holders) {
            let namespace = holder.pod.split('/').next().unwrap_or_default();
            if !self.namespaces.contains(namespace) {
                self.namespaces.insert(namespace.to_owned());
            }
        }
    }
}

impl Figures {
    fn new(node: &NodeGpus<'_>) -> Self {
        let cards = || node.inventory.pools.iter().flat_map(|pool| &pool.cards);
        Self {
            has_gpus: has_gpus(node),
            free_milli: cards().map(|card| i64::from(card.left_milli())).sum(),
            fragmented: 0.0,
            faults: cards().filter(|card| card.fault.is_some()).count(),
            drawn: 2 + cards().map(|card| 2 + card.holders.len()).sum::<usize>(),
        }
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
