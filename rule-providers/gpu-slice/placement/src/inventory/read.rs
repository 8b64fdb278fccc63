use std::sync::Arc;

use tautline_core::model::{Node, Pod};

use super::{Card, CardPool, CountedResource, Holder, Inventory};
use crate::{
    device_annotation::{self, CardShare},
    names::{DEVICES_ANNOTATION, Names},
    shape::{CARD, CardKind, SharingMode, units_milli},
};

/// More cards than any node has: a mistake in a label.
const MAX_CARDS: i64 = 1_024;
const UNLISTED: i64 = i64::MAX / 4;

/// A reservation for a pod that is not on the node yet.
#[derive(Clone, Debug, PartialEq)]
pub struct PodReservation {
    /// `namespace/name`.
    pub pod: Box<str>,
    /// CPU in thousandths of a core.
    pub cpu_milli: i64,
    /// Main memory in bytes.
    pub memory_bytes: i64,
    /// Reserved cards; empty where a device plugin or the scheduler picks them.
    pub parts: Vec<CardShare>,
}

/// Reads the inventory of a node. `pods`: those on the node; `held`: reservations of further pods.
pub fn read<'a>(
    names: &Names,
    node: &Node,
    pods: impl Iterator<Item = &'a Pod> + Clone,
    held: &[PodReservation],
) -> Inventory {
    let mut all = Inventory::default();
    let product = names.product.iter().find_map(|l| node.labels.get(l));
    let product: Arc<str> = product.unwrap_or_default().into();
    let memory: Option<i64> = node.labels.get(&names.memory).and_then(|m| m.parse().ok());
    let pool = |mode, resource: Option<&Arc<str>>, cards: Vec<Card>| CardPool {
        kind: CardKind {
            product: Arc::clone(&product),
            mode,
        },
        resource: resource.cloned(),
        card_memory_bytes: memory.and_then(|mib| mib.checked_mul(1 << 20)),
        cards,
    };
    let mut plugin = false;
    for resource in &names.whole {
        let count = node.allocatable.milli(resource) / 1000;
        if count > 0 {
            plugin = true;
            let mut cards = numbered_cards(count, &mut all.warnings, resource);
            let whole =
                |p: &Pod| (p.requests.milli(resource) / 1000).saturating_mul(i64::from(CARD));
            pack(&mut cards, pods.clone().map(|p| (p, whole(p))));
            all.pools
                .push(pool(SharingMode::Whole, Some(resource), cards));
        }
    }
    for resource in &names.shared {
        let units = node.allocatable.milli(resource) / 1000;
        if units <= 0 {
            continue;
        }
        plugin = true;
        let replicas: Option<i64> = node
            .labels
            .get(&names.replicas)
            .and_then(|r| r.parse().ok());
        let Some(replicas) = replicas.filter(|r| (1..=1000).contains(r)) else {
            let label = &names.replicas;
            all.warnings.push(format!(
                "{resource} is counted only: the label {label} (1 to 1000) is missing"
            ));
            all.counted
                .push(counted(resource, &product, units, pods.clone()));
            continue;
        };
        let unit_milli = u16::try_from(1000 / replicas).unwrap_or(CARD);
        let mut cards = numbered_cards(units / replicas, &mut all.warnings, resource);
        let held = |p: &Pod| units_milli(p.requests.milli(resource) / 1000, unit_milli);
        pack(&mut cards, pods.clone().map(|p| (p, held(p))));
        all.pools.push(pool(
            SharingMode::Shared { unit_milli },
            Some(resource),
            cards,
        ));
    }
    for (resource, milli) in node.allocatable.iter() {
        if names.is_instance(resource) && milli >= 1000 {
            plugin = true;
            all.counted.push(counted(
                &resource.into(),
                &product,
                milli / 1000,
                pods.clone(),
            ));
        }
    }
    if !plugin && let Some(count) = card_count(names, node) {
        let mut cards = numbered_cards(count, &mut all.warnings, &names.cards[0]);
        let unhealthy = node.annotations.get(&names.unhealthy).unwrap_or_default();
        for index in unhealthy.split(',').map(str::trim) {
            if let Some(card) = cards.iter_mut().find(|c| *c.name == *index) {
                card.healthy = false;
            }
        }
        for (h, part) in held
            .iter()
            .flat_map(|h| h.parts.iter().map(move |p| (h, p)))
        {
            if let Some(card) = cards.iter_mut().find(|c| c.name == part.card) {
                card.holders.push(Holder {
                    pod: h.pod.clone(),
                    milli: part.milli,
                    annotated: true,
                });
            }
        }
        assign_annotated(names, &mut cards, pods.clone(), &mut all.warnings);
        all.pools.push(pool(SharingMode::Milli, None, cards));
    }
    let rest = |resource: &str, held: i64| {
        let listed = node.allocatable.iter().any(|(name, _)| name == resource);
        let used = pods.clone().map(|p| p.requests.milli(resource));
        let used = used.fold(held, i64::saturating_add);
        match listed {
            true => node.allocatable.milli(resource).saturating_sub(used).max(0),
            false => UNLISTED,
        }
    };
    all.cpu_milli = rest("cpu", held.iter().map(|h| h.cpu_milli).sum());
    let held_memory: i64 = held.iter().map(|h| h.memory_bytes).sum();
    all.memory_bytes = rest("memory", held_memory.saturating_mul(1000)) / 1000;
    all
}

