//! Whether a placed pod still has what it was given.

use tautline_core::{Snapshot, model::Pod, quantity};
use tautline_gpu::{
    CARD, Inventory,
    inventory::{self, Pool},
    record::Part,
    shape::names_model,
};
use tautline_sdk::{Compliance, Evaluation};

use crate::{
    ledger::Ledger,
    need::{Amount, Need, units_milli},
};

/// What is to be said of one pod.
pub(crate) fn pod(ledger: &Ledger, snapshot: &Snapshot, pod: &Pod, need: &Need) -> Evaluation {
    let Some(node) = pod.node.as_deref() else {
        return Evaluation::new(
            Compliance::Pending,
            format!("pod {} is not placed", pod.name),
        );
    };
    let Some(entry) = ledger.node(node).filter(|_| snapshot.node(node).is_some()) else {
        return Evaluation::violation(format!("node {node} is gone"));
    };
    let inventory = &entry.inventory;
    if let Some(product) = foreign(inventory, need) {
        let wanted = need.models.join("|");
        return Evaluation::violation(format!("node {node}: {product:?} is none of {wanted}"));
    }
    match inventory::record_of(&ledger.names, pod) {
        Some(Ok(parts)) => recorded(inventory, node, &parts, need),
        Some(Err(error)) => Evaluation::new(
            Compliance::Error,
            format!(
                "pod {}: its record of cards cannot be read: {error}",
                pod.name
            ),
        ),
        None => requested(ledger, snapshot, inventory, pod, node, need),
    }
}

/// The product of a node whose cards are none of the wanted models.
fn foreign<'a>(inventory: &'a Inventory, need: &Need) -> Option<&'a str> {
    let pools = inventory.pools.iter().map(|p| &*p.kind.product);
    let mut products = pools.chain(inventory.counted.iter().map(|c| &*c.product));
    let first = products.clone().next()?;
    let wanted = |p: &str| need.models.iter().any(|m| names_model(p, m));
    (!need.models.is_empty() && !products.any(wanted)).then_some(first)
}

/// A pod that was given cards by name.
fn recorded(inventory: &Inventory, node: &str, parts: &[Part], need: &Need) -> Evaluation {
    let Some(fault) = inventory.fault(parts) else {
        let cards: Vec<&str> = parts.iter().map(|p| &*p.card).collect();
        let cards = cards.join(", ");
        return Evaluation::compliant(format!("node {node}: card {cards} has what it holds"));
    };
    let reason = format!("node {node}: {fault}");
    // What is left to it of each card once all others have theirs.
    let still: i64 = parts
        .iter()
        .filter_map(|part| {
            let (_, card) = inventory.card(&part.card).filter(|(_, c)| c.healthy)?;
            let others = card.held_milli().saturating_sub(u32::from(part.milli));
            let left = u32::from(CARD)
                .saturating_sub(others)
                .min(u32::from(part.milli));
            Some(i64::from(left))
        })
        .sum();
    let pool = inventory.pools.first();
    judged(need, pool, still, reason)
}

/// A pod that has units of a resource: the node must offer what its pods hold.
fn requested(
    ledger: &Ledger,
    snapshot: &Snapshot,
    inventory: &Inventory,
    pod: &Pod,
    node: &str,
    need: &Need,
) -> Evaluation {
    let gpu = pod
        .requests
        .iter()
        .filter(|(r, wanted)| *wanted > 0 && ledger.names.is_gpu(r));
    for (resource, wanted) in gpu {
        let has = snapshot
            .node(node)
            .map_or(0, |n| n.allocatable.milli(resource));
        let pods = snapshot.pods_on(node);
        let used = pods.iter().fold(0_i64, |sum, p| {
            sum.saturating_add(p.requests.milli(resource))
        });
        if used > has {
            let (offers, hold) = (quantity::format_milli(has), quantity::format_milli(used));
            let reason = format!("node {node} offers {resource} {offers} and its pods hold {hold}");
            let still = (has - (used - wanted)).clamp(0, wanted);
            let pool = inventory
                .pools
                .iter()
                .find(|p| p.resource.as_deref() == Some(resource));
            return judged(need, pool, in_milli(pool, still / 1000), reason);
        }
    }
    Evaluation::compliant(format!("node {node} offers what its pods hold"))
}

fn in_milli(pool: Option<&Pool>, units: i64) -> i64 {
    match pool.and_then(|p| crate::need::unit_of(p.kind.lane)) {
        Some(unit_milli) => units_milli(units, unit_milli),
        None => units.saturating_mul(i64::from(CARD)),
    }
}

/// Less than was asked is left: the limit says whether it will do.
fn judged(need: &Need, pool: Option<&Pool>, still_milli: i64, reason: String) -> Evaluation {
    let least = match &need.least {
        None | Some(Amount::Nothing) => None,
        Some(Amount::Cards(cards)) => Some(cards.saturating_mul(i64::from(CARD))),
        Some(Amount::Share(milli)) => Some(*milli),
        Some(Amount::Units { units, .. }) => Some(in_milli(pool, *units)),
        Some(Amount::Memory(bytes)) => pool
            .and_then(|p| p.card_memory_bytes)
            .filter(|card| *card > 0)
            .map(|card| bytes.saturating_mul(1000).saturating_add(card - 1) / card),
    };
    match least {
        Some(least) if still_milli >= least => Evaluation::new(
            Compliance::Limit,
            format!("{reason}; {still_milli}m is left to it, the limit is {least}m"),
        ),
        _ => Evaluation::violation(reason),
    }
}
