//! The GPUs of every node, updated from the watch.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use tautline_core::{Snapshot, model::Pod, planning::fnv1a_64};
use tautline_gpu_placement::{
    CostCache, Inventory, Names, Shape,
    inventory::{self, CardPool, PodReservation},
};
use tautline_sdk::CostChanges;

use crate::{
    config::{Config, NodeOrder},
    gpu_request::{self, GpuRequest},
    request_learner::RequestLearner,
};

#[derive(Debug, Default)]
pub(crate) struct NodeEntry {
    pub(crate) inventory: Inventory,
    pub(crate) slots: Vec<usize>,
    pub(crate) position: f64,
}

pub(crate) struct AnswerParts<'a> {
    pub(crate) names: &'a Names,
    pub(crate) nodes: &'a HashMap<Arc<str>, NodeEntry>,
    pub(crate) costs: &'a mut CostCache,
}

/// The pods on a node that the watch does not show there yet.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) reserved: Vec<PodReservation>,
    pub(crate) assumed: Vec<Arc<Pod>>,
}

#[derive(Debug)]
pub(crate) struct ClusterInventory {
    pub(crate) names: Names,
    pub(crate) costs: CostCache,
    nodes: HashMap<Arc<str>, NodeEntry>,
    pub(crate) changes: CostChanges,
    /// The [`CostCache::version`] at the last change.
    version: (u32, u32),
    last_snapshot: Arc<Snapshot>,
    slots: SlotAllocator,
    order: NodeOrder,
    learner: RequestLearner,
}

/// Allocates indexes in the cost cache. Indexes of deleted nodes are reused.
#[derive(Debug, Default)]
struct SlotAllocator {
    unused: Vec<usize>,
    count: usize,
}

