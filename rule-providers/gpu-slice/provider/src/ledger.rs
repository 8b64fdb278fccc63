//! What the provider knows of every node, kept in step with the watch: a change of
//! one pod or node costs that node's work.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use tautline_core::{Snapshot, model::Pod, planning::fnv1a_64};
use tautline_gpu_placement::{
    Board, CARD, Inventory, Names, Popularity, Shape, TaskType,
    inventory::{self, Held, Pool},
    policy::Policy,
};

use crate::{
    lines::Kept,
    need::{self, Amount, Need},
};

/// The distribution is read again once so many more pods have come ...
const LEARN_EVERY: u32 = 64;
/// ... and planned for if it differs by so much; each plan costs all nodes' work.
const DRIFT: f64 = 0.02;
/// Pods whose need only the rule states, and that were counted when they asked.
const COUNTED: usize = 16_384;

/// The order that nodes are filled in, as far as a policy has a say in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By a hash of their names: nodes of one make, which are often named alike, do
    /// not all come first.
    #[default]
    Mixed,
    /// By their names.
    Named,
}

/// A node as it is now.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) inventory: Inventory,
    /// The board's number of each pool.
    pub(crate) slots: Vec<usize>,
    /// Where it stands in the order of nodes, 0 to 1.
    pub(crate) position: f64,
}

/// What answers are made of.
pub(crate) struct Parts<'a> {
    pub(crate) names: &'a Names,
    pub(crate) nodes: &'a HashMap<Arc<str>, Entry>,
    pub(crate) board: &'a mut Board,
    /// What nodes said last; who changes is forgotten.
    pub(crate) kept: &'a mut Kept,
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) names: Names,
    pub(crate) board: Board,
    nodes: HashMap<Arc<str>, Entry>,
    kept: Kept,
    seen: Arc<Snapshot>,
    unused: Vec<usize>,
    slots: usize,
    popularity: Popularity,
    order: Order,
    /// The distribution is given, and nothing is learned.
    fixed: bool,
    unread: u32,
    counted: HashSet<Box<str>>,
}

impl Ledger {
    pub(crate) fn new(names: Names, policy: Box<dyn Policy>, order: Order) -> Self {
        Self {
            names,
            board: Board::new(policy),
            nodes: HashMap::new(),
            kept: Kept::default(),
            seen: Arc::default(),
            unused: Vec::new(),
            slots: 0,
            popularity: Popularity::default(),
            order,
            fixed: false,
            unread: 0,
            counted: HashSet::new(),
        }
    }

    pub(crate) fn of(config: crate::Config) -> Self {
        let mut ledger = Self::new(config.names, config.policy.policy(), config.order);
        if let Some(classes) = config.classes {
            ledger.fix(classes);
        }
        ledger
    }

    /// Plans for this distribution and learns no other.
    pub(crate) fn fix(&mut self, classes: Vec<(TaskType, f64)>) {
        self.fixed = true;
        self.board.plan_for(classes);
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Entry> {
        self.nodes.get(name)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, &Entry)> {
        self.nodes.iter()
    }

    pub(crate) fn parts(&mut self) -> Parts<'_> {
        Parts {
            names: &self.names,
            nodes: &self.nodes,
            board: &mut self.board,
            kept: &mut self.kept,
        }
    }

    /// Takes over what has changed since the last time; `held` tells what is
    /// reserved on a node for pods that are not seen there yet, `touched` the nodes
    /// whose reservations have changed.
    pub(crate) fn sync(
        &mut self,
        now: Arc<Snapshot>,
        touched: &[Arc<str>],
        held: impl Fn(&str) -> Vec<Held>,
    ) {
        let seen = Arc::clone(&self.seen);
        if Arc::ptr_eq(&seen, &now) && touched.is_empty() {
            return;
        }
        // In order, so that the same cluster has the same costs in every process.
        let mut names: BTreeSet<&str> = now.changed_nodes(&seen).collect();
        names.extend(touched.iter().map(|n| &**n));
        let mut members = false;
        for name in names {
            members |= self.read(&now, name, &held(name));
        }
        if members && self.order == Order::Named {
            self.order();
        }
        let new = now
            .changed_pods(&seen)
            .filter_map(|(old, new)| new.filter(|new| old.is_none_or(|old| old.uid != new.uid)));
        self.learn(new.map(|pod| &**pod));
        self.plan();
        self.seen = now;
    }

