//! Reads the GPU inventory of a node from its labels, annotations and allocatable resources, and
//! from its pods and reservations.

use std::sync::Arc;

use tautline_core::model::{Node, Pod};

use super::{
    Card, CardPool, CountedResource, Inventory, UNHEALTHY, agent,
    assign::{self, MAX_CARDS, pack},
};
use crate::{
    device_annotation::CardShare,
    names::{
        self, CARD_COUNTS, MEMORY_LABEL, PARTITION_LABEL, PRODUCT_LABELS, REPLICAS_LABEL,
        SHARED_RESOURCES, UNHEALTHY_ANNOTATION, WHOLE_RESOURCE,
    },
    node_inventory::NodeInventory,
    shape::{CARD_MILLI, CardKind, SharingMode, units_milli},
};

/// The free amount of an unlisted resource, in thousandths: practically unlimited.
const UNLISTED_MILLI: i64 = i64::MAX / 4;

/// A reservation for a pod that is not on the node yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodReservation {
    /// Pod as `namespace/name`.
    pub pod: Box<str>,
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Main memory in bytes.
    pub memory_bytes: i64,
    /// Reserved parts of cards; empty where a device plugin or the scheduler picks them.
    pub parts: Vec<CardShare>,
}

/// Reads the inventory of a node. `pods` are the pods on the node, `held` the reservations for
/// further pods and of claims, and `claimed` the cards that the node's agent offers as devices.
pub fn read<'a>(
    node: &Node,
    pods: impl Iterator<Item = &'a Pod> + Clone,
    held: &[PodReservation],
    claimed: Option<&NodeInventory>,
) -> Inventory {
    let mut all = Inventory::default();
    let product = PRODUCT_LABELS.iter().find_map(|l| node.labels.get(l));
    let product: Arc<str> = product.unwrap_or_default().into();
    let memory_mib = number(node, MEMORY_LABEL);
    // The label may be 0 for cards whose memory is not known.
    let memory_mib = memory_mib.filter(|mib| *mib > 0);
    let pool = |mode, resource: Option<&str>, cards: Vec<Card>| CardPool {
        kind: CardKind {
            product: Arc::clone(&product),
            mode,
        },
        resource: resource.map(Arc::from),
        card_memory_bytes: memory_mib.and_then(|mib| mib.checked_mul(1 << 20)),
        sizes: None,
        offered: true,
        cards,
    };
    let offered = |resource: &str| node.allocatable.milli(resource) / 1000;
    let counted = |resource: &str, total, is_instance| {
        let used = pods.clone().map(|p| p.requests.milli(resource) / 1000);
        CountedResource {
            resource: resource.into(),
            product: Arc::clone(&product),
            is_instance,
            total,
            used: used.fold(0, i64::saturating_add),
        }
    };
    // Packs the pods by the thousandths of cards for their units of a resource.
    let pack_by = |cards: &mut [Card], resource: &str, milli: &dyn Fn(i64) -> i64| {
        let held = |p: &Pod| milli(p.requests.milli(resource) / 1000);
        pack(cards, pods.clone().map(|p| (p, held(p))));
    };
    // With the MIG strategy `single`, a unit of the same resource is an instance of the product:
    // `NVIDIA-A100-SXM4-80GB-MIG-1g.10gb`. GKE partitions the cards without such a product label.
    let is_instance = product.contains("-MIG-") || node.labels.get(PARTITION_LABEL).is_some();
    let mut plugin = offered(WHOLE_RESOURCE) > 0;
    let count = offered(WHOLE_RESOURCE);
    if count > 0 && is_instance {
        all.counted.push(counted(WHOLE_RESOURCE, count, true));
    } else if count > 0 {
        let mut cards = numbered_cards(count, &mut all.warnings, WHOLE_RESOURCE);
        let milli = |units| units_milli(units, CARD_MILLI);
        pack_by(&mut cards, WHOLE_RESOURCE, &milli);
        let pool = pool(SharingMode::Whole, Some(WHOLE_RESOURCE), cards);
        all.pools.push(pool);
    }
    for resource in SHARED_RESOURCES {
        let units = offered(resource);
        if units <= 0 {
            continue;
        }
        plugin = true;
        if is_instance {
            all.counted.push(counted(resource, units, true));
            continue;
        }
        let replicas = number(node, REPLICAS_LABEL);
        let Some(replicas) = replicas.filter(|r| (1..=1000).contains(r)) else {
            all.warnings.push(format!(
                "{resource} is counted only: the label {REPLICAS_LABEL} (1 to 1000) is missing"
            ));
            all.counted.push(counted(resource, units, false));
            continue;
        };
        let unit_milli = u16::try_from(1000 / replicas).unwrap_or(CARD_MILLI);
        let mut cards = numbered_cards(units / replicas, &mut all.warnings, resource);
        pack_by(&mut cards, resource, &|units| {
            units_milli(units, unit_milli)
        });
        let mode = SharingMode::Shared { unit_milli };
        all.pools.push(pool(mode, Some(resource), cards));
    }
    for (resource, milli) in node.allocatable.iter() {
        if names::is_instance(resource) && milli >= 1000 {
            plugin = true;
            all.counted.push(counted(resource, milli / 1000, true));
        }
    }
    if !plugin {
        let of_agent = agent::pools(node, claimed, &product, &mut all.warnings);
        let of_label = || {
            let count = card_count(node)?;
            let cards = numbered_cards(count, &mut all.warnings, CARD_COUNTS[0]);
            Some(vec![pool(SharingMode::Milli, None, cards)])
        };
        all.pools = of_agent.or_else(of_label).unwrap_or_default();
        let unhealthy = node
            .annotations
            .get(UNHEALTHY_ANNOTATION)
            .unwrap_or_default();
        for listed in unhealthy.split(',').map(str::trim) {
            for card in all.pools.iter_mut().flat_map(|p| &mut p.cards) {
                if card.is(listed) && card.fault.is_none() {
                    card.fault = Some(UNHEALTHY.into());
                }
            }
        }
        assign::assign(&mut all.pools, pods.clone(), held, &mut all.warnings);
    }
    let rest = |resource: &str, held: i64| {
        let listed = node.allocatable.iter().any(|(name, _)| name == resource);
        let used = pods.clone().map(|p| p.requests.milli(resource));
        let used = used.fold(held, i64::saturating_add);
        if listed {
            node.allocatable.milli(resource).saturating_sub(used).max(0)
        } else {
            UNLISTED_MILLI
        }
    };
    all.cpu_milli = rest("cpu", held.iter().map(|h| h.cpu_milli).sum());
    let held_memory: i64 = held.iter().map(|h| h.memory_bytes).sum();
    all.memory_bytes = rest("memory", held_memory.saturating_mul(1000)) / 1000;
    all
}

fn card_count(node: &Node) -> Option<i64> {
    CARD_COUNTS.iter().find_map(|name| {
        let listed = node.allocatable.milli(name) / 1000;
        let text = || node.labels.get(name).or_else(|| node.annotations.get(name));
        let count = if listed > 0 {
            listed
        } else {
            text()?.parse().ok()?
        };
        (count > 0).then_some(count)
    })
}

fn numbered_cards(count: i64, warnings: &mut Vec<String>, resource: &str) -> Vec<Card> {
    if count > MAX_CARDS {
        warnings.push(format!(
            "{resource}: {count} cards; only {MAX_CARDS} are used"
        ));
    }
    (0..count.min(MAX_CARDS))
        .map(|i| Card::new(i.to_string()))
        .collect()
}

fn number(node: &Node, label: &str) -> Option<i64> {
    node.labels.get(label)?.parse().ok()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
