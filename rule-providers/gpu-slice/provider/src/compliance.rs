use std::sync::Arc;

use tautline_core::{
    Snapshot,
    model::{Pod, key},
    quantity,
};
use tautline_gpu_placement::{
    CARD_MILLI, Inventory,
    device_annotation::CardShare,
    inventory::{AgentRequest, CardPool, list_pods, seniority},
    node_inventory::{MEMORY_RESOURCE, MILLI_RESOURCE},
    shape::is_model,
};
use tautline_sdk::{Compliance, Evaluation};

use crate::{
    cluster_inventory::ClusterInventory,
    dra::Devices,
    gpu_request::{Amount, GpuRequest, units_milli},
};

pub(crate) fn of_pod(
    cluster: &ClusterInventory,
    devices: &Devices,
    snapshot: &Snapshot,
    pod: &Pod,
    request: &GpuRequest,
) -> Evaluation {
    let Some(node) = pod.node.as_deref() else {
        return Evaluation::new(
            Compliance::Pending,
            format!("pod {} is not placed", pod.name),
        );
    };
    let Some(entry) = cluster.node(node).filter(|_| snapshot.node(node).is_some()) else {
        return Evaluation::violation(format!("node {node} is gone"));
    };
    let inventory = &entry.inventory;
    let assigned = inventory.assigned_cards(&cluster.names, pod);
    let parts = assigned.as_ref().and_then(|a| a.as_deref().ok());
    if let Some(product) = unwanted_product(inventory, parts.unwrap_or_default(), request) {
        let wanted = request.models.join("|");
        return Evaluation::violation(format!("node {node}: {product:?} is not one of {wanted}"));
    }
    if let Some(resource) = instances_for_cards(inventory, pod, request) {
        let reason = format!("node {node}: its {resource} are MIG instances, cards are wanted");
        return Evaluation::violation(reason);
    }
    let name = key(&pod.namespace, &pod.name);
    match assigned {
        Some(Ok(parts)) => of_assigned_cards(inventory, node, &name, &parts, request),
        Some(Err(error)) => Evaluation::new(
            Compliance::Error,
            format!(
                "pod {}: its device annotation cannot be read: {error}",
                pod.name
            ),
        ),
        None if lacks_annotation(inventory, pod, request) => {
            if let Some((pool, card, conflict)) = inventory.conflict(&name) {
                let reason = format!(
                    "node {node}: {conflict}; pod {} has no device annotation",
                    pod.name
                );
                let left = u32::from(CARD_MILLI).saturating_sub(card.held_before(&name));
                return apply_limit(request, Some(pool), &[left.into()], reason);
            }
            let of = if request.by_rule {
                "the rule gives it"
            } else {
                "it requests"
            };
            Evaluation::new(
                Compliance::Error,
                format!(
                    "pod {} has no device annotation for the cards that {of} on node {node}: they \
                     were not reserved when it was bound; run the extender with --bind",
                    pod.name
                ),
            )
        }
        None => of_resources(cluster, devices, snapshot, inventory, pod, node, request),
    }
}

/// Returns a product that the rule does not want. It is the first unwanted product of the cards in
/// `parts`. If these are not known, it is the first product of the node, unless the node has a
/// wanted product.
fn unwanted_product<'a>(
    inventory: &'a Inventory,
    parts: &[CardShare],
    request: &GpuRequest,
) -> Option<&'a str> {
    let held = parts.iter().filter_map(|p| inventory.card(&p.card));
    let held: Vec<&str> = held.map(|(pool, _)| &*pool.kind.product).collect();
    let wanted = |p: &&str| request.models.iter().any(|m| is_model(p, m));
    if request.models.is_empty() {
        return None;
    }
    if !held.is_empty() {
        return held.into_iter().find(|p| !wanted(p));
    }
    let pools = inventory.pools.iter().map(|p| &*p.kind.product);
    let mut products = pools.chain(inventory.counted.iter().map(|c| &*c.product));
    let first = products.clone().next()?;
    (!products.any(|p| wanted(&p))).then_some(first)
}

/// Returns the resource by which the pod has MIG instances, if the rule requests cards instead.
fn instances_for_cards<'a>(
    inventory: &'a Inventory,
    pod: &Pod,
    request: &GpuRequest,
) -> Option<&'a str> {
    let for_cards = matches!(
        request.amount,
        Amount::Cards(_) | Amount::Share(_) | Amount::Memory(_)
    );
    let mut counted = inventory.counted.iter();
    let has = counted.find(|c| c.is_instance && pod.requests.milli(&c.resource) > 0);
    Some(&*has.filter(|_| request.by_rule && for_cards)?.resource)
}