impl SlotAllocator {
    fn allocate(&mut self) -> usize {
        self.unused.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

impl ClusterInventory {
    pub(crate) fn new(config: Config) -> Self {
        let mut costs = CostCache::new(config.policy.build());
        let learner = match config.classes {
            None => RequestLearner::default(),
            Some(classes) => {
                costs.plan_for(classes);
                RequestLearner::fixed()
            }
        };
        Self {
            names: config.names,
            costs,
            nodes: HashMap::new(),
            changes: CostChanges::default(),
            version: (0, 0),
            last_snapshot: Arc::default(),
            slots: SlotAllocator::default(),
            order: config.order,
            learner,
        }
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeEntry> {
        self.nodes.get(name)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, &NodeEntry)> {
        self.nodes.iter()
    }

    pub(crate) fn parts(&mut self) -> AnswerParts<'_> {
        AnswerParts {
            names: &self.names,
            nodes: &self.nodes,
            costs: &mut self.costs,
        }
    }

    /// Applies the changes since the last snapshot. `touched` lists the nodes whose reservations or
    /// assumed pods have changed.
    pub(crate) fn sync(
        &mut self,
        now: Arc<Snapshot>,
        touched: &[Arc<str>],
        held: impl Fn(&str) -> Held,
    ) {
        let last = Arc::clone(&self.last_snapshot);
        if Arc::ptr_eq(&last, &now) && touched.is_empty() {
            return;
        }
        // The names are sorted, so that the same cluster has the same costs in every process.
        let mut names: BTreeSet<&str> = now.changed_nodes(&last).collect();
        names.extend(touched.iter().map(|n| &**n));
        let mut members_changed = false;
        for name in names {
            members_changed |= self.sync_node(&now, name, &held(name));
        }
        if members_changed && self.order == NodeOrder::Named {
            self.order_by_name();
        }
        let new = now
            .changed_pods(&last)
            .filter_map(|(old, new)| new.filter(|new| old.is_none_or(|old| old.uid != new.uid)));
        let (names, nodes) = (&self.names, &self.nodes);
        let shape = |costs: &CostCache, pod: &Pod| pod_shape(names, nodes, costs, pod);
        let new = new.map(|pod| &**pod);
        self.learner.count_pods(&mut self.costs, new, shape);
        self.last_snapshot = now;
        self.note_version();
    }

    /// Reports that all costs have changed if the policy weighs nodes differently now.
    fn note_version(&mut self) {
        let version = self.costs.version();
        if std::mem::replace(&mut self.version, version) != version {
            self.changes.changed_all();
        }
    }

    fn sync_node(&mut self, now: &Snapshot, name: &str, held: &Held) -> bool {
        self.changes.changed(name);
        let Some(node) = now.node(name) else {
            let gone = self.nodes.remove(name);
            for slot in gone.iter().flat_map(|e| &e.slots) {
                self.costs.set_capacity(*slot, None);
                self.slots.unused.push(*slot);
            }
            return gone.is_some();
        };
        let pods = now.pods_on(name).iter().chain(&held.assumed);
        let pods = pods.map(|p| &**p);
        let inventory = inventory::read(&self.names, node, pods, &held.reserved);
        let new = !self.nodes.contains_key(name);
        let entry = self.nodes.entry(Arc::clone(&node.name)).or_default();
        for warning in &inventory.warnings {
            if !entry.inventory.warnings.contains(warning) {
                tracing::warn!(node = name, "{warning}");
            }
        }
        while entry.slots.len() > inventory.pools.len() {
            if let Some(slot) = entry.slots.pop() {
                self.costs.set_capacity(slot, None);
                self.slots.unused.push(slot);
            }
        }
        while entry.slots.len() < inventory.pools.len() {
            entry.slots.push(self.slots.allocate());
        }
        if self.order == NodeOrder::Mixed {
            entry.position = fnv1a_64(&[name]) as f64 / u64::MAX as f64;
        }
        for (pool, slot) in inventory.pools.iter().zip(&entry.slots) {
            self.costs.set_position(*slot, entry.position);
            let kind = self.costs.kind_index(&pool.kind);
            self.costs
                .set_capacity(*slot, Some(inventory.capacity(pool, kind)));
        }
        entry.inventory = inventory;
        new
    }

    /// Sets the nodes' positions by the order of their names, in which each position depends on all
    /// nodes.
    fn order_by_name(&mut self) {
        self.changes.changed_all();
        let mut order: Vec<(&Arc<str>, &mut NodeEntry)> = self.nodes.iter_mut().collect();
        order.sort_unstable_by(|a, b| a.0.cmp(b.0));
        let count = order.len() as f64;
        for (rank, (_, entry)) in order.into_iter().enumerate() {
            entry.position = rank as f64 / count;
            for slot in &entry.slots {
                self.costs.set_position(*slot, entry.position);
            }
        }
    }

    /// Returns the shape that the pod requests; `None`: it requests no cards, or units of unknown
    /// size.
    pub(crate) fn pod_shape(&self, pod: &Pod) -> Option<Shape> {
        pod_shape(&self.names, &self.nodes, &self.costs, pod)
    }

    pub(crate) fn count_request(&mut self, uid: &str, request: &GpuRequest) -> Option<Shape> {
        let (learner, costs) = (&mut self.learner, &mut self.costs);
        let counted = learner.count_request(&self.names, costs, uid, request);
        self.note_version();
        counted
    }

    pub(crate) fn plan_now(&mut self) {
        self.learner.plan_now(&mut self.costs);
    }

    pub(crate) fn class_count(&self) -> usize {
        self.learner.class_count()
    }
}

fn pod_shape(
    names: &Names,
    nodes: &HashMap<Arc<str>, NodeEntry>,
    costs: &CostCache,
    pod: &Pod,
) -> Option<Shape> {
    let entry = pod.node.as_deref().and_then(|n| nodes.get(n));
    let pools = entry.map_or(&[][..], |e| &e.inventory.pools);
    let on_node = pools.iter().find_map(|p| p.kind.mode.unit_milli());
    let anywhere = || {
        let modes = costs.kinds().iter().map(|k| k.mode);
        modes.filter(|m| m.unit_milli().is_some()).min()
    };
    let unit_milli = on_node.or_else(|| anywhere()?.unit_milli());
    // The smallest card of any node counts if the memory of the cards on the pod's node is not
    // known.
    let memory = |pools: &[CardPool]| {
        let of_agents = pools.iter().filter(|p| p.has_agent());
        of_agents.filter_map(|p| p.card_memory_bytes).min()
    };
    let card_memory_bytes = || {
        let all = || nodes.values().map(|e| &e.inventory.pools);
        memory(pools).or_else(|| all().filter_map(|p| memory(p)).min())
    };
    let by_agent = pools.iter().any(CardPool::has_agent);
    gpu_request::pod_shape_with(names, pod, unit_milli, by_agent, card_memory_bytes)
}
