//! The cards that pods have: from their records, or else guessed by the tightest packing.

use std::{cmp::Reverse, collections::HashMap};

use tautline_core::model::{Pod, key};

use super::{Card, CardPool, Holder, PodReservation};
use crate::{
    containers::AgentRequest,
    device_annotation::{self, AnnotationError, CardShare},
    names::{
        DEVICES_ANNOTATION, POD_COUNT_ANNOTATION, POD_DEVICES_ANNOTATIONS, POD_MILLI_ANNOTATION,
    },
    node_capacity::NodeCapacity,
    shape::{CARD_MILLI, Shape},
};

/// The maximum number of cards of a node; a larger number is a mistake in a label.
pub(super) const MAX_CARDS: i64 = 1_024;

/// The cards that a pod's annotation names on a node without an agent; `None`: the pod has no such
/// annotation.
pub fn assigned_cards(pod: &Pod) -> Option<Result<Vec<CardShare>, AnnotationError>> {
    annotated_cards(pod, &POD_DEVICES_ANNOTATIONS)
}

/// The cards that a pod's annotation names; `None`: the pod has no such annotation. On nodes with an
/// agent only Tautline's annotation counts, because anyone may write the other ones.
pub(super) fn assigned_on_node(
    has_agent: bool,
    pod: &Pod,
) -> Option<Result<Vec<CardShare>, AnnotationError>> {
    if has_agent {
        annotated_cards(pod, &[DEVICES_ANNOTATION])
    } else {
        assigned_cards(pod)
    }
}

fn annotated_cards(
    pod: &Pod,
    annotations: &[&str],
) -> Option<Result<Vec<CardShare>, AnnotationError>> {
    let (name, text) = first_annotation(pod, annotations)?;
    // Tautline's annotation names the thousandths itself.
    let of_card = (name != DEVICES_ANNOTATION).then_some(POD_MILLI_ANNOTATION);
    let milli = of_card.and_then(|name| read_milli(pod.annotations.get(name)?));
    Some(device_annotation::parse(text, milli.unwrap_or(CARD_MILLI)))
}

fn first_annotation<'a>(pod: &'a Pod, names: &[&'a str]) -> Option<(&'a str, &'a str)> {
    let mut names = names.iter();
    names.find_map(|name| Some((*name, pod.annotations.get(name)?)))
}

/// The precedence of pods with conflicting parts: pods with Tautline's record come first, then
/// older pods. So a later pod cannot take the parts of other pods by its own annotations.
pub fn seniority(pod: &Pod) -> impl Ord + '_ {
    // Objects that are read from files have no UIDs.
    let id = [&*pod.uid, &*pod.namespace, &*pod.name];
    (!is_recorded(pod), pod.created_unix, id)
}

fn is_recorded(pod: &Pod) -> bool {
    matches!(annotated_cards(pod, &[DEVICES_ANNOTATION]), Some(Ok(_)))
}

/// Packs the pods, the largest requests first, each on the fullest card with enough room; requests
/// of more than one card get whole cards first. Returns whether all pods have room. A pod without
/// room becomes a holder of the first card.
pub(super) fn pack<'a>(cards: &mut [Card], pods: impl Iterator<Item = (&'a Pod, i64)>) -> bool {
    let mut all_fit = true;
    let mut asks: Vec<(&Pod, i64)> = pods.filter(|(_, milli)| *milli > 0).collect();
    asks.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.uid.cmp(&b.uid)));
    for (pod, mut left) in asks {
        while left > 0 {
            let part = u16::try_from(left.min(i64::from(CARD_MILLI))).unwrap_or(CARD_MILLI);
            let fullest = cards
                .iter_mut()
                .filter(|c| c.left_milli() >= part)
                .min_by_key(|c| c.left_milli());
            let Some(card) = fullest else {
                all_fit = false;
                if let Some(first) = cards.first_mut() {
                    first.holders.push(holder(pod, part, None));
                }
                break;
            };
            let start = card.place(part);
            card.holders.push(Holder {
                start,
                ..holder(pod, part, None)
            });
            left -= i64::from(part);
        }
    }
    all_fit
}

/// A pod without a usable record, or with a record that names an unknown card.
struct Unrecorded<'a> {
    pod: &'a Pod,
    request: AgentRequest,
}

