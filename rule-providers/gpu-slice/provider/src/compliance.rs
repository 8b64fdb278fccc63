//! Evaluates whether a placed pod still has the GPUs that its rule requests, from the cards
//! assigned to it or from its node's resources.

use std::sync::Arc;

use tautline_core::{
    Snapshot,
    model::{Pod, key},
    quantity,
};
use tautline_gpu_placement::{
    CARD_MILLI, Inventory,
    containers::AgentRequest,
    device_annotation::CardShare,
    inventory::{Card, CardPool, list_pods, seniority},
    names,
    node_inventory::{MEMORY_RESOURCE, MILLI_RESOURCE},
    shape::{is_model, memory_milli},
};
use tautline_sdk::{Compliance, Evaluation};

use crate::{
    gpu_request::{Amount, GpuRequest, units_milli},
    state::State,
};

/// Returns whether the pod requests or holds cards: the evaluation of a target without any must not
/// stand for its binding.
pub(crate) fn has_gpus(state: &State, pod: &Pod) -> bool {
    let node = pod.node.as_deref().unwrap_or_default();
    let entry = state.inventory.nodes.get(node);
    let own = |(resource, wanted): (&str, i64)| wanted > 0 && names::is_gpu(resource);
    pod.requests.iter().any(own)
        || state.devices.pools.agent_parts(pod).is_some()
        || entry.is_some_and(|entry| entry.inventory.assigned_cards(pod).is_some())
}

/// Returns the first of the worst evaluations; `None`: there are none.
pub(crate) fn worst(all: Vec<Evaluation>) -> Option<Evaluation> {
    let worst = Compliance::aggregate(all.iter().map(|e| e.compliance));
    all.into_iter().find(|e| e.compliance == worst)
}

pub(crate) fn of_pod(
    state: &State,
    snapshot: &Snapshot,
    pod: &Pod,
    request: &GpuRequest,
) -> Evaluation {
    let pod_name = &pod.name;
    let Some(node) = pod.node.as_deref() else {
        let reason = format!("pod {pod_name} is not placed");
        return Evaluation::new(Compliance::Pending, reason);
    };
    let cluster = &state.inventory;
    let entry = cluster.nodes.get(node);
    let Some(entry) = entry.filter(|_| snapshot.node(node).is_some()) else {
        return Evaluation::violation(format!("node {node} is gone"));
    };
    let inventory = &entry.inventory;
    let claimed = state.devices.pools.agent_parts(pod).map(Ok);
    let assigned = claimed.or_else(|| inventory.assigned_cards(pod));
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
            format!("pod {pod_name}: its device annotation cannot be read: {error}"),
        ),
        None if lacks_annotation(inventory, pod, request) => {
            if let Some((pool, card, conflict)) = inventory.conflict(&name) {
                let reason =
                    format!("node {node}: {conflict}; pod {pod_name} has no device annotation");
                return apply_limit(request, Some(pool), &[left_to(card, &name)], reason);
            }
            let of = if request.by_rule {
                "the rule gives it"
            } else {
                "it requests"
            };
            Evaluation::new(
                Compliance::Error,
                format!(
                    "pod {pod_name} has no device annotation for the cards that {of} on node \
                     {node}: they were not reserved when it was bound; run the extender with --bind"
                ),
            )
        }
        None => of_resources(state, snapshot, inventory, pod, node, request),
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
    if request.models.is_empty() {
        return None;
    }
    let held = parts.iter().filter_map(|p| inventory.card(&p.card));
    let mut held = held.map(|(pool, _)| &*pool.kind.product).peekable();
    let wanted = |p: &&str| request.models.iter().any(|m| is_model(p, m));
    if held.peek().is_some() {
        return held.find(|p| !wanted(p));
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
    let mut counted = inventory.counted.iter();
    let has = counted.find(|c| c.is_instance && pod.requests.milli(&c.resource) > 0);
    let has = has.filter(|_| request.by_rule && request.amount.is_of_cards());
    Some(&*has?.resource)
}

/// Returns whether a pod without a device annotation needs one, because a rule requests its cards
/// or an agent gives them out.
fn lacks_annotation(inventory: &Inventory, pod: &Pod, request: &GpuRequest) -> bool {
    let handed_out = |p: &CardPool| p.kind.mode.is_recorded() && p.offered;
    let own = AgentRequest::new(|resource| pod.requests.milli(resource) / 1000);
    request.by_rule && request.amount.is_of_cards() && inventory.pools.iter().any(handed_out)
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
    let held = parts
        .iter()
        .filter_map(|part| Some((part, inventory.card(&part.card)?)));
    let pool = held.clone().next().map(|(_, (pool, _))| pool);
    let usable = held.filter(|(_, (_, card))| card.fault.is_none());
    let left = usable.map(|(part, (_, card))| left_to(card, pod).min(part.milli.into()));
    let (pool, left) = (pool.or(inventory.pools.first()), left.collect::<Vec<_>>());
    apply_limit(request, pool, &left, format!("node {node}: {fault}"))
}

