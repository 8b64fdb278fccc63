//! The GPUs of every node, updated from the watch.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use tautline_core::{Snapshot, model::Pod, planning::fnv1a_64};
use tautline_gpu_placement::{
    CARD_MILLI, CostCache, Inventory, RequestClass, Shape, SharingMode,
    dra::DeviceStore,
    inventory::{self, CardPool, PodReservation},
    node_inventory::NodeInventory,
    policy::PolicyName,
    shape::memory_milli,
};
use tautline_sdk::CostChanges;

use crate::{
    gpu_request::{self, Amount, GpuRequest},
    pool_shape::shape_on_pool,
    request_learner::RequestLearner,
};

/// The configuration of the provider.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The policy by which nodes and cards are chosen.
    pub policy: PolicyName,
    /// The order in which equally good nodes are filled.
    pub order: NodeOrder,
    /// The distribution of requests to plan for; `None`: it is learned from the cluster.
    pub classes: Option<Vec<(RequestClass, f64)>>,
    /// The name of a second annotation, which has a pod's cards as indexes (`0-1`) for other
    /// runtimes.
    pub index_annotation: Option<String>,
}

/// The order in which nodes are filled, if the policy uses an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrder {
    /// Nodes are ordered by a hash of their names, because nodes of one model often have similar
    /// names.
    #[default]
    Mixed,
    /// Nodes are ordered by their names, ascending.
    Named,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NodeEntry {
    pub(crate) inventory: Inventory,
    pub(crate) slots: Vec<usize>,
    pub(crate) position: f64,
}

/// The pods on a node that the watch does not show there yet, and its claimed cards.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) reserved: Vec<PodReservation>,
    pub(crate) assumed: Vec<Arc<Pod>>,
    /// The cards that the node's agent offers as devices.
    pub(crate) claimed: Option<NodeInventory>,
}

impl Held {
    /// Adds the cards that the node's agent offers as devices, and the claims on them.
    pub(crate) fn with_claims(mut self, devices: &DeviceStore, now: &Snapshot, node: &str) -> Self {
        self.claimed = devices.agent_cards(node);
        let claims = devices.agent_holders(node, now.pods_on(node));
        self.reserved.extend(claims);
        self
    }
}