impl Unrecorded<'_> {
    /// The thousandths of the pool's cards that the pod has; `None`: the pool's cards cannot serve
    /// the request.
    fn milli_on(&self, pool: &CardPool) -> Option<i64> {
        pool.round_up(self.request.milli_on(pool.card_memory_bytes)?)
    }
}

/// Assigns the cards of the pools to the pods on the node, and to pods with a reservation.
pub(super) fn assign<'a>(
    pools: &mut [CardPool],
    pods: impl Iterator<Item = &'a Pod> + Clone,
    held: &[PodReservation],
    warnings: &mut Vec<String>,
) {
    for reservation in held {
        for part in &reservation.parts {
            if let Some(card) = find(pools, &part.card) {
                card.holders.push(Holder {
                    pod: reservation.pod.clone(),
                    milli: part.milli,
                    start: part.start,
                    annotated: true,
                });
            }
        }
    }
    let has_agent = pools.iter().any(CardPool::has_agent);
    let mut unrecorded: Vec<Unrecorded<'_>> = Vec::new();
    let mut unreadable: Vec<&Pod> = Vec::new();
    for pod in pods.clone() {
        if !has_agent {
            warnings.extend(unreadable_request(pod));
        }
        let assigned = assigned_on_node(has_agent, pod);
        let parts = match assigned {
            Some(Ok(parts)) => Some(parts),
            Some(Err(error)) => {
                let record = first_annotation(pod, &POD_DEVICES_ANNOTATIONS);
                let name = record.map_or(DEVICES_ANNOTATION, |(name, _)| name);
                warnings.push(format!(
                    "pod {}/{}, annotation {name}: {error}",
                    pod.namespace, pod.name
                ));
                // Without an agent, only the annotation shows the pod's cards.
                if !has_agent {
                    unreadable.push(pod);
                    continue;
                }
                None
            }
            None => None,
        };
        for part in parts.iter().flatten() {
            match find(pools, &part.card) {
                Some(card) => card.holders.push(holder(pod, part.milli, Some(part))),
                // The evaluation of the pod reports cards that are gone.
                None if has_agent => {}
                // The card is one of the node's cards, but it is not known which one.
                None => unrecorded.push(Unrecorded {
                    pod,
                    request: AgentRequest::of_milli(part.milli.into()),
                }),
            }
        }
        if parts.is_some() {
            continue;
        }
        let request = if has_agent {
            AgentRequest::new(|resource| pod.requests.milli(resource) / 1000)
        } else {
            let annotated = annotated_request(|key| pod.annotations.get(key));
            let (count, milli) = annotated.unwrap_or_default();
            AgentRequest::of_milli(count * i64::from(milli))
        };
        if !request.is_empty() {
            unrecorded.push(Unrecorded { pod, request });
        }
    }
    guess(pools, unrecorded);
    for pod in unreadable {
        hold_rest(pools, pod);
    }
    order_holders(pools, pods);
}

/// Makes a pod with an unreadable record the holder of what is free of all cards that its text
/// mentions or no record names. So the pod is in conflict with no other.
fn hold_rest(pools: &mut [CardPool], pod: &Pod) {
    let record = first_annotation(pod, &POD_DEVICES_ANNOTATIONS);
    let text = record.map_or("", |(_, text)| text);
    for card in pools.iter_mut().flat_map(|p| &mut p.cards) {
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let is_possible =
            words.any(|word| card.is(word)) || !card.holders.iter().any(|h| h.annotated);
        let held = u16::try_from(card.held_milli()).unwrap_or(CARD_MILLI);
        let rest = CARD_MILLI.saturating_sub(held);
        if is_possible && rest > 0 {
            card.holders.push(holder(pod, rest, None));
        }
    }
}

/// Packs pods tightly: whole cards first, then the larger shares. If they do not all fit, older
/// pods get room first.
fn guess(pools: &mut [CardPool], mut unrecorded: Vec<Unrecorded<'_>>) {
    let Some(first) = pools.first() else { return };
    unrecorded.sort_by_cached_key(|u| {
        let milli = u.milli_on(first).unwrap_or(i64::from(CARD_MILLI));
        (Reverse(milli.min(i64::from(CARD_MILLI))), u.pod.uid.clone())
    });
    if !pack_all(pools, &unrecorded) {
        for card in pools.iter_mut().flat_map(|p| &mut p.cards) {
            card.holders.retain(|h| h.annotated);
        }
        unrecorded.sort_by_key(|u| u.pod.created_unix);
        pack_all(pools, &unrecorded);
    }
}

