//! The GPUs of a node, card by card, and the pods that have them.

mod agent;
mod assign;
mod read;

use std::sync::Arc;

pub use agent::AgentRequest;
use assign::recorded_cards;
pub use assign::{annotated_request, assigned_cards, seniority};
pub use read::{PodReservation, read};
use tautline_core::model::Pod;

use crate::{
    device_annotation::{AnnotationError, CardShare},
    mig::{MigLayout, MigPlace, Occupied},
    names::Names,
    node_capacity::NodeCapacity,
    shape::{CARD, CardKind, SharingMode},
    topology::{CardLinks, Topology},
};

/// The fault of a card that is listed as unhealthy without a reason.
pub const UNHEALTHY: &str = "unhealthy";
/// Pods that a reason names.
const MAX_NAMES: usize = 3;

/// The GPUs and the free CPU and memory of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// Cards that are known one by one; a pool for each resource.
    pub pools: Vec<CardPool>,
    /// MIG instances, and shares of unknown size.
    pub counted: Vec<CountedResource>,
    /// Free CPU in thousandths of a core; of a node that lists none, practically unlimited.
    pub cpu_milli: i64,
    /// Free memory in bytes; of a node that lists none, practically unlimited.
    pub memory_bytes: i64,
    /// What is wrong with the node's labels or with the annotations of its pods.
    pub warnings: Vec<String>,
}

/// The cards that one resource of a node stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct CardPool {
    /// Product and sharing mode, the same for all cards of the pool.
    pub kind: CardKind,
    /// `None`: cards are assigned when a pod is bound, and nothing counts them.
    pub resource: Option<Arc<str>>,
    /// Memory of each card in bytes, from the node's agent or label; `None`: not known.
    pub card_memory_bytes: Option<i64>,
    /// The possible thousandths of a share, ascending; of cards that are given whole only, 1000;
    /// `None`: all.
    pub sizes: Option<Arc<[u16]>>,
    /// Further pods may get cards. False while the node's agent offers none: it is away, or another
    /// device plugin has them.
    pub offered: bool,
    /// Cards by index on the node, from 0.
    pub cards: Vec<Card>,
}

/// A card and the parts of it that pods have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Index on the node, such as `0`.
    pub name: Box<str>,
    /// Such as `GPU-dc045714-f1e3-e4f0-b27a-21fc860293fe`; `None`: not known.
    pub uuid: Option<Box<str>>,
    /// Why nothing of the card is free for further pods, such as `Xid79`; else [`UNHEALTHY`].
    pub fault: Option<Box<str>>,
    /// The cards and the NUMA node that it is near to.
    pub links: CardLinks,
    /// MIG is on, and shares are instances.
    pub mig: Option<Arc<MigLayout>>,
    /// Parts that pods have; a pod may have several. Where they are more than the card, those who
    /// keep theirs come first ([`seniority`]).
    pub holders: Vec<Holder>,
}

/// A part of a card that a pod has, or that is reserved for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// `namespace/name`.
    pub pod: Box<str>,
    /// Thousandths of the card, from 1 to 1000.
    pub milli: u16,
    /// First memory slice of the MIG instance.
    pub start: Option<u8>,
    /// From the pod's annotation; otherwise a guess of the device plugin's choice: tightest
    /// packing.
    pub annotated: bool,
}

/// A resource of which only the number of units is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedResource {
    /// Name of the resource, such as `nvidia.com/mig-1g.5gb`.
    pub resource: Arc<str>,
    /// Product name from the node's labels; empty: unknown.
    pub product: Arc<str>,
    /// A unit is a MIG instance, or a share of one.
    pub is_instance: bool,
    /// Units that the node has (allocatable).
    pub total: i64,
    /// Units that the node's pods request.
    pub used: i64,
}

