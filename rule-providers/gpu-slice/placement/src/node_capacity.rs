//! The free capacity of one node. [`NodeCapacity::take`] never takes more than is free.

use crate::{
    shape::{CARD_MILLI, Shape},
    topology::Topology,
};

/// The free CPU, memory and cards of a node. All cards are of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCapacity {
    cpu_milli: i64,
    memory_bytes: i64,
    kind: u16,
    cards: Vec<u16>,
    topology: Option<Topology>,
}

/// Parts of cards that [`NodeCapacity::take`] has taken for a pod: the index of each card, and the
/// thousandths taken from it.
pub type CardGrant = Vec<(u16, u16)>;

/// The first of CPU, memory and GPU of which a node has too little free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// Too few thousandths of a core.
    #[error("CPU")]
    Cpu,
    /// Too few bytes of main memory.
    #[error("memory")]
    Memory,
    /// Too few free cards, or no card with enough left for the share.
    #[error("GPU")]
    Gpu,
}

impl NodeCapacity {
    /// Creates the capacity of a node. `cards` has the thousandths left of each card; values above
    /// [`CARD_MILLI`] are reduced to it.
    pub fn new(cpu_milli: i64, memory_bytes: i64, kind: u16, mut cards: Vec<u16>) -> Self {
        for left in &mut cards {
            *left = (*left).min(CARD_MILLI);
        }
        Self {
            cpu_milli,
            memory_bytes,
            kind,
            cards,
            topology: None,
        }
    }

    /// Sets the links of the node's cards.
    #[must_use]
    pub fn with_topology(self, topology: Option<Topology>) -> Self {
        Self { topology, ..self }
    }

    pub(crate) fn cpu_milli(&self) -> i64 {
        self.cpu_milli
    }

    /// Free main memory in bytes.
    pub fn memory_bytes(&self) -> i64 {
        self.memory_bytes
    }

    /// Index of the card kind, from [`CostCache::kind_index`](crate::CostCache::kind_index).
    pub fn kind(&self) -> u16 {
        self.kind
    }

    /// Thousandths left of each card.
    pub fn cards(&self) -> &[u16] {
        &self.cards
    }

    pub(crate) fn free_cards(&self) -> usize {
        self.cards.iter().filter(|c| **c == CARD_MILLI).count()
    }

    /// The fullest card that can give the share; `None`: the shape has no share, or no card can.
    pub(crate) fn tightest_card(&self, shape: &Shape) -> Option<u16> {
        let able = |i: &usize| shape.share > 0 && self.can_give_share(shape, *i);
        let cards = (0..self.cards.len()).filter(able);
        cards.min_by_key(|i| self.cards[*i]).map(|card| card as u16)
    }

    /// Free thousandths of all cards together.
    pub fn idle_milli(&self) -> i64 {
        self.cards.iter().map(|c| i64::from(*c)).sum()
    }

    pub(crate) fn fits(&self, shape: &Shape) -> Result<(), Shortage> {
        if self.cpu_milli < shape.cpu_milli {
            return Err(Shortage::Cpu);
        }
        if self.memory_bytes < shape.memory_bytes {
            return Err(Shortage::Memory);
        }
        self.has_cards(shape).then_some(()).ok_or(Shortage::Gpu)
    }

    /// Number of copies of a shape that fit; `None`: no limit, as the shape is empty.
    pub fn max_copies(&self, shape: &Shape) -> Option<i64> {
        let of = |left: i64, each: i64| (each > 0).then(|| (left / each).max(0));
        let limits = [
            of(self.cpu_milli, shape.cpu_milli),
            of(self.memory_bytes, shape.memory_bytes),
            self.max_card_copies(shape),
        ];
        limits.into_iter().flatten().min()
    }

