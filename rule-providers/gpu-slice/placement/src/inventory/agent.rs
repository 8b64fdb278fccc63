//! Nodes with an agent: the cards from the node's annotation, or those that pods claim.

use std::sync::Arc;

use tautline_core::model::Node;

use super::{Card, CardPool, assign::MAX_CARDS};
use crate::{
    node_inventory::{INVENTORY_ANNOTATION, InventoryCard, MILLI_RESOURCE, NodeInventory},
    shape::{CARD_MILLI, CardKind, SharingMode},
    topology::CardLinks,
};

/// Returns a pool for each product, memory size and set of share sizes. The cards are `claimed`, or
/// else those of the node's annotation; `None`: no agent describes the node's cards.
pub(super) fn pools(
    node: &Node,
    claimed: Option<&NodeInventory>,
    product: &Arc<str>,
    warnings: &mut Vec<String>,
) -> Option<Vec<CardPool>> {
    let mut warn =
        |text: String| warnings.push(format!("annotation {INVENTORY_ANNOTATION}: {text}"));
    let written = || {
        Some(NodeInventory::parse(
            node.annotations.get(INVENTORY_ANNOTATION)?,
        ))
    };
    let inventory = match claimed
        .map(|claimed| Ok(claimed.clone()))
        .or_else(written)?
    {
        Ok(inventory) => inventory,
        Err(error) => {
            warn(format!(
                "{error}; no card of the node is used until its agent writes it again"
            ));
            return Some(Vec::new());
        }
    };
    if inventory.cards.len() > MAX_CARDS as usize {
        let count = inventory.cards.len();
        warn(format!("{count} cards; only {MAX_CARDS} are used"));
    }
    let (mode, resource) = match claimed {
        Some(_) => (SharingMode::Claim, None),
        None => (SharingMode::Agent, Some(Arc::from(MILLI_RESOURCE))),
    };
    let offered = claimed.is_some() || node.allocatable.milli(MILLI_RESOURCE) > 0;
    let mut pools: Vec<CardPool> = Vec::new();
    for listed in inventory.cards.iter().take(MAX_CARDS as usize) {
        let (index, uuid) = (listed.index.to_string(), listed.uuid.as_str());
        let mut known = pools.iter().flat_map(|p| &p.cards);
        if known.any(|c| *c.name == *index || (!uuid.is_empty() && c.is(uuid))) {
            warn(format!(
                "card {index} {uuid} is listed twice; the first counts"
            ));
            continue;
        }
        if uuid.is_empty() {
            warn(format!("card {index} has no UUID; records name its index"));
        }
        let memory = i64::try_from(listed.memory_bytes).ok().filter(|m| *m > 0);
        let product = match listed.product.as_str() {
            "" => Arc::clone(product),
            own => own.into(),
        };
        let sizes: Option<Arc<[u16]>> = match &listed.mig {
            Some(mig) => Some(mig.sizes().into()),
            None => inventory.is_mig().then(|| [CARD_MILLI].into()),
        };
        let alike = |p: &CardPool| {
            p.kind.product == product && p.card_memory_bytes == memory && p.sizes == sizes
        };
        let at = pools.iter().position(alike).unwrap_or_else(|| {
            pools.push(CardPool {
                kind: CardKind {
                    product: Arc::clone(&product),
                    mode,
                },
                resource: resource.clone(),
                card_memory_bytes: memory,
                sizes: sizes.clone(),
                offered,
                cards: Vec::new(),
            });
            pools.len() - 1
        });
        pools[at].cards.push(card(listed));
    }
    Some(pools)
}

fn card(listed: &InventoryCard) -> Card {
    let uuid = Some(listed.uuid.as_str()).filter(|uuid| !uuid.is_empty());
    Card {
        uuid: uuid.map(Into::into),
        fault: listed.fault.as_deref().map(Into::into),
        links: CardLinks {
            nvlink: listed.nvlink,
            numa: listed.numa,
        },
        mig: listed.mig.clone().map(Arc::new),
        ..Card::new(listed.index.to_string())
    }
}