/// Returns whether a pod without a device annotation needs one, because a rule requests its cards
/// or an agent gives them out.
fn lacks_annotation(inventory: &Inventory, pod: &Pod, request: &GpuRequest) -> bool {
    let handed_out = |p: &CardPool| p.kind.mode.is_recorded() && p.offered;
    let of_cards = matches!(
        request.amount,
        Amount::Cards(_) | Amount::Share(_) | Amount::Memory(_)
    );
    let own = AgentRequest::new(|resource| pod.requests.milli(resource) / 1000);
    request.by_rule && of_cards && inventory.pools.iter().any(handed_out)
        || !own.is_empty() && inventory.pools.iter().any(CardPool::has_agent)
}

fn of_assigned_cards(
    inventory: &Inventory,
    node: &str,
    pod: &str,
    parts: &[CardShare],
    request: &GpuRequest,
) -> Evaluation {
    let Some(fault) = inventory.fault(pod, parts) else {
        let cards: Vec<&str> = parts.iter().map(|p| &*p.card).collect();
        let cards = cards.join(", ");
        return Evaluation::compliant(format!("node {node}: card {cards} has what it holds"));
    };
    let reason = format!("node {node}: {fault}");
    let remaining: Vec<i64> = parts
        .iter()
        .filter_map(|part| {
            let (_, card) = inventory
                .card(&part.card)
                .filter(|(_, c)| c.fault.is_none())?;
            let left = u32::from(CARD_MILLI)
                .saturating_sub(card.held_before(pod))
                .min(u32::from(part.milli));
            Some(i64::from(left))
        })
        .collect();
    let mut held = parts.iter().filter_map(|p| inventory.card(&p.card));
    let pool = held.next().map(|(pool, _)| pool);
    apply_limit(
        request,
        pool.or(inventory.pools.first()),
        &remaining,
        reason,
    )
}

fn of_resources(
    cluster: &ClusterInventory,
    devices: &Devices,
    snapshot: &Snapshot,
    inventory: &Inventory,
    pod: &Pod,
    node: &str,
    request: &GpuRequest,
) -> Evaluation {
    let gpu = pod
        .requests
        .iter()
        .filter(|(r, wanted)| *wanted > 0 && cluster.names.is_gpu(r));
    for (resource, wanted) in gpu {
        let has = snapshot
            .node(node)
            .map_or(0, |n| n.allocatable.milli(resource));
        // The pod's claim has the devices of the resource.
        if has == 0 && devices.serves(resource) {
            continue;
        }
        let pods = snapshot.pods_on(node).iter();
        let holders = pods.filter(|p| p.requests.milli(resource) > 0);
        let sum = |sum: i64, p: &Arc<Pod>| sum.saturating_add(p.requests.milli(resource));
        let own = seniority(pod);
        let mut before: Vec<&Arc<Pod>> = holders.clone().filter(|p| seniority(p) < own).collect();
        let others = before.iter().fold(0, |total, p| sum(total, p));
        if others.saturating_add(wanted) > has {
            let used = holders.fold(0, sum);
            let (offers, hold) = (quantity::format_milli(has), quantity::format_milli(used));
            let mut reason =
                format!("node {node} offers {resource} {offers} and its pods hold {hold}");
            if !before.is_empty() {
                before.sort_by(|a, b| seniority(a).cmp(&seniority(b)));
                let names = before.iter().map(|p| key(&p.namespace, &p.name));
                reason += "; before it came ";
                reason += &list_pods(names);
            }
            let remaining = (has - others).clamp(0, wanted);
            let pool = inventory
                .pools
                .iter()
                .find(|p| p.resource.as_deref() == Some(resource));
            let remaining = match resource {
                MILLI_RESOURCE => split_cards(remaining / 1000),
                MEMORY_RESOURCE => Vec::new(),
                _ => as_cards(pool, remaining / 1000),
            };
            return apply_limit(request, pool, &remaining, reason);
        }
    }
    Evaluation::compliant(format!("node {node} offers what its pods hold"))
}

fn as_cards(pool: Option<&CardPool>, units: i64) -> Vec<i64> {
    let card = i64::from(CARD_MILLI);
    let milli = match pool.and_then(|p| p.kind.mode.unit_milli()) {
        Some(unit) => units_milli(units, unit),
        None => units.saturating_mul(card),
    };
    split_cards(milli)
}

fn split_cards(milli: i64) -> Vec<i64> {
    let card = i64::from(CARD_MILLI);
    let whole = usize::try_from(milli / card).unwrap_or(0);
    let mut all = vec![card; whole];
    all.extend(Some(milli % card).filter(|rest| *rest > 0));
    all
}

/// Returns Limit if the pod's remaining parts of cards meet the rule's minimum, else a violation.
/// `remaining` has the thousandths of each card.
fn apply_limit(
    request: &GpuRequest,
    pool: Option<&CardPool>,
    remaining: &[i64],
    reason: String,
) -> Evaluation {
    let whole = remaining.iter().filter(|r| **r == i64::from(CARD_MILLI));
    let (whole, all): (i64, i64) = (whole.count() as i64, remaining.iter().sum());
    let largest = remaining.iter().copied().max().unwrap_or(0);
    let (enough, left) = match &request.minimum {
        None | Some(Amount::Nothing | Amount::OfAgent(_)) => (false, String::new()),
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