    fn max_card_copies(&self, shape: &Shape) -> Option<i64> {
        let whole = self.free_cards() as i64;
        let shares = |cards: &mut dyn Iterator<Item = &u16>| -> i64 {
            cards.map(|c| i64::from(c / shape.share.max(1))).sum()
        };
        match (i64::from(shape.whole), shape.share) {
            (0, 0) => None,
            (0, _) => Some(shares(&mut self.cards.iter())),
            (each, 0) => Some(whole / each),
            (each, share) => {
                let parts = shares(&mut self.cards.iter().filter(|c| **c < CARD_MILLI));
                let of_one = i64::from(CARD_MILLI / share);
                let best = |cut: i64| ((whole - cut) / each).min(parts + cut * of_one);
                (0..=whole).map(best).max()
            }
        }
    }

    fn has_cards(&self, shape: &Shape) -> bool {
        if !shape.needs_gpu() {
            return true;
        }
        let whole = self.free_cards();
        let needed = usize::from(shape.whole);
        if shape.share == 0 || whole < needed {
            return whole >= needed;
        }
        whole > needed
            || self
                .cards
                .iter()
                .any(|c| *c >= shape.share && *c < CARD_MILLI)
    }

    /// Returns whether the share fits on this card and the whole cards on others.
    pub(crate) fn can_give_share(&self, shape: &Shape, card: usize) -> bool {
        let Some(left) = self.cards.get(card) else {
            return false;
        };
        let whole = self.free_cards();
        let others = whole - usize::from(*left == CARD_MILLI);
        *left >= shape.share && others >= usize::from(shape.whole)
    }

    /// The whole cards for a pod: those that [`Topology::choose`] chooses; without a topology, the
    /// first free ones.
    fn choose_whole(&self, count: u16) -> Vec<usize> {
        let count = usize::from(count);
        let free = (0..self.cards.len()).filter(|i| self.cards[*i] == CARD_MILLI);
        match &self.topology {
            Some(topology) => topology.choose(&free.collect::<Vec<_>>(), count),
            None => free.take(count).collect(),
        }
    }

    /// Returns the free card to take instead of a free `card`, so that NVLink domains stay whole.
    /// Returns `card` itself if it is in use, or if the node has no topology.
    pub(crate) fn prefer_by_links(&self, card: u16) -> u16 {
        let free = self.cards.get(usize::from(card)) == Some(&CARD_MILLI);
        let chosen = (free && self.topology.is_some()).then(|| self.choose_whole(1));
        let chosen = chosen.and_then(|cards| cards.first().copied());
        chosen.map_or(card, |chosen| chosen as u16)
    }

    /// The fraction of the pairs of the pod's whole cards that NVLink does not link, from 0 to 1.
    /// `card` is the card that gives the share.
    pub(crate) fn unlinked_part(&self, shape: &Shape, card: Option<u16>) -> f64 {
        let Some(topology) = self.topology.as_ref().filter(|_| shape.whole > 1) else {
            return 0.0;
        };
        let mut free: Vec<usize> = (0..self.cards.len()).collect();
        free.retain(|i| self.cards[*i] == CARD_MILLI && card.map(usize::from) != Some(*i));
        let chosen = topology.choose(&free, shape.whole.into());
        let (unlinked, pairs) = topology.unlinked_pairs(&chosen);
        unlinked as f64 / pairs.max(1) as f64
    }

    /// Takes a shape's CPU, memory and cards: the share from `card`, the whole cards from free ones
    /// that NVLink links, where possible.
    pub fn take(&mut self, shape: &Shape, card: Option<usize>) -> Result<CardGrant, Shortage> {
        self.fits(shape)?;
        let mut parts = Vec::new();
        if shape.share > 0 {
            let card = card
                .filter(|c| self.can_give_share(shape, *c))
                .ok_or(Shortage::Gpu)?;
            self.cards[card] -= shape.share;
            parts.push((card as u16, shape.share));
        }
        for card in self.choose_whole(shape.whole) {
            self.cards[card] = 0;
            parts.push((card as u16, CARD_MILLI));
        }
        self.cpu_milli -= shape.cpu_milli;
        self.memory_bytes -= shape.memory_bytes;
        Ok(parts)
    }

