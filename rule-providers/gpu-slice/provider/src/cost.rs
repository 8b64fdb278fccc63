//! What a node would cost a need, or why it cannot serve it.

use std::sync::Arc;

use tautline_gpu_placement::{
    Board, CARD, Lane, Names, Place, Room, Shape,
    inventory::{Card, Pool},
};

use crate::{
    counted,
    lanes::shape,
    ledger::Entry,
    need::{Amount, Need},
    refusal::{No, no, refused},
};

/// Costs of equal places are told apart by the order of nodes below this.
pub(crate) const RANKS: i64 = 1 << 17;
/// What a node says to a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It can serve it.
    Yes {
        /// As it is answered: lower is better, few nodes have the same.
        cost: i64,
        /// The part of `cost` that only orders equally good nodes.
        tie_break: i64,
        /// In the policy's own unit, where nodes may be equal.
        policy_cost: i64,
        /// What would be left, for people.
        detail: String,
        /// `None`: no cards are known, or none are asked.
        at: Option<At>,
    },
    /// It cannot.
    No(No),
}

/// Where on a node: the pool, and the share's card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// Which of the inventory's pools.
    pub pool: usize,
    /// What would be taken of it.
    pub shape: Shape,
    /// The share's card, by its place in the pool.
    pub card: Option<u16>,
}

/// A need that many nodes are asked about: what it is to each kind of pool is worked
/// out once.
pub(crate) struct Asking<'a> {
    need: &'a Need,
    pools: Vec<Asked>,
}

struct Asked {
    lane: Lane,
    resource: Option<Arc<str>>,
    card_memory_bytes: Option<i64>,
    /// The shape and its number on the board.
    shape: Result<(Shape, usize), No>,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(need: &'a Need) -> Self {
        let pools = Vec::new();
        Self { need, pools }
    }

    fn of(&mut self, board: &mut Board, pool: &Pool) -> &Result<(Shape, usize), No> {
        let same = |a: &Asked| {
            a.lane == pool.kind.lane
                && a.card_memory_bytes == pool.card_memory_bytes
                && a.resource == pool.resource
        };
        let at = self.pools.iter().position(same).unwrap_or_else(|| {
            let shape = shape(self.need, pool).map(|s| {
                let asked = board.ask(&s);
                (s, asked)
            });
            self.pools.push(Asked {
                lane: pool.kind.lane,
                resource: pool.resource.clone(),
                card_memory_bytes: pool.card_memory_bytes,
                shape,
            });
            self.pools.len() - 1
        });
        &self.pools[at].shape
    }
}

/// What `entry` says to the need. With `rooms` these count instead of the board's:
/// the asking pod's own are its to use again.
pub(crate) fn fit(
    names: &Names,
    board: &mut Board,
    entry: &Entry,
    asking: &mut Asking<'_>,
    rooms: Option<&[Room]>,
) -> Fit {
    let need = asking.need;
    // Elsewhere its CPU and memory may be what the GPUs left need.
    if need.amount == Amount::Nothing && entry.inventory.pools.is_empty() {
        let detail = "the pod asks for no GPU".into();
        return Fit::Yes {
            cost: 0,
            tie_break: 0,
            policy_cost: 0,
            detail,
            at: None,
        };
    }
    let mut best: Option<(Place, usize)> = None;
    let mut why = None;
    let closest = |why: &mut Option<No>, other: No| {
        if why.as_ref().is_none_or(|w| other.closeness > w.closeness) {
            *why = Some(other);
        }
    };
    for (i, pool) in entry.inventory.pools.iter().enumerate() {
        let (shape, asked) = match asking.of(board, pool) {
            Ok((shape, asked)) => (shape, *asked),
            Err(other) => {
                closest(&mut why, other.clone());
                continue;
            }
        };
        let place = match rooms.and_then(|r| r.get(i)) {
            Some(room) => board.place_in(
                shape,
                entry.slots.get(i).copied().unwrap_or(usize::MAX),
                room,
            ),
            None => board.place_asked(asked, entry.slots[i]),
        };
        match place {
            Ok(place) if best.is_none_or(|(b, _)| place.cost < b.cost) => best = Some((place, i)),
            Ok(_) => {}
            Err(refusal) => closest(&mut why, refused(pool, shape, refusal)),
        }
    }
    if let Some((place, i)) = best
        && let Ok((shape, _)) = asking.of(board, &entry.inventory.pools[i])
    {
        let at = At {
            pool: i,
            shape: shape.clone(),
            card: place.card,
        };
        let detail = detail(&entry.inventory.pools[i], &at);
        return yes(place.cost, place.by_order, entry, detail, Some(at));
    }
    for counted in &entry.inventory.counted {
        match counted::cost(names, need, counted) {
            Ok((cost, detail)) => {
                return yes(cost, 0, entry, detail, None);
            }
            Err(other) => closest(&mut why, other),
        }
    }
    Fit::No(why.unwrap_or_else(|| no(0, "NoSuchGpu", "it has no GPU")))
}

/// A cost in the policy's unit, of which `by_order` is there for where the node stands.
/// As it is answered the order of nodes decides between equals too.
pub(crate) fn yes(
    policy_cost: i64,
    by_order: i64,
    entry: &Entry,
    detail: String,
    at: Option<At>,
) -> Fit {
    let rank = (entry.position * RANKS as f64) as i64;
    let cost = policy_cost
        .saturating_mul(RANKS)
        .saturating_add(rank.clamp(0, RANKS - 1));
    let net = policy_cost.saturating_sub(by_order).saturating_mul(RANKS);
    Fit::Yes {
        cost,
        tie_break: cost.saturating_sub(net),
        policy_cost,
        detail,
        at,
    }
}

fn detail(pool: &Pool, at: &At) -> String {
    match at.card.and_then(|c| pool.cards.get(usize::from(c))) {
        Some(card) => {
            let left = card.left_milli().saturating_sub(at.shape.share);
            format!("card {} would have {left}m left", card.name)
        }
        None => {
            let free = pool
                .cards
                .iter()
                .filter(|c| Card::left_milli(c) == CARD)
                .count();
            let left = free.saturating_sub(usize::from(at.shape.whole));
            format!("{left} of {} cards would be left", pool.cards.len())
        }
    }
}
