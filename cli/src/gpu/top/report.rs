use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use tautline_core::Snapshot;
use tautline_gpu_placement::{
    NodeCapacity, PlannedClasses, SharingMode,
    inventory::{self, Card, CardPool, CountedResource},
};
use tautline_gpu_slice::{Inspection, inspection::NodeGpus};

use super::Sort;
use crate::gpu::{
    format,
    uses::{NodeUse, PodUse, Uses},
};

/// Fragmented amounts are absent while no requests are known.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Top {
    pub(super) nodes: Vec<NodeTop>,
    pub(super) totals: Vec<Total>,
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeTop {
    pub(super) node: String,
    /// Absent: the node does not report its cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_free_milli: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory_free_bytes: Option<i64>,
    pub(super) pools: Vec<PoolTop>,
    pub(super) counted: Vec<CountedTop>,
}

/// The cards of one sharing mode.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolTop {
    pub(super) product: String,
    pub(super) lane: &'static str,
    /// Thousandths of one unit, where the device plugin gives units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unit_milli: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) card_memory_bytes: Option<i64>,
    pub(super) cards: Vec<CardTop>,
    #[serde(skip)]
    pub(super) sharing_mode: SharingMode,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CardTop {
    pub(super) card: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uuid: Option<String>,
    pub(super) healthy: bool,
    /// Why the card is not healthy, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<String>,
    pub(super) overcommitted: bool,
    pub(super) held_milli: i64,
    pub(super) free_milli: i64,
    /// Absent: no agent reports it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) used: Option<UsedTop>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fragmented_milli: Option<i64>,
    /// The unrounded amount, for sums.
    #[serde(skip)]
    pub(super) fragmented: f64,
    pub(super) holders: Vec<HolderTop>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsedTop {
    pub(super) used_bytes: i64,
    /// Thousandths of the time.
    pub(super) busy_milli: i64,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HolderTop {
    pub(super) pod: String,
    pub(super) milli: i64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) used: Option<UsedTop>,
    /// Not written on the pod: the device plugin chose the card.
    pub(super) card_is_guessed: bool,
}

/// A resource of which only the number is known.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CountedTop {
    pub(super) resource: String,
    pub(super) product: String,
    pub(super) units: i64,
    pub(super) used_units: i64,
    pub(super) free_units: i64,
}

/// The sum of one product in one sharing mode, or of one counted resource.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Total {
    pub(super) product: String,
    /// A sharing mode, or a resource.
    pub(super) lane: String,
    pub(super) nodes: usize,
    #[serde(flatten)]
    pub(super) amounts: Amounts,
}

#[derive(Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(super) enum Amounts {
    Cards {
        cards: usize,
        unhealthy_cards: usize,
        held_milli: i64,
        free_milli: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        fragmented_milli: Option<i64>,
        /// The unrounded amount.
        #[serde(skip)]
        fragmented: Option<f64>,
    },
    Units {
        units: i64,
        used_units: i64,
        free_units: i64,
    },
}

impl Default for Amounts {
    fn default() -> Self {
        Self::Units {
            units: 0,
            used_units: 0,
            free_units: 0,
        }
    }
}

pub(super) fn has_gpus(node: &NodeGpus<'_>) -> bool {
    !node.inventory.pools.is_empty() || !node.inventory.counted.is_empty()
}