impl Card {
    pub(crate) fn new(name: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            uuid: None,
            fault: None,
            links: CardLinks::default(),
            mig: None,
            holders: Vec::new(),
        }
    }

    /// Whether a pod's record means this card, by index or UUID.
    pub fn is(&self, card: &str) -> bool {
        *self.name == *card || self.uuid.as_deref() == Some(card)
    }

    /// The UUID if it is known, else the index: how new records name the card.
    pub fn record_name(&self) -> &str {
        self.uuid.as_deref().unwrap_or(&self.name)
    }

    /// Above [`CARD`] the card is over-committed.
    pub fn held_milli(&self) -> u32 {
        self.holders.iter().map(|h| u32::from(h.milli)).sum()
    }

    /// Thousandths that are free, on a card with MIG for one instance; 0: the card is full,
    /// over-committed or unhealthy.
    pub fn left_milli(&self) -> u16 {
        match (&self.fault, &self.mig) {
            (Some(_), _) => 0,
            (None, Some(mig)) => self.occupied(mig).map_or(0, |taken| mig.left_milli(taken)),
            (None, None) => CARD.saturating_sub(u16::try_from(self.held_milli()).unwrap_or(CARD)),
        }
    }

    /// What [`left_milli`](Self::left_milli) would be with a further share that fits.
    pub fn left_after(&self, milli: u16) -> u16 {
        let with_instance = || {
            let (mig, mut taken) = (self.mig.as_ref()?, self.occupied(self.mig.as_ref()?)?);
            taken.add(mig.place(milli, taken)?);
            Some(mig.left_milli(taken))
        };
        with_instance().unwrap_or_else(|| self.left_milli().saturating_sub(milli))
    }

    /// The first memory slice of a further MIG instance; `None`: it has no place.
    pub fn place(&self, milli: u16) -> Option<u8> {
        let mig = self.mig.as_ref()?;
        Some(mig.place(milli, self.occupied(mig)?)?.start)
    }

    /// `None`: a share has no place that is known.
    fn occupied(&self, mig: &MigLayout) -> Option<Occupied> {
        let mut taken = mig.empty();
        for place in self.places(mig) {
            taken.add(place?);
        }
        Some(taken)
    }

    fn places<'a>(&'a self, mig: &'a MigLayout) -> impl Iterator<Item = Option<MigPlace>> + 'a {
        let holders = self.holders.iter();
        holders.map(|h| mig.place_of(h.milli, h.start?))
    }

    /// Returns whether holders have more than the card, or the same of it.
    fn is_over_committed(&self) -> bool {
        let overlaps = || (0..self.holders.len()).any(|at| self.overlaps_before(at));
        self.held_milli() > u32::from(CARD) || overlaps()
    }

    /// Returns whether the instance of a holder has memory slices that one before it has.
    fn overlaps_before(&self, at: usize) -> bool {
        let Some(mig) = &self.mig else { return false };
        let mut taken = Occupied::default();
        for place in self.places(mig).take(at).flatten() {
            taken.add(place);
        }
        let own = self.places(mig).nth(at).flatten();
        own.is_some_and(|own| !taken.is_free(own))
    }

    /// Thousandths that those hold who keep theirs before the pod. `pod`: `namespace/name`.
    pub fn held_before(&self, pod: &str) -> u32 {
        let before = self.before(pod).iter().filter(|h| *h.pod != *pod);
        before.map(|h| u32::from(h.milli)).sum()
    }

    /// The holders up to the pod's last part, without parts; empty if it has none.
    fn before(&self, pod: &str) -> &[Holder] {
        let last = self.holders.iter().rposition(|h| *h.pod == *pod);
        last.map_or(&[], |last| &self.holders[..=last])
    }

    /// Returns why the pod cannot have its part of the card beside those that came before it, if so.
    fn conflict(&self, pod: &str) -> Option<String> {
        let before = self.before(pod);
        let mut own = (0..before.len()).filter(|at| *before[*at].pod == *pod);
        let held: u32 = before.iter().map(|h| u32::from(h.milli)).sum();
        let mut text = if held > u32::from(CARD) {
            let all = self.held_milli();
            format!("is over-committed: {all}m of 1000m held")
        } else if own.any(|at| self.overlaps_before(at)) {
            "has memory slices that two pods hold".to_owned()
        } else {
            return None;
        };
        let mut others: Vec<&str> = before.iter().map(|h| &*h.pod).collect();
        others.retain(|name| *name != pod);
        others.dedup();
        if !others.is_empty() {
            text += "; before it came ";
            text += &list_pods(others);
        }
        Some(text)
    }
}

