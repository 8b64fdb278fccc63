//! The GPUs of one node: what its cards are, and who holds what of them.

mod read;

use std::sync::Arc;

pub use read::{PodReservation, annotated_request, assigned_cards, read};

use crate::{
    device_annotation::CardShare,
    node_capacity::NodeCapacity,
    shape::{CARD, CardKind},
};

/// A node's devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    pub pools: Vec<CardPool>,
    /// What is known by number only: MIG instances, and shares of unknown size.
    pub counted: Vec<CountedResource>,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    /// What could not be read, for people.
    pub warnings: Vec<String>,
}

/// Cards of a node that are given away in one way.
#[derive(Clone, Debug, PartialEq)]
pub struct CardPool {
    pub kind: CardKind,
    /// The resource that pods request for it; none where they are bound to cards.
    pub resource: Option<Arc<str>>,
    /// Memory of one card.
    pub card_memory_bytes: Option<i64>,
    pub cards: Vec<Card>,
}

/// One card and who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its index, or its UUID.
    pub name: Box<str>,
    pub healthy: bool,
    pub holders: Vec<Holder>,
}

/// Who holds a part of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// `namespace/name`.
    pub pod: Box<str>,
    pub milli: u16,
    /// The card is written on the pod; else the device plugin chose it and this is
    /// the packing that wastes least.
    pub annotated: bool,
}

/// A resource of which only the number is known.
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

    /// What all its holders have; above [`CARD`] it is over-committed.
    pub fn held_milli(&self) -> u32 {
        self.holders.iter().map(|h| u32::from(h.milli)).sum()
    }

    /// What a pod could still be given.
    pub fn left_milli(&self) -> u16 {
        if self.healthy {
            CARD.saturating_sub(u16::try_from(self.held_milli()).unwrap_or(CARD))
        } else {
            0
        }
    }
}

impl Inventory {
    /// What is left of a pool, with the node's CPU and memory; `kind` is the pool's
    /// number on the board.
    pub fn capacity(&self, pool: &CardPool, kind: u16) -> NodeCapacity {
        let left = pool.cards.iter().map(Card::left_milli).collect();
        NodeCapacity::new(self.cpu_milli, self.memory_bytes, kind, left)
    }

    /// The pool and card of a part of a record.
    pub fn card(&self, name: &str) -> Option<(&CardPool, &Card)> {
        self.pools
            .iter()
            .find_map(|p| Some((p, p.cards.iter().find(|c| *c.name == *name)?)))
    }

    /// The first thing wrong with cards that a pod was given: gone, unhealthy or
    /// over-committed, with the card's name.
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