    /// Gives back what [`NodeCapacity::take`] has taken. Ignores unknown cards, and never frees
    /// more than a whole card.
    pub fn release(&mut self, shape: &Shape, grant: &[(u16, u16)]) {
        self.cpu_milli += shape.cpu_milli;
        self.memory_bytes += shape.memory_bytes;
        for (card, milli) in grant {
            if let Some(left) = self.cards.get_mut(usize::from(*card)) {
                *left = left.saturating_add(*milli).min(CARD_MILLI);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::topology::CardLinks;

    fn shapes() -> impl Strategy<Value = Shape> {
        (0..4_i64, 0..4_i64, 0..4_u16, 0..CARD_MILLI).prop_map(|(cpu, memory, whole, share)| {
            Shape {
                cpu_milli: cpu * 1000,
                memory_bytes: memory << 30,
                whole,
                share,
                ..Shape::default()
            }
        })
    }

    proptest! {
        /// In any order of takes and releases the held and the free parts add up to one card.
        #[test]
        fn take_never_gives_a_card_twice(
            asks in prop::collection::vec((shapes(), 0..8_usize, any::<bool>()), 1..40),
            domains in prop::option::of(prop::collection::vec(prop::option::of(0..3_u16), 6)),
        ) {
            let links = domains.and_then(|d| {
                let links = |nvlink| CardLinks { nvlink, numa: None };
                Topology::new(d.into_iter().map(links))
            });
            let full = NodeCapacity::new(32_000, 64 << 30, 0, vec![CARD_MILLI; 6]).with_topology(links);
            let mut capacity = full.clone();
            let mut held: Vec<(Shape, CardGrant)> = Vec::new();
            for (shape, card, give_back) in asks {
                if give_back && !held.is_empty() {
                    let (shape, grant) = held.swap_remove(card % held.len());
                    capacity.release(&shape, &grant);
                }
                let fits = capacity.fits(&shape).is_ok();
                let card = (0..6).map(|i| (card + i) % 6).find(|c| capacity.can_give_share(&shape, *c));
                let before = capacity.clone();
                match capacity.take(&shape, card) {
                    Ok(grant) => {
                        prop_assert!(fits);
                        held.push((shape, grant));
                    }
                    Err(_) => {
                        prop_assert!(!fits, "{shape:?} fits {before:?}");
                        prop_assert_eq!(&capacity, &before);
                    }
                }
                let mut sums = [0_u32; 6];
                for (card, milli) in held.iter().flat_map(|(_, g)| g) {
                    sums[usize::from(*card)] += u32::from(*milli);
                }
                for (sum, left) in sums.iter().zip(capacity.cards()) {
                    prop_assert_eq!(sum + u32::from(*left), u32::from(CARD_MILLI));
                }
                let cpu: i64 = held.iter().map(|(s, _)| s.cpu_milli).sum();
                prop_assert_eq!(cpu + capacity.cpu_milli(), 32_000);
                prop_assert!(capacity.cpu_milli() >= 0 && capacity.memory_bytes() >= 0);
            }
            for (shape, grant) in held {
                capacity.release(&shape, &grant);
            }
            prop_assert_eq!(capacity, full);
        }

        #[test]
        fn max_copies_is_exact(
            shape in shapes(), cards in prop::collection::vec(0..=CARD_MILLI, 0..8), cpu in 0..40_i64,
        ) {
            let mut capacity = NodeCapacity::new(cpu * 1000, 8 << 30, 0, cards);
            let copies = capacity.max_copies(&shape);
            let mut taken = 0;
            while copies.is_some() && capacity.fits(&shape).is_ok() {
                let card = capacity.tightest_card(&shape).map(usize::from);
                capacity.take(&shape, card).unwrap();
                taken += 1;
            }
            prop_assert_eq!(copies.unwrap_or(0), taken);
        }
    }
}
