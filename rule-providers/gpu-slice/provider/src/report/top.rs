//! The cards of each node, as `tautline gpu top` prints them.

mod model;

use std::{cmp::Reverse, collections::BTreeMap};

use tautline_core::Snapshot;
use tautline_gpu_placement::{
    CARD_MILLI, NodeCapacity, PlannedClasses,
    device_annotation::CardShare,
    inventory::{self, Card, CardPool, CountedResource},
};

pub use model::{Amounts, CardSums, CardTop, CountedTop, HolderTop, NodeTop, PoolTop, Top, Total};

use super::{format, node_count};
use crate::{
    inspection::{Inspection, NodeGpus},
    uses::{NodeUse, Uses},
};

/// The order of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Nodes are sorted by name.
    #[default]
    Name,
    /// The nodes with the most idle GPU come first.
    Idle,
    /// The nodes with the most unusable idle GPU come first.
    Fragmented,
}

/// Returns whether the node has cards or counted GPUs.
pub fn has_gpus(node: &NodeGpus<'_>) -> bool {
    !node.inventory.pools.is_empty() || !node.inventory.counted.is_empty()
}

impl Top {
    /// Lists the nodes with GPUs, or only the node with the name `only`.
    pub fn new(inspection: &Inspection, uses: &Uses, only: Option<&str>, order: Order) -> Self {
        let types = inspection.types();
        let known = (!types.is_empty()).then_some(&types);
        let all = inspection.nodes();
        let chosen = || all.iter().filter(|n| only.is_none_or(|o| **n.name == *o));
        let snapshot = inspection.snapshot();
        let mut nodes: Vec<NodeTop> = chosen()
            .filter(|n| has_gpus(n))
            .map(|n| NodeTop::new(n, snapshot, known, uses.node(n.name)))
            .collect();
        match order {
            Order::Name => {}
            Order::Idle => nodes.sort_by_key(|n| Reverse(n.sum(|c| c.free_milli))),
            Order::Fragmented => {
                nodes.sort_by_key(|n| Reverse(n.sum(|c| c.fragmented_milli.unwrap_or(0))));
            }
        }
        Self {
            totals: totals(&nodes),
            warnings: chosen()
                .flat_map(|n| warnings(inspection, uses, n))
                .collect(),
            nodes,
        }
    }
}

impl NodeTop {
    /// Describes a node. `types` are the requests to expect, if they are known; `used` is the last
    /// report of the node's agent.
    pub fn new(
        node: &NodeGpus<'_>,
        snapshot: &Snapshot,
        types: Option<&PlannedClasses>,
        used: Option<&NodeUse>,
    ) -> Self {
        let inventory = node.inventory;
        let listed = |resource: &str, free: i64| {
            let node = snapshot.node(node.name)?;
            let mut all = node.allocatable.iter();
            all.any(|(name, _)| name == resource).then_some(free)
        };
        let pools = inventory.pools.iter().zip(&node.capacities);
        Self {
            node: node.name.to_string(),
            cpu_free_milli: listed("cpu", inventory.cpu_milli),
            memory_free_bytes: listed("memory", inventory.memory_bytes),
            pools: pools
                .map(|(p, room)| PoolTop::of(p, room, types, used))
                .collect(),
            counted: inventory.counted.iter().map(CountedTop::of).collect(),
        }
    }

    fn sum(&self, of: impl Fn(&CardTop) -> i64) -> i64 {
        self.pools.iter().flat_map(|p| &p.cards).map(of).sum()
    }
}

impl PoolTop {
    fn of(
        pool: &CardPool,
        room: &NodeCapacity,
        types: Option<&PlannedClasses>,
        used: Option<&NodeUse>,
    ) -> Self {
        let fragmented = types.map(|t| t.fragmented_cards(room));
        let card = |(i, card): (usize, &Card)| {
            let lost = fragmented.as_ref().and_then(|f| f.get(i));
            CardTop::of(card, lost.copied(), used)
        };
        Self {
            product: format::product(&pool.kind.product).to_owned(),
            lane: format::sharing_mode_name(pool.kind.mode),
            unit_milli: pool.kind.mode.unit_milli(),
            resource: pool.resource.as_deref().map(str::to_owned),
            card_memory_bytes: pool.card_memory_bytes,
            cards: pool.cards.iter().enumerate().map(card).collect(),
            sharing_mode: pool.kind.mode,
        }
    }
}

