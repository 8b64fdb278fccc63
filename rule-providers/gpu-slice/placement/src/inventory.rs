//! The GPUs of a node, card by card, and the pods that hold them.

mod agent;
mod assign;
mod read;

use std::sync::Arc;

pub use assign::{annotated_request, assigned_cards, seniority};
pub use read::{PodReservation, read};
use tautline_core::model::Pod;

use crate::{
    device_annotation::{AnnotationError, CardShare},
    mig::{MigLayout, MigPlace, Occupied},
    node_capacity::{NodeCapacity, Shortage},
    shape::{CARD_MILLI, CardKind, Shape, SharingMode},
    topology::{CardLinks, Topology},
};

/// The fault of a card that is listed as unhealthy without a reason.
pub const UNHEALTHY: &str = "unhealthy";
/// The maximum number of pods that a message names.
const MAX_NAMES: usize = 3;

/// The GPUs and the free CPU and memory of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// Cards that are known one by one, in pools of equal cards.
    pub pools: Vec<CardPool>,
    /// Resources of which only the number of units is known: MIG instances, and shares of unknown
    /// size.
    pub counted: Vec<CountedResource>,
    /// Free CPU in thousandths of a core; practically unlimited if the node lists no CPU.
    pub cpu_milli: i64,
    /// Free memory in bytes; practically unlimited if the node lists no memory.
    pub memory_bytes: i64,
    /// Warnings about the labels and annotations of the node, and the annotations of its pods.
    pub warnings: Vec<String>,
}

/// The cards that one resource of a node stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct CardPool {
    /// Product and sharing mode, the same for all cards of the pool.
    pub kind: CardKind,
    /// Resource that stands for the cards; `None`: cards are assigned when a pod is bound, and no
    /// resource counts them.
    pub resource: Option<Arc<str>>,
    /// Memory of each card in bytes, from the node's agent or label; `None`: not known.
    pub card_memory_bytes: Option<i64>,
    /// Possible sizes of a share in thousandths, ascending; 1000 alone if cards are given whole
    /// only; `None`: all sizes.
    pub sizes: Option<Arc<[u16]>>,
    /// True if further pods may get cards. False while the node's agent offers no cards: the agent
    /// is not running, or another device plugin has the cards.
    pub offered: bool,
    /// Cards by index on the node, from 0.
    pub cards: Vec<Card>,
}

/// A card, and the parts of the card that pods have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Index of the card on the node, such as `0`.
    pub name: Box<str>,
    /// UUID of the card, such as `GPU-dc045714-f1e3-e4f0-b27a-21fc860293fe`; `None`: not known.
    pub uuid: Option<Box<str>>,
    /// Reason why no part of the card is free for further pods, such as `Xid79`, or [`UNHEALTHY`];
    /// `None`: the card is healthy.
    pub fault: Option<Box<str>>,
    /// NVLink domain and NUMA node of the card.
    pub links: CardLinks,
    /// Layout of MIG instances, if MIG is on and shares are instances.
    pub mig: Option<Arc<MigLayout>>,
    /// Parts that pods have; a pod may have several. If the parts are more than the card, the
    /// holders that keep their parts come first ([`seniority`]).
    pub holders: Vec<Holder>,
}

/// A part of a card that a pod has, or that is reserved for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Pod as `namespace/name`; a claim without pods as `namespace/name (claim)`.
    pub pod: Box<str>,
    /// Thousandths of the card, up to 1000; 0: the pod shares the claim of an earlier holder.
    pub milli: u16,
    /// First memory slice of the MIG instance; `None`: the part is not an instance, or its place is
    /// not known.
    pub start: Option<u8>,
    /// True if the part is from a pod's annotation, a reservation or a claim. Otherwise it is a
    /// guess of the device plugin's choice, by the tightest packing.
    pub annotated: bool,
}