#[derive(Debug)]
pub(crate) struct ClusterInventory {
    pub(crate) costs: CostCache,
    pub(crate) nodes: HashMap<Arc<str>, NodeEntry>,
    pub(crate) changes: CostChanges,
    /// The [`CostCache::version`] at the last change.
    version: (u32, u32),
    last_snapshot: Arc<Snapshot>,
    /// The number of indexes in the cost cache, and those of deleted nodes, which are reused.
    slot_count: usize,
    unused_slots: Vec<usize>,
    order: NodeOrder,
    pub(crate) learner: RequestLearner,
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
            costs,
            nodes: HashMap::new(),
            changes: CostChanges::default(),
            version: (0, 0),
            last_snapshot: Arc::default(),
            slot_count: 0,
            unused_slots: Vec::new(),
            order: config.order,
            learner,
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
        let new = new.filter(|pod| self.learner.counts(pod));
        let shapes: Vec<Shape> = new.filter_map(|pod| self.pod_shape(pod)).collect();
        self.learner.count_shapes(&mut self.costs, &shapes);
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
                self.unused_slots.push(*slot);
            }
            return gone.is_some();
        };
        let pods = now.pods_on(name).iter().chain(&held.assumed);
        let pods = pods.map(|p| &**p);
        let inventory = inventory::read(node, pods, &held.reserved, held.claimed.as_ref());
        let new = !self.nodes.contains_key(name);
        let entry = self.nodes.entry(Arc::clone(&node.name)).or_default();
        for warning in &inventory.warnings {
            if !entry.inventory.warnings.contains(warning) {
                tracing::warn!(node = name, "{warning}");
            }
        }
        let pools = inventory.pools.len();
        for slot in entry.slots.drain(pools.min(entry.slots.len())..) {
            self.costs.set_capacity(slot, None);
            self.unused_slots.push(slot);
        }
        entry.slots.resize_with(pools, || {
            self.unused_slots.pop().unwrap_or_else(|| {
                self.slot_count += 1;
                self.slot_count - 1
            })
        });
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

    /// Returns the percentage of all cards that pods have; `None`: no node has cards.
    pub(crate) fn given_percent(&self) -> Option<u64> {
        let cards = self.pools().flat_map(|pool| &pool.cards);
        let (given_milli, all_milli) = cards.fold((0, 0), |(given, all), card| {
            let held = u64::from(card.held_milli());
            (given + held, all + u64::from(CARD_MILLI))
        });
        (given_milli * 100).checked_div(all_milli)
    }

    /// Returns the shape that the pod requests; `None`: it requests no cards, or units of unknown
    /// size.
    pub(crate) fn pod_shape(&self, pod: &Pod) -> Option<Shape> {
        let entry = pod.node.as_deref().and_then(|n| self.nodes.get(n));
        let pools = entry.map_or(&[][..], |e| &e.inventory.pools);
        let on_node = pools.iter().find_map(|p| p.kind.mode.unit_milli());
        let modes = self.costs.kinds().iter().map(|k| k.mode);
        let least = || modes.filter(|m| m.unit_milli().is_some()).min();
        let unit_milli = on_node.or_else(|| least()?.unit_milli());
        // The smallest card of any node counts if the memory of the cards on the pod's node is not
        // known.
        let memory = |pools: &[CardPool]| {
            let of_agents = pools.iter().filter(|p| p.kind.mode == SharingMode::Agent);
            of_agents.filter_map(|p| p.card_memory_bytes).min()
        };
        let anywhere = || {
            self.nodes
                .values()
                .filter_map(|e| memory(&e.inventory.pools))
        };
        let card_memory_bytes = || memory(pools).or_else(|| anywhere().min());
        let by_agent = pools.iter().any(CardPool::has_agent);
        gpu_request::pod_shape_with(pod, unit_milli, by_agent, card_memory_bytes)
    }

    pub(crate) fn count_request(&mut self, uid: &str, request: &GpuRequest) {
        if self.learner.counts_request(&self.costs, uid, request)
            && let Some(shape) = self.likely_shape(request)
        {
            self.count_shape(uid, &shape);
        }
    }

    pub(crate) fn count_shape(&mut self, uid: &str, shape: &Shape) {
        self.learner.count_request(&mut self.costs, uid, shape);
        self.note_version();
    }

    /// Returns the shape of a request on the cards that can serve it, in the likely mode if
    /// possible; `None`: it requests no cards, or the pod must request other resources. `pools` are
    /// those of [`Self::pools_by_shape`].
    pub(crate) fn served_shape(&self, request: &GpuRequest, pools: &[&CardPool]) -> Option<Shape> {
        let likely = self.likely_mode(request);
        let shapes = pools.iter().filter_map(|p| shape_on_pool(request, p).ok());
        // The smallest card gives the largest part.
        let served = shapes.max_by_key(|s| (s.mode == likely, Reverse(s.mode), s.milli()));
        let other_mode = || {
            let mut offered = pools.iter().filter(|pool| pool.offered);
            let shape = self.likely_shape(request)?;
            offered
                .all(|pool| pool.kind.mode != likely)
                .then_some(shape)
        };
        served.or_else(other_mode).filter(Shape::needs_gpu)
    }

    /// Returns a pool of each kind on which a request has its own shape.
    pub(crate) fn pools_by_shape(&self) -> Vec<&CardPool> {
        let kind = |p: &'_ CardPool| {
            (
                p.kind.mode,
                p.card_memory_bytes,
                p.offered,
                p.resource.clone(),
                p.sizes.clone(),
            )
        };
        let kinds: HashMap<_, &CardPool> = self.pools().map(|p| (kind(p), p)).collect();
        kinds.into_values().collect()
    }

    fn likely_shape(&self, request: &GpuRequest) -> Option<Shape> {
        let mode = self.likely_mode(request);
        let milli = match request.amount {
            Amount::Cards(cards) => cards.saturating_mul(i64::from(CARD_MILLI)),
            Amount::Share(milli) => milli,
            Amount::OfAgent(own) if own.milli > 0 => own.milli,
            Amount::Memory(bytes) => {
                let pools = self.pools().filter(|pool| pool.kind.mode == mode);
                let parts = pools.filter_map(|p| memory_milli(bytes, p.card_memory_bytes?));
                parts.max()?
            }
            _ => return None,
        };
        Some(request.shape(mode, mode.round_up(milli)))
    }

    fn likely_mode(&self, request: &GpuRequest) -> SharingMode {
        request.likely_mode(self.costs.kinds().iter().map(|kind| kind.mode))
    }

    fn pools(&self) -> impl Iterator<Item = &CardPool> {
        self.nodes.values().flat_map(|entry| &entry.inventory.pools)
    }

    pub(crate) fn plan_now(&mut self) {
        self.learner.plan_now(&mut self.costs);
    }
}