/// The first of the pods' names, and how many more there are.
pub fn list_pods<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let mut text = String::new();
    let mut more = 0;
    for (at, name) in names.into_iter().enumerate() {
        match at {
            0 => text.push_str(name.as_ref()),
            1..MAX_NAMES => text.extend([", ", name.as_ref()]),
            _ => more += 1,
        }
    }
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

impl CardPool {
    /// Whether an agent on the node gives out the cards: containers must request them.
    pub fn has_agent(&self) -> bool {
        self.kind.mode == SharingMode::Agent
    }

    /// Rounds a share up to the next size; `None`: the cards are given whole only.
    pub fn round_up(&self, milli: i64) -> Option<i64> {
        let (whole, share) = (milli - milli % i64::from(CARD), milli % i64::from(CARD));
        let Some(sizes) = self.sizes.as_ref().filter(|_| share > 0) else {
            return Some(milli);
        };
        let smaller = sizes.first().is_some_and(|size| *size < CARD);
        let mut sizes = sizes.iter().map(|size| i64::from(*size));
        let size = sizes.find(|size| *size >= share);
        smaller.then(|| whole + size.unwrap_or(i64::from(CARD)))
    }
}

impl Inventory {
    /// The cards that a pod's annotation names; `None`: the pod has no such annotation. On nodes
    /// with an agent only Tautline's record counts: anyone may write those of others.
    pub fn assigned_cards(
        &self,
        names: &Names,
        pod: &Pod,
    ) -> Option<Result<Vec<CardShare>, AnnotationError>> {
        match self.pools.iter().any(CardPool::has_agent) {
            true => recorded_cards(pod),
            false => assigned_cards(names, pod),
        }
    }

    /// The free capacity of a pool; `kind`: its index in the cost cache.
    pub fn capacity(&self, pool: &CardPool, kind: u16) -> NodeCapacity {
        let left = |card: &Card| if pool.offered { card.left_milli() } else { 0 };
        let left = pool.cards.iter().map(left).collect();
        NodeCapacity::new(self.cpu_milli, self.memory_bytes, kind, left)
            .with_topology(Topology::new(pool.cards.iter().map(|c| c.links)))
    }

    /// The first card with that index or UUID, with its pool.
    pub fn card(&self, name: &str) -> Option<(&CardPool, &Card)> {
        self.pools
            .iter()
            .find_map(|p| Some((p, p.cards.iter().find(|c| c.is(name))?)))
    }

    /// Returns the first fault of a pod's cards: one is gone, one is unhealthy, or more is held than
    /// there is and others keep theirs. `pod`: `namespace/name`.
    pub fn fault(&self, pod: &str, parts: &[CardShare]) -> Option<String> {
        // Faults of cards come first: what the pod had of a card that is gone counts as held on
        // another one.
        let of_card = parts.iter().find_map(|part| {
            let name = &part.card;
            let Some((_, card)) = self.card(name) else {
                return Some(format!("card {name} is gone"));
            };
            match card.fault.as_deref()? {
                UNHEALTHY => Some(format!("card {name} is unhealthy")),
                fault => Some(format!("card {name} is unhealthy: {fault}")),
            }
        });
        of_card.or_else(|| {
            parts.iter().find_map(|part| {
                let conflict = self.card(&part.card)?.1.conflict(pod)?;
                Some(format!("card {} {conflict}", part.card))
            })
        })
    }

    /// The first card of which the pod has what others had before it, by what is known or guessed
    /// of its cards. `pod`: `namespace/name`.
    pub fn conflict(&self, pod: &str) -> Option<(&CardPool, &Card, String)> {
        self.pools.iter().find_map(|pool| {
            let mut cards = pool.cards.iter();
            cards.find_map(|card| {
                let conflict = card.conflict(pod)?;
                let text = format!("card {} {conflict}", card.record_name());
                Some((pool, card, text))
            })
        })
    }
}