/// A resource of which only the number of units is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedResource {
    /// Name of the resource, such as `nvidia.com/mig-1g.5gb`.
    pub resource: Arc<str>,
    /// Product name from the node's labels; empty: unknown.
    pub product: Arc<str>,
    /// True if a unit is a MIG instance, or a share of an instance.
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
            ..Self::default()
        }
    }

    /// Returns whether `card`, the index or UUID in a pod's record, means this card.
    pub fn is(&self, card: &str) -> bool {
        *self.name == *card || self.uuid.as_deref() == Some(card)
    }

    /// The name of the card in new records: the UUID if it is known, else the index.
    pub fn record_name(&self) -> &str {
        self.uuid.as_deref().unwrap_or(&self.name)
    }

    /// The thousandths of all holders together; above [`CARD_MILLI`] the card is over-committed.
    pub fn held_milli(&self) -> u32 {
        self.holders.iter().map(|h| u32::from(h.milli)).sum()
    }

    /// The free thousandths of the card; with MIG, the thousandths that one further instance can
    /// have. 0: the card is full, over-committed or unhealthy.
    pub fn left_milli(&self) -> u16 {
        match (&self.fault, &self.mig) {
            (Some(_), _) => 0,
            (None, Some(mig)) => self.occupied(mig).map_or(0, |taken| mig.left_milli(taken)),
            (None, None) => {
                CARD_MILLI.saturating_sub(u16::try_from(self.held_milli()).unwrap_or(CARD_MILLI))
            }
        }
    }

    /// The value of [`left_milli`](Self::left_milli) after a further share that fits.
    pub fn left_after(&self, milli: u16) -> u16 {
        let with_instance = || {
            let (mig, mut taken) = (self.mig.as_ref()?, self.occupied(self.mig.as_ref()?)?);
            taken.add(mig.place(milli, taken)?);
            Some(mig.left_milli(taken))
        };
        with_instance().unwrap_or_else(|| self.left_milli().saturating_sub(milli))
    }

    /// The first memory slice of a further MIG instance; `None`: there is no place for it.
    pub fn place(&self, milli: u16) -> Option<u8> {
        let mig = self.mig.as_ref()?;
        Some(mig.place(milli, self.occupied(mig)?)?.start)
    }

    /// The slices that the holders have; `None`: the place of a share is not known.
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

    /// Returns whether the holders have more than the card, or the same memory slices.
    fn is_over_committed(&self) -> bool {
        let overlaps = || (0..self.holders.len()).any(|at| self.overlaps_before(at));
        self.held_milli() > u32::from(CARD_MILLI) || overlaps()
    }

    /// Returns whether the holder at this index has memory slices that an earlier holder has.
    fn overlaps_before(&self, at: usize) -> bool {
        let Some(mig) = &self.mig else { return false };
        let mut taken = Occupied::default();
        for place in self.places(mig).take(at).flatten() {
            taken.add(place);
        }
        let own = self.places(mig).nth(at).flatten();
        own.is_some_and(|own| !taken.is_free(own))
    }

    /// The thousandths of other pods that come before the pod's last part in the order of
    /// [`holders`](Self::holders); 0 if the pod has no part. `pod` is `namespace/name`.
    pub fn held_before(&self, pod: &str) -> u32 {
        let before = self.before(pod).iter().filter(|h| *h.pod != *pod);
        before.map(|h| u32::from(h.milli)).sum()
    }

    /// The holders up to and including the pod's last part; empty if the pod has no part.
    fn before(&self, pod: &str) -> &[Holder] {
        let last = self.holders.iter().rposition(|h| *h.pod == *pod);
        last.map_or(&[], |last| &self.holders[..=last])
    }

    /// Returns the reason why the pod cannot have its part of the card in addition to the parts of
    /// earlier holders; `None`: it can.
    fn conflict(&self, pod: &str) -> Option<String> {
        let before = self.before(pod);
        let mut own = (0..before.len()).filter(|at| *before[*at].pod == *pod);
        let held: u32 = before.iter().map(|h| u32::from(h.milli)).sum();
        let mut text = if held > u32::from(CARD_MILLI) {
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

/// Lists the first three of the pods' names, and the number of further ones.
pub fn list_pods<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<T> = names.into_iter().collect();
    let first: Vec<&str> = names.iter().take(MAX_NAMES).map(AsRef::as_ref).collect();
    let first = first.join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

impl CardPool {
    /// Returns whether an agent on the node gives out the cards: then containers must request or
    /// claim them.
    pub fn has_agent(&self) -> bool {
        matches!(self.kind.mode, SharingMode::Agent | SharingMode::Claim)
    }

    /// Rounds a share up to the next size; `None`: the cards are given whole only.
    pub fn round_up(&self, milli: i64) -> Option<i64> {
        let share = milli % i64::from(CARD_MILLI);
        let Some(sizes) = self.sizes.as_ref().filter(|_| share > 0) else {
            return Some(milli);
        };
        let smaller = sizes.first().is_some_and(|size| *size < CARD_MILLI);
        let mut sizes = sizes.iter().map(|size| i64::from(*size));
        let size = sizes.find(|size| *size >= share);
        smaller.then(|| milli - share + size.unwrap_or(i64::from(CARD_MILLI)))
    }
}

impl Inventory {
    /// The cards that a pod's annotation names; `None`: the pod has no such annotation. On nodes
    /// with an agent only Tautline's annotation counts, because anyone may write the other ones.
    pub fn assigned_cards(&self, pod: &Pod) -> Option<Result<Vec<CardShare>, AnnotationError>> {
        let has_agent = self.pools.iter().any(CardPool::has_agent);
        assign::assigned_on_node(has_agent, pod)
    }

    /// The free capacity of a pool; `kind` is the index of the pool's kind in the cost cache.
    pub fn capacity(&self, pool: &CardPool, kind: u16) -> NodeCapacity {
        let left = |card: &Card| if pool.offered { card.left_milli() } else { 0 };
        let left = pool.cards.iter().map(left).collect();
        NodeCapacity::new(self.cpu_milli, self.memory_bytes, kind, left)
            .with_topology(Topology::new(pool.cards.iter().map(|c| c.links)))
    }

    /// Returns the first of CPU and memory of which the node has too little free for a shape
    /// without cards.
    pub fn host_shortage(&self, host: &Shape) -> Option<Shortage> {
        let free = NodeCapacity::new(self.cpu_milli, self.memory_bytes, 0, Vec::new());
        free.fits(host).err()
    }

    /// The first card with that index or UUID, with its pool.
    pub fn card(&self, name: &str) -> Option<(&CardPool, &Card)> {
        self.pools
            .iter()
            .find_map(|p| Some((p, p.cards.iter().find(|c| c.is(name))?)))
    }

    /// Returns the first fault of a pod's cards: a card is gone or unhealthy, or the pod's part is
    /// in conflict with the parts of earlier holders. `pod` is `namespace/name`.
    pub fn fault(&self, pod: &str, parts: &[CardShare]) -> Option<String> {
        let fault = |CardShare { card: name, .. }: &CardShare| {
            let Some((_, card)) = self.card(name) else {
                return Some(format!("card {name} is gone"));
            };
            match card.fault.as_deref()? {
                UNHEALTHY => Some(format!("card {name} is unhealthy")),
                fault => Some(format!("card {name} is unhealthy: {fault}")),
            }
        };
        let conflict = |CardShare { card: name, .. }: &CardShare| {
            let conflict = self.card(name)?.1.conflict(pod)?;
            Some(format!("card {name} {conflict}"))
        };
        // Faults of cards come first: the pod's part of a card that is gone counts as held on
        // another card.
        let of_card = parts.iter().find_map(fault);
        of_card.or_else(|| parts.iter().find_map(conflict))
    }

    /// The first card on which the pod's part, recorded or guessed, is in conflict with the parts
    /// of earlier holders, with its pool and the reason. `pod` is `namespace/name`.
    pub fn conflict(&self, pod: &str) -> Option<(&CardPool, &Card, String)> {
        let pools = self.pools.iter();
        let mut cards = pools.flat_map(|pool| pool.cards.iter().map(move |card| (pool, card)));
        cards.find_map(|(pool, card)| {
            let conflict = card.conflict(pod)?;
            let text = format!("card {} {conflict}", card.record_name());
            Some((pool, card, text))
        })
    }
}