    /// One node's work. Whether the node is new or has gone.
    fn read(&mut self, now: &Snapshot, name: &str, held: &[Held]) -> bool {
        self.kept.forget(name);
        let Some(node) = now.node(name) else {
            let gone = self.nodes.remove(name);
            for slot in gone.iter().flat_map(|e| &e.slots) {
                self.board.set(*slot, None);
                self.unused.push(*slot);
            }
            return gone.is_some();
        };
        let pods = now.pods_on(name).iter().map(|p| &**p);
        let inventory = inventory::read(&self.names, node, pods, held);
        let new = !self.nodes.contains_key(name);
        let entry = self.nodes.entry(Arc::clone(&node.name)).or_default();
        for warning in &inventory.warnings {
            if !entry.inventory.warnings.contains(warning) {
                tracing::warn!(node = name, "{warning}");
            }
        }
        while entry.slots.len() > inventory.pools.len() {
            if let Some(slot) = entry.slots.pop() {
                self.board.set(slot, None);
                self.unused.push(slot);
            }
        }
        while entry.slots.len() < inventory.pools.len() {
            entry.slots.push(self.unused.pop().unwrap_or_else(|| {
                self.slots += 1;
                self.slots - 1
            }));
        }
        if self.order == Order::Mixed {
            entry.position = fnv1a_64(&[name]) as f64 / u64::MAX as f64;
        }
        for (pool, slot) in inventory.pools.iter().zip(&entry.slots) {
            self.board.stand(*slot, entry.position);
            let kind = self.board.kind(&pool.kind);
            self.board.set(*slot, Some(inventory.room(pool, kind)));
        }
        entry.inventory = inventory;
        new
    }

    /// By name each node's place depends on all others.
    fn order(&mut self) {
        self.kept.clear();
        let mut order: Vec<(&Arc<str>, &mut Entry)> = self.nodes.iter_mut().collect();
        order.sort_unstable_by(|a, b| a.0.cmp(b.0));
        let count = order.len() as f64;
        for (rank, (_, entry)) in order.into_iter().enumerate() {
            entry.position = rank as f64 / count;
            for slot in &entry.slots {
                self.board.stand(*slot, entry.position);
            }
        }
    }

    /// Pods that are new, in no order.
    fn learn<'a>(&mut self, pods: impl Iterator<Item = &'a Pod>) {
        if self.fixed {
            return;
        }
        let pods = pods.filter(|p| !self.counted.contains(&p.uid));
        let shapes: Vec<Shape> = pods.filter_map(|p| self.request_of(p)).collect();
        self.popularity.observe_together(&shapes);
        let count = u32::try_from(shapes.len()).unwrap_or(u32::MAX);
        self.unread = self.unread.saturating_add(count);
    }

    /// What a pod counts as in the distribution; `None`: it asks by itself for no
    /// cards, or for units of unknown size.
    pub(crate) fn request_of(&self, pod: &Pod) -> Option<Shape> {
        let entry = pod.node.as_deref().and_then(|n| self.nodes.get(n));
        let pools = entry.map_or(&[][..], |e| &e.inventory.pools);
        let unit = |pools: &[Pool]| pools.iter().find_map(|p| need::unit_of(p.kind.lane));
        let anywhere = || {
            let lanes = self.board.kinds().iter().map(|k| k.lane);
            lanes.filter(|l| need::unit_of(*l).is_some()).min()
        };
        let unit_milli = unit(pools).or_else(|| anywhere().and_then(need::unit_of));
        need::shape_of(&self.names, pod, unit_milli)
    }

    /// A pod asks: if only the rule states its need it is counted now, once. While
    /// nothing is known of requests, whatever is asked is the best guess. As what it
    /// was counted.
    pub(crate) fn asked(&mut self, uid: &str, need: &Need) -> Option<Shape> {
        let first = self.board.classes().is_empty();
        if self.fixed || !first && (!need.by_rule || uid.is_empty()) {
            return None;
        }
        let milli = match need.amount {
            Amount::Cards(cards) => cards.saturating_mul(i64::from(CARD)),
            Amount::Share(milli) => milli,
            _ => return None,
        };
        let kinds = self.board.kinds();
        let lane = need.lane(&self.names, kinds.iter().map(|k| k.lane));
        let shape = need.shape(lane, need::rounded(lane, milli));
        if self.counted.len() >= COUNTED {
            self.counted.clear();
        }
        if !self.counted.insert(uid.into()) && !first {
            return None;
        }
        self.popularity.observe(&shape);
        self.unread += 1;
        self.plan();
        Some(shape)
    }

    /// Plans for all that has come, however little.
    pub(crate) fn settle(&mut self) {
        if self.unread > 0 {
            self.unread = LEARN_EVERY;
            self.plan();
        }
    }

    /// All classes of the distribution, the rare ones too.
    pub(crate) fn classes_seen(&self) -> usize {
        self.popularity.len()
    }

    fn plan(&mut self) {
        let planned = !self.board.classes().is_empty();
        if self.unread == 0 || (planned && self.unread < LEARN_EVERY) {
            return;
        }
        self.unread = 0;
        let classes = self.popularity.types();
        if Popularity::distance(self.board.classes(), &classes) > DRIFT {
            self.board.plan_for(classes);
        }
    }
}
