mod read;

use std::sync::Arc;

pub use read::{PodReservation, annotated_request, assigned_cards, read};

use crate::{
    device_annotation::CardShare,
    node_capacity::NodeCapacity,
    shape::{CARD, CardKind},
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    pub pools: Vec<CardPool>,
    /// MIG instances, and shares of unknown size.
    pub counted: Vec<CountedResource>,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CardPool {
    pub kind: CardKind,
    /// `None`: cards are assigned when a pod is bound.
    pub resource: Option<Arc<str>>,
    pub card_memory_bytes: Option<i64>,
    pub cards: Vec<Card>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    pub name: Box<str>,
    pub healthy: bool,
    pub holders: Vec<Holder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// `namespace/name`.
    pub pod: Box<str>,
    pub milli: u16,
    /// From the pod's annotation; otherwise a guess of the device plugin's choice: tightest
    /// packing.
    pub annotated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedResource {
    pub resource: Arc<str>,
    pub product: Arc<str>,
    pub total: i64,
    pub used: i64,
}

impl Card {
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            healthy: true,
            holders: Vec::new(),
        }
    }

    /// Above [`CARD`] the card is over-committed.
    pub fn held_milli(&self) -> u32 {
        self.holders.iter().map(|h| u32::from(h.milli)).sum()
    }

    pub fn left_milli(&self) -> u16 {
        if self.healthy {
            CARD.saturating_sub(u16::try_from(self.held_milli()).unwrap_or(CARD))
        } else {
            0
        }
    }
}

impl Inventory {
    /// The free capacity of a pool; `kind`: its index in the cost cache.
    pub fn capacity(&self, pool: &CardPool, kind: u16) -> NodeCapacity {
        let left = pool.cards.iter().map(Card::left_milli).collect();
        NodeCapacity::new(self.cpu_milli, self.memory_bytes, kind, left)
    }

    pub fn card(&self, name: &str) -> Option<(&CardPool, &Card)> {
        self.pools
            .iter()
            .find_map(|p| Some((p, p.cards.iter().find(|c| *c.name == *name)?)))
    }

    /// The first fault of a pod's cards: gone, unhealthy or over-committed.
    pub fn fault(&self, parts: &[CardShare]) -> Option<String> {
        for part in parts {
            let name = &part.card;
            match self.card(name) {
                None => return Some(format!("card {name} is gone")),
                Some((_, card)) if !card.healthy => {
                    return Some(format!("card {name} is unhealthy"));
                }
                Some((_, card)) if card.held_milli() > u32::from(CARD) => {
                    let held = card.held_milli();
                    return Some(format!(
                        "card {name} is over-committed: {held}m of 1000m held"
                    ));
                }
                Some(_) => {}
            }
        }
        None
    }
}