impl CardTop {
    fn of(card: &Card, fragmented: Option<f64>, used: Option<&NodeUse>) -> Self {
        let holder = |h: &inventory::Holder| HolderTop {
            pod: h.pod.to_string(),
            milli: i64::from(h.milli),
            used: used.map(|used| used.pod(card, &h.pod)),
            card_is_guessed: !h.annotated,
        };
        let fault = card.fault.as_deref();
        Self {
            card: card.name.to_string(),
            uuid: card.uuid.as_deref().map(str::to_owned),
            healthy: card.fault.is_none(),
            fault: fault
                .filter(|f| *f != inventory::UNHEALTHY)
                .map(str::to_owned),
            used: used.and_then(|used| used.card(card)),
            overcommitted: card.held_milli() > u32::from(CARD_MILLI),
            held_milli: i64::from(card.held_milli()),
            free_milli: i64::from(card.left_milli()),
            fragmented_milli: fragmented.map(|f| f.round() as i64),
            fragmented: fragmented.unwrap_or(0.0),
            holders: card.holders.iter().map(holder).collect(),
        }
    }
}

impl CountedTop {
    fn of(counted: &CountedResource) -> Self {
        Self {
            resource: counted.resource.to_string(),
            product: format::product(&counted.product).to_owned(),
            units: counted.total,
            used_units: counted.used,
            free_units: (counted.total - counted.used).max(0),
        }
    }
}

/// Returns the sums by product and sharing mode; counted resources come last.
fn totals(nodes: &[NodeTop]) -> Vec<Total> {
    let mut cards: BTreeMap<_, Vec<(&str, &PoolTop)>> = BTreeMap::new();
    let mut units: BTreeMap<_, Vec<&CountedTop>> = BTreeMap::new();
    for node in nodes {
        for pool in &node.pools {
            let lane = format::sharing_mode(pool.sharing_mode);
            let of = cards.entry((pool.product.clone(), lane)).or_default();
            of.push((&*node.node, pool));
        }
        for counted in &node.counted {
            let key = (counted.product.clone(), counted.resource.clone());
            units.entry(key).or_default().push(counted);
        }
    }
    let of_cards = cards.into_iter().map(|((product, lane), pools)| {
        let all: Vec<&CardTop> = pools.iter().flat_map(|(_, p)| &p.cards).collect();
        let sum = |of: fn(&CardTop) -> i64| all.iter().map(|c| of(c)).sum();
        let amounts = Amounts::Cards(CardSums {
            cards: all.len(),
            unhealthy_cards: all.iter().filter(|c| !c.healthy).count(),
            held_milli: sum(|c| c.held_milli),
            free_milli: sum(|c| c.free_milli),
            fragmented_milli: useless(&all).map(|f| f.round() as i64),
            fragmented: useless(&all),
        });
        Total {
            product,
            lane,
            nodes: node_count(&pools),
            amounts,
        }
    });
    let of_units = units.into_iter().map(|((product, lane), all)| {
        let sum = |of: fn(&CountedTop) -> i64| all.iter().fold(0, |n, c| of(c).saturating_add(n));
        let amounts = Amounts::Units {
            units: sum(|c| c.units),
            used_units: sum(|c| c.used_units),
            free_units: sum(|c| c.free_units),
        };
        Total {
            product,
            lane,
            nodes: all.len(),
            amounts,
        }
    });
    of_cards.chain(of_units).collect()
}

/// Returns the fragmented thousandths of all cards; `None`: they are not known.
fn useless(cards: &[&CardTop]) -> Option<f64> {
    let known = cards.iter().all(|c| c.fragmented_milli.is_some());
    known.then(|| cards.iter().map(|c| c.fragmented).sum())
}

/// Returns the faults of the node's cards, as texts that name the node.
pub fn warnings(inspection: &Inspection, uses: &Uses, node: &NodeGpus<'_>) -> Vec<String> {
    let name = node.name;
    let mut all: Vec<String> = node
        .inventory
        .warnings
        .iter()
        .map(|w| format!("node {name}: {w}"))
        .collect();
    if !has_gpus(node) {
        return all;
    }
    if node.inventory.pools.iter().any(|p| !p.offered) {
        all.push(format!(
            "node {name}: tautline.io/gpu-milli is not allocatable, so no further pod gets its \
             cards: its agent is away, or another device plugin has them"
        ));
    }
    let cards = || {
        let offered = node.inventory.pools.iter().filter(|p| p.offered);
        offered.flat_map(|p| &p.cards)
    };
    if let Some(used) = uses.node(name) {
        for card in cards() {
            for (stray, bytes) in used.strays(card) {
                let (bytes, card) = (format::memory(bytes), card.record_name());
                all.push(format!(
                    "node {name}: {stray} uses {bytes} of card {card}, which no claim or record gives it"
                ));
            }
        }
    }
    for pod in inspection.snapshot().pods_on(name) {
        let Some(Ok(parts)) = node.inventory.assigned_cards(pod) else {
            continue;
        };
        let gone = |p: &&CardShare| node.inventory.card(&p.card).is_none();
        for CardShare { card, .. } in parts.iter().filter(gone) {
            let of = format!("pod {}/{} holds card {card}", pod.namespace, pod.name);
            all.push(format!("node {name}: {of}, and the node has no such card"));
        }
    }
    all
}
