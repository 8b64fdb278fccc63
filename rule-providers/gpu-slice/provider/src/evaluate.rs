//! Whether a placed pod still has what it was given.

use tautline_core::{Snapshot, model::Pod, quantity};
use tautline_gpu_placement::{
    CARD, Inventory, Lane,
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
        None if unrecorded(inventory, need) => Evaluation::new(
            Compliance::Error,
            format!(
                "pod {} has no record of the cards that the rule gives it on node {node}: \
                 whoever bound it reserved none; run the extender with --bind",
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

/// Whether the node hands out cards as pods are bound, and the rule says that this one
/// was to get some: without a record nobody counts them.
fn unrecorded(inventory: &Inventory, need: &Need) -> bool {
    let handed_out = |p: &Pool| p.kind.lane == Lane::Milli;
    let asked = matches!(
        need.amount,
        Amount::Cards(_) | Amount::Share(_) | Amount::Memory(_)
    );
    need.by_rule && asked && inventory.pools.iter().any(handed_out)
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
    let still: Vec<i64> = parts
        .iter()
        .filter_map(|part| {
            let (_, card) = inventory.card(&part.card).filter(|(_, c)| c.healthy)?;
            let others = card.held_milli().saturating_sub(u32::from(part.milli));
            let left = u32::from(CARD)
                .saturating_sub(others)
                .min(u32::from(part.milli));
            Some(i64::from(left))
        })
        .collect();
    let pool = inventory.pools.first();
    judged(need, pool, &still, reason)
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
            return judged(need, pool, &as_cards(pool, still / 1000), reason);
        }
    }
    Evaluation::compliant(format!("node {node} offers what its pods hold"))
}

fn unit_milli(pool: Option<&Pool>) -> Option<u16> {
    pool.and_then(|p| crate::need::unit_of(p.kind.lane))
}

/// So many units as cards: whole ones and a rest.
fn as_cards(pool: Option<&Pool>, units: i64) -> Vec<i64> {
    let card = i64::from(CARD);
    let milli = match unit_milli(pool) {
        Some(unit) => units_milli(units, unit),
        None => units.saturating_mul(card),
    };
    let whole = usize::try_from(milli / card).unwrap_or(0);
    let mut all = vec![card; whole];
    all.extend(Some(milli % card).filter(|rest| *rest > 0));
    all
}

/// Less than was asked is left, of each card so much: the limit says whether it will
/// do.
fn judged(need: &Need, pool: Option<&Pool>, still: &[i64], reason: String) -> Evaluation {
    let (whole, all): (i64, i64) = (
        still
            .iter()
            .filter(|left| **left == i64::from(CARD))
            .count() as i64,
        still.iter().sum(),
    );
    let largest = still.iter().copied().max().unwrap_or(0);
    let (enough, left) = match &need.least {
        None | Some(Amount::Nothing) => (false, String::new()),
        Some(Amount::Cards(least)) => (
            whole >= *least,
            format!("{whole} of its cards left whole, the limit is {least}"),
        ),
        Some(Amount::Share(least)) => (
            largest >= *least,
            format!("{largest}m is left to it, the limit is {least}m"),
        ),
        Some(Amount::Units { units, .. }) => {
            let least: i64 = as_cards(pool, *units).iter().sum();
            let left = format!("{all}m is left to it, the limit is {least}m");
            (all >= least, left)
        }
        Some(Amount::Memory(bytes)) => {
            let card = pool.and_then(|p| p.card_memory_bytes).filter(|c| *c > 0);
            let least = card.map(|card| bytes.saturating_mul(1000).saturating_add(card - 1) / card);
            match least {
                Some(least) => (
                    largest >= least,
                    format!("{largest}m of a card is left to it, the limit is {least}m"),
                ),
                None => (false, String::new()),
            }
        }
    };
    if enough {
        Evaluation::new(Compliance::Limit, format!("{reason}; {left}"))
    } else {
        Evaluation::violation(reason)
    }
}