/// The cards that a pod's annotation names; `None`: the pod has no such annotation.
pub fn assigned_cards(
    names: &Names,
    pod: &Pod,
) -> Option<Result<Vec<CardShare>, device_annotation::AnnotationError>> {
    let number = |key: &str| pod.annotations.get(key).and_then(|v| v.parse::<u16>().ok());
    let (name, text) = names
        .pod_devices
        .iter()
        .find_map(|a| Some((a, pod.annotations.get(a)?)))?;
    let milli = match &**name {
        DEVICES_ANNOTATION => CARD,
        _ => number(&names.pod_milli).unwrap_or(CARD),
    };
    Some(device_annotation::parse(text, milli))
}

fn card_count(names: &Names, node: &Node) -> Option<i64> {
    names.cards.iter().find_map(|name| {
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

fn counted<'a>(
    resource: &Arc<str>,
    product: &Arc<str>,
    has: i64,
    pods: impl Iterator<Item = &'a Pod>,
) -> CountedResource {
    let used = pods.map(|p| p.requests.milli(resource) / 1000);
    CountedResource {
        resource: Arc::clone(resource),
        product: Arc::clone(product),
        total: has,
        used: used.fold(0, i64::saturating_add),
    }
}

/// The largest requests first, each on the fullest card with enough, else on whole cards.
fn pack<'a>(cards: &mut [Card], pods: impl Iterator<Item = (&'a Pod, i64)>) {
    let mut asks: Vec<(&Pod, i64)> = pods.filter(|(_, milli)| *milli > 0).collect();
    asks.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.uid.cmp(&b.uid)));
    for (pod, mut left) in asks {
        while left > 0 {
            let part = u16::try_from(left.min(i64::from(CARD))).unwrap_or(CARD);
            let fullest = cards
                .iter_mut()
                .filter(|c| c.left_milli() >= part)
                .min_by_key(|c| c.left_milli());
            let Some(card) = fullest else {
                if let Some(first) = cards.first_mut() {
                    first.holders.push(holder(pod, part, false));
                }
                break;
            };
            card.holders.push(holder(pod, part, false));
            left -= i64::from(part);
        }
    }
}

fn assign_annotated<'a>(
    names: &Names,
    cards: &mut [Card],
    pods: impl Iterator<Item = &'a Pod>,
    warnings: &mut Vec<String>,
) {
    let mut unknown: Vec<(&Pod, i64, u16)> = Vec::new();
    for pod in pods {
        match assigned_cards(names, pod) {
            Some(Ok(parts)) => {
                for part in parts {
                    match cards.iter_mut().find(|c| c.name == part.card) {
                        Some(card) => card.holders.push(holder(pod, part.milli, true)),
                        // Evaluate reports cards that have gone.
                        None if part.card.bytes().all(|b| b.is_ascii_digit()) => {}
                        // A UUID: the index of the card is unknown.
                        None => unknown.push((pod, 1, part.milli)),
                    }
                }
                continue;
            }
            Some(Err(error)) => warnings.push(format!(
                "pod {}/{}, annotation {DEVICES_ANNOTATION}: {error}",
                pod.namespace, pod.name
            )),
            None => {}
        }
        if let Some((count, milli)) = annotated_request(names, |key| pod.annotations.get(key)) {
            unknown.push((pod, count, milli));
        }
    }
    unknown.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.uid.cmp(&b.0.uid)));
    for (pod, count, milli) in unknown {
        pack(cards, std::iter::once((pod, count * i64::from(milli))));
    }
}

/// The number of cards and the thousandths of each: a share of one card, or whole cards.
pub fn annotated_request<'a>(
    names: &Names,
    annotation: impl Fn(&str) -> Option<&'a str>,
) -> Option<(i64, u16)> {
    let number = |key: &str| annotation(key).and_then(|v| v.parse::<i64>().ok());
    let (milli, count) = (number(&names.pod_milli), number(&names.pod_count));
    if milli.is_none() && count.is_none() {
        return None;
    }
    let milli = u16::try_from(milli.unwrap_or(i64::from(CARD))).ok()?;
    let count = count.unwrap_or(1);
    let milli = if count > 1 { CARD } else { milli };
    ((1..=MAX_CARDS).contains(&count) && (1..=CARD).contains(&milli)).then_some((count, milli))
}

fn holder(pod: &Pod, milli: u16, recorded: bool) -> Holder {
    Holder {
        pod: format!("{}/{}", pod.namespace, pod.name).into(),
        milli,
        annotated: recorded,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