impl Top {
    pub(super) fn new(
        inspection: &Inspection,
        uses: &Uses,
        only: Option<&str>,
        sort: Sort,
    ) -> Self {
        let types = inspection.types();
        let known = (!types.is_empty()).then_some(&types);
        let all = inspection.nodes();
        let chosen = || all.iter().filter(|n| only.is_none_or(|o| **n.name == *o));
        let snapshot = inspection.snapshot();
        let mut nodes: Vec<NodeTop> = chosen()
            .filter(|n| has_gpus(n))
            .map(|n| NodeTop::of(n, snapshot, known, uses.node(n.name)))
            .collect();
        match sort {
            Sort::Name => {}
            Sort::Idle => nodes.sort_by_key(|n| Reverse(n.sum(|c| c.free_milli))),
            Sort::Fragmented => {
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
    fn of(
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
            unit_milli: match pool.kind.mode {
                SharingMode::Shared { unit_milli } => Some(unit_milli),
                _ => None,
            },
            resource: pool.resource.as_deref().map(str::to_owned),
            card_memory_bytes: pool.card_memory_bytes,
            cards: pool.cards.iter().enumerate().map(card).collect(),
            sharing_mode: pool.kind.mode,
        }
    }
}

impl CardTop {
    fn of(card: &Card, fragmented: Option<f64>, used: Option<&NodeUse>) -> Self {
        let by_pod = |used: PodUse| UsedTop {
            used_bytes: used.memory_bytes,
            busy_milli: used.sm_milli,
        };
        let holder = |h: &inventory::Holder| HolderTop {
            pod: h.pod.to_string(),
            milli: i64::from(h.milli),
            used: used.map(|used| by_pod(used.pod(card, &h.pod))),
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
            used: used.and_then(|used| used.card(card)).map(|card| UsedTop {
                used_bytes: card.memory_bytes,
                busy_milli: card.busy_milli,
            }),
            overcommitted: card.held_milli() > u32::from(tautline_gpu_placement::CARD),
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

/// By product and sharing mode; counted resources come last.
fn totals(nodes: &[NodeTop]) -> Vec<Total> {
    let mut cards: BTreeMap<(String, String), Vec<&PoolTop>> = BTreeMap::new();
    let mut units: BTreeMap<(String, String), Vec<&CountedTop>> = BTreeMap::new();
    for node in nodes {
        for pool in &node.pools {
            let key = (
                pool.product.clone(),
                format::sharing_mode(pool.sharing_mode),
            );
            cards.entry(key).or_default().push(pool);
        }
        for counted in &node.counted {
            let key = (counted.product.clone(), counted.resource.clone());
            units.entry(key).or_default().push(counted);
        }
    }
    let of_cards = cards.into_iter().map(|((product, lane), pools)| {
        let all: Vec<&CardTop> = pools.iter().flat_map(|p| &p.cards).collect();
        let sum = |of: fn(&CardTop) -> i64| all.iter().map(|c| of(c)).sum();
        let amounts = Amounts::Cards {
            cards: all.len(),
            unhealthy_cards: all.iter().filter(|c| !c.healthy).count(),
            held_milli: sum(|c| c.held_milli),
            free_milli: sum(|c| c.free_milli),
            fragmented_milli: useless(&all).map(|f| f.round() as i64),
            fragmented: useless(&all),
        };
        let nodes = pools.len();
        Total {
            product,
            lane,
            nodes,
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
        let nodes = all.len();
        Total {
            product,
            lane,
            nodes,
            amounts,
        }
    });
    of_cards.chain(of_units).collect()
}

/// The sum over all cards; `None`: not known.
fn useless(cards: &[&CardTop]) -> Option<f64> {
    let known = cards.iter().all(|c| c.fragmented_milli.is_some());
    known.then(|| cards.iter().map(|c| c.fragmented).sum())
}

fn warnings(inspection: &Inspection, uses: &Uses, node: &NodeGpus<'_>) -> Vec<String> {
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
                    "node {name}: {stray} uses {bytes} of card {card}, which no record gives it"
                ));
            }
        }
    }
    for pod in inspection.snapshot().pods_on(name) {
        let Some(Ok(parts)) = node.inventory.assigned_cards(inspection.names(), pod) else {
            continue;
        };
        for part in parts
            .iter()
            .filter(|p| node.inventory.card(&p.card).is_none())
        {
            let card = &part.card;
            let of = format!("pod {}/{} holds card {card}", pod.namespace, pod.name);
            all.push(format!("node {name}: {of}, and the node has no such card"));
        }
    }
    all
}