fn pack_all(pools: &mut [CardPool], unrecorded: &[Unrecorded<'_>]) -> bool {
    let mut all_fit = true;
    for guess in unrecorded {
        let fits = |p: &CardPool| guess.milli_on(p).is_some_and(|milli| has_room(p, milli));
        let at = pools.iter().position(fits).unwrap_or(0);
        let milli = guess.milli_on(&pools[at]).unwrap_or(i64::from(CARD_MILLI));
        all_fit &= pack(&mut pools[at].cards, std::iter::once((guess.pod, milli)));
    }
    all_fit
}

/// Sorts the holders of over-committed cards: those that keep their parts come first. Reservations
/// come before all pods.
fn order_holders<'a>(pools: &mut [CardPool], pods: impl Iterator<Item = &'a Pod>) {
    let cards = pools.iter_mut().flat_map(|p| &mut p.cards);
    let mut over = cards.filter(|c| c.is_over_committed()).peekable();
    if over.peek().is_none() {
        return;
    }
    let mut all: Vec<&Pod> = pods.collect();
    all.sort_by(|a, b| seniority(a).cmp(&seniority(b)));
    let ranks = all.iter().enumerate();
    let ranks: HashMap<String, (bool, usize)> = ranks
        .map(|(rank, pod)| (key(&pod.namespace, &pod.name), (is_recorded(pod), rank)))
        .collect();
    for card in over {
        card.holders.sort_by_key(|h| {
            let (recorded, rank) = ranks.get(&*h.pod)?;
            // A guessed part has no record, even if the pod has a record of a card that is gone.
            Some((!(h.annotated && *recorded), *rank))
        });
    }
}

fn find<'a>(pools: &'a mut [CardPool], card: &str) -> Option<&'a mut Card> {
    let mut cards = pools.iter_mut().flat_map(|p| &mut p.cards);
    cards.find(|c| c.is(card))
}

fn has_room(pool: &CardPool, milli: i64) -> bool {
    let left = pool.cards.iter().map(Card::left_milli).collect();
    let shape = Shape::from_milli(pool.kind.mode, milli);
    NodeCapacity::new(0, 0, 0, left).fits(&shape).is_ok()
}

/// The number of cards that annotations request, and the thousandths of each: a share of one card,
/// or whole cards. An unreadable number counts as one card, unreadable thousandths as whole cards.
pub fn annotated_request<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<(i64, u16)> {
    let milli = annotation(POD_MILLI_ANNOTATION).map(|t| read_milli(t).unwrap_or(CARD_MILLI));
    let count = annotation(POD_COUNT_ANNOTATION).map(|t| read_count(t).unwrap_or(1));
    if milli.is_none() && count.is_none() {
        return None;
    }
    let count = count.unwrap_or(1);
    let milli = milli.filter(|_| count <= 1).unwrap_or(CARD_MILLI);
    (count > 0 && milli > 0).then_some((count, milli))
}

fn read_milli(text: &str) -> Option<u16> {
    text.parse().ok().filter(|milli| *milli <= CARD_MILLI)
}

fn read_count(text: &str) -> Option<i64> {
    let count = text.parse().ok().filter(|count| *count >= 0)?;
    Some(MAX_CARDS.min(count))
}

fn unreadable_request(pod: &Pod) -> Option<String> {
    let unreadable = |name, is_readable: fn(&str) -> bool| {
        let text = pod.annotations.get(name)?;
        let (namespace, pod) = (&pod.namespace, &pod.name);
        let warning = || {
            format!(
                "pod {namespace}/{pod}, annotation {name}: {text:?} cannot be read; whole cards count"
            )
        };
        (!is_readable(text)).then(warning)
    };
    unreadable(POD_MILLI_ANNOTATION, |t| read_milli(t).is_some())
        .or_else(|| unreadable(POD_COUNT_ANNOTATION, |t| read_count(t).is_some()))
}

/// Returns the holder of a pod's part. `record` is the part in the pod's record; without it, the
/// holder is a guess.
fn holder(pod: &Pod, milli: u16, record: Option<&CardShare>) -> Holder {
    Holder {
        pod: format!("{}/{}", pod.namespace, pod.name).into(),
        milli,
        start: record.and_then(|part| part.start),
        annotated: record.is_some(),
    }
}