/// Returns the thousandths of a card that earlier holders leave to the pod.
fn left_to(card: &Card, pod: &str) -> i64 {
    u32::from(CARD_MILLI)
        .saturating_sub(card.held_before(pod))
        .into()
}

fn of_resources(
    state: &State,
    snapshot: &Snapshot,
    inventory: &Inventory,
    pod: &Pod,
    node: &str,
    request: &GpuRequest,
) -> Evaluation {
    let requests = pod.requests.iter();
    let mut met = format!("pod {} requests no GPU", pod.name);
    for (resource, wanted) in requests.filter(|(r, wanted)| *wanted > 0 && names::is_gpu(r)) {
        let has = snapshot
            .node(node)
            .map_or(0, |n| n.allocatable.milli(resource));
        // The pod's claim has the devices of the resource.
        if has == 0 && state.devices.serves(resource) {
            met = format!("node {node}: a claim has the pod's {resource}");
            continue;
        }
        let pods = snapshot.pods_on(node).iter();
        let holders = pods.filter(|p| p.requests.milli(resource) > 0);
        let sum = |sum: i64, p: &Arc<Pod>| sum.saturating_add(p.requests.milli(resource));
        let own = seniority(pod);
        let mut before: Vec<&Arc<Pod>> = holders.clone().filter(|p| seniority(p) < own).collect();
        let others = before.iter().fold(0, |total, p| sum(total, p));
        let used = holders.fold(0, sum);
        let (offers, hold) = (quantity::format_milli(has), quantity::format_milli(used));
        let mut reason = format!("node {node} offers {resource} {offers} and its pods hold {hold}");
        if others.saturating_add(wanted) <= has {
            met = reason;
            continue;
        }
        if !before.is_empty() {
            before.sort_by(|a, b| seniority(a).cmp(&seniority(b)));
            let names = before.iter().map(|p| key(&p.namespace, &p.name));
            reason += "; before it came ";
            reason += &list_pods(names);
        }
        let mut pools = inventory.pools.iter();
        let pool = pools.find(|p| p.resource.as_deref() == Some(resource));
        let left = (has - others).clamp(0, wanted) / 1000;
        let left = match resource {
            MILLI_RESOURCE => split_cards(left),
            MEMORY_RESOURCE => Vec::new(),
            _ => split_cards(pool_milli(pool, left)),
        };
        return apply_limit(request, pool, &left, reason);
    }
    Evaluation::compliant(met)
}

/// Returns the thousandths of cards that units of the pool's resource stand for.
fn pool_milli(pool: Option<&CardPool>, units: i64) -> i64 {
    match pool.and_then(|p| p.kind.mode.unit_milli()) {
        Some(unit) => units_milli(units, unit),
        None => units.saturating_mul(CARD_MILLI.into()),
    }
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
    let largest = remaining.iter().copied().max().unwrap_or(0);
    let milli = |left: i64, of: &str, least: i64| {
        (left >= least).then(|| format!("{left}m{of} is left to it, the limit is {least}m"))
    };
    let left = match &request.minimum {
        None | Some(Amount::Nothing | Amount::OfAgent(_)) => None,
        Some(Amount::Cards(least)) => {
            let whole = remaining.iter().filter(|r| **r == i64::from(CARD_MILLI));
            let whole = whole.count() as i64;
            let text = || format!("{whole} of its cards left whole, the limit is {least}");
            (whole >= *least).then(text)
        }
        Some(Amount::Share(least)) => milli(largest, "", *least),
        Some(Amount::Units { units, .. }) => {
            milli(remaining.iter().sum(), "", pool_milli(pool, *units))
        }
        Some(Amount::Memory(bytes)) => {
            let card = pool.and_then(|p| p.card_memory_bytes).filter(|c| *c > 0);
            let least = card.and_then(|card| memory_milli(*bytes, card));
            least.and_then(|least| milli(largest, " of a card", least))
        }
    };
    match left {
        Some(left) => Evaluation::new(Compliance::Limit, format!("{reason}; {left}")),
        None => Evaluation::violation(reason),
    }
}
