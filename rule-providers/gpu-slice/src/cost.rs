//! What a node would cost a need, or why it cannot serve it.

use std::sync::Arc;

use tautline_core::quantity;
use tautline_gpu::{
    Board, CARD, Lane, Names, Place, Refusal, Room, Shape, Short,
    inventory::{Card, Counted, Pool},
};

use crate::{
    ledger::Entry,
    need::{Amount, Need, units_milli},
};

/// Costs of equal places are told apart by the order of nodes below this.
const RANKS: i64 = 1 << 17;
/// Where cards are known is better than where units are only counted.
const UNKNOWN_CARDS: i64 = 1 << 52;

/// What a node says to a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It can serve it.
    Yes {
        /// As it is answered: lower is better, few nodes have the same.
        cost: i64,
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

/// Why a node cannot serve a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct No {
    /// The reason code, `GpuBusy`.
    pub code: &'static str,
    /// The same with figures.
    pub detail: String,
    /// It could if pods on it had gone.
    pub freeable: bool,
    /// Of several pools the one that came closest gives the reason.
    closeness: u8,
}

impl No {
    pub(crate) fn unknown_node() -> Self {
        no(1, "UnknownNode", "not in the provider's view yet")
    }

    /// It has what is asked, and others hold it.
    pub(crate) fn busy(code: &'static str, detail: &str) -> Self {
        busy(code, detail.to_owned())
    }

    /// It has nothing of the kind.
    pub(crate) fn never(code: &'static str, detail: &str) -> Self {
        no(0, code, detail)
    }
}

fn no(closeness: u8, code: &'static str, detail: impl Into<String>) -> No {
    No {
        code,
        detail: detail.into(),
        freeable: false,
        closeness,
    }
}

fn busy(code: &'static str, detail: String) -> No {
    No {
        freeable: true,
        ..no(9, code, detail)
    }
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
        return Fit::Yes {
            cost: ranked(place.cost, entry),
            policy_cost: place.cost,
            detail,
            at: Some(at),
        };
    }
    for counted in &entry.inventory.counted {
        match counted_cost(names, need, counted) {
            Ok((cost, detail)) => {
                return Fit::Yes {
                    cost: ranked(cost, entry),
                    policy_cost: cost,
                    detail,
                    at: None,
                };
            }
            Err(other) => closest(&mut why, other),
        }
    }
    Fit::No(why.unwrap_or_else(|| no(0, "NoSuchGpu", "it has no GPU")))
}

/// A cost that the order of nodes has its part in, so that few are equal.
pub(crate) fn ranked(cost: i64, entry: &Entry) -> i64 {
    let rank = (entry.position * RANKS as f64) as i64;
    cost.saturating_mul(RANKS)
        .saturating_add(rank.clamp(0, RANKS - 1))
}

/// The need as this pool would serve it.
fn shape(need: &Need, pool: &Pool) -> Result<Shape, No> {
    let lane = pool.kind.lane;
    let milli = match (&need.amount, lane) {
        (Amount::Nothing, _) => 0,
        (Amount::Cards(cards), Lane::Whole | Lane::Milli) => {
            let milli = cards.saturating_mul(i64::from(CARD));
            return requested(need, pool, *cards).map(|()| need.shape(lane, milli));
        }
        (Amount::Cards(_), Lane::Shared { .. }) => {
            return Err(no(
                1,
                "NoSuchGpu",
                "its cards are shared, whole ones are wanted",
            ));
        }
        (Amount::Share(_) | Amount::Memory(_), Lane::Whole) => {
            return Err(no(1, "NoSharedGpu", "no card of it is shared"));
        }
        (Amount::Share(milli), _) => *milli,
        (Amount::Memory(bytes), _) => memory_milli(pool, *bytes)?,
        (Amount::Units { resource, units }, _) => {
            if pool.resource.as_deref() != Some(resource) {
                return Err(no(0, "NoSuchGpu", format!("it offers no {resource}")));
            }
            let milli = match lane {
                Lane::Shared { unit_milli } => units_milli(*units, unit_milli),
                _ => units.saturating_mul(i64::from(CARD)),
            };
            return Ok(need.shape(lane, milli));
        }
    };
    let Lane::Shared { unit_milli } = lane else {
        return Ok(need.shape(lane, milli));
    };
    let unit = i64::from(unit_milli.max(1));
    let units = (milli + unit - 1) / unit;
    requested(need, pool, units)?;
    Ok(need.shape(lane, units_milli(units, unit_milli)))
}

/// What the pod does not request of a plugin's resource it is not charged for, and
/// nobody could keep two such pods from the same card.
fn requested(need: &Need, pool: &Pool, units: i64) -> Result<(), No> {
    let Some(resource) = &pool.resource else {
        return Ok(());
    };
    match need.requested(resource) {
        Some(requested) if requested < units => {
            let detail = format!("the pod must request {units} {resource}");
            Err(no(5, "NotRequested", detail))
        }
        _ => Ok(()),
    }
}

/// So many bytes as a part of one card, rounded up.
fn memory_milli(pool: &Pool, bytes: i64) -> Result<i64, No> {
    let Some(card) = pool.card_memory_bytes.filter(|c| *c > 0) else {
        let detail = "the label nvidia.com/gpu.memory is missing";
        return Err(no(3, "NoMemoryLabel", detail));
    };
    let milli = (i128::from(bytes) * 1000 + i128::from(card) - 1) / i128::from(card);
    match i64::try_from(milli) {
        Ok(milli) if milli <= i64::from(CARD) => Ok(milli),
        _ => Err(no(4, "CardTooSmall", "one card has less memory")),
    }
}

fn refused(pool: &Pool, shape: &Shape, refusal: Refusal) -> No {
    let short = match refusal {
        Refusal::Unknown => return No::unknown_node(),
        Refusal::Kind => {
            let wanted = shape.models.join("|");
            let product = &pool.kind.product;
            return no(6, "WrongModel", format!("{product:?} is none of {wanted}"));
        }
        Refusal::Short(short) => short,
    };
    let wanted = quantity::format_milli(shape.milli());
    match short {
        Short::Cpu => busy("CpuShort", "too little CPU is free".into()),
        Short::Memory => busy("MemoryShort", "too little memory is free".into()),
        Short::Gpu => {
            let cards = pool.cards.iter().filter(|c| c.healthy).count();
            let needed = usize::from(shape.whole) + usize::from(shape.share > 0);
            if cards < needed {
                return no(
                    7,
                    "NoSuchGpu",
                    format!("has {cards} cards, {needed} wanted"),
                );
            }
            let idle: i64 = pool.cards.iter().map(|c| i64::from(c.left_milli())).sum();
            let free = quantity::format_milli(idle);
            if idle >= shape.milli() {
                let detail = format!("{free} cards free in parts, {wanted} wanted");
                return busy("GpuFragmented", detail);
            }
            busy(
                "GpuBusy",
                format!("{free} of {cards} cards free, {wanted} wanted"),
            )
        }
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

/// A resource known by number only: what is left that another pod like this one
/// could not use, then the fuller node.
fn counted_cost(names: &Names, need: &Need, counted: &Counted) -> Result<(i64, String), No> {
    let resource = &counted.resource;
    let units = match &need.amount {
        Amount::Units { resource, units } if **resource == *counted.resource => *units,
        Amount::Share(_) | Amount::Memory(_) if names.is_shared(resource) => {
            let label = &names.replicas;
            return Err(no(
                3,
                "NoReplicasLabel",
                format!("the label {label} is missing"),
            ));
        }
        Amount::Share(_) | Amount::Memory(_) => {
            return Err(no(1, "NoSharedGpu", "no card of it is shared"));
        }
        _ => return Err(no(0, "NoSuchGpu", "it has no such GPU")),
    };
    if !need.models.is_empty()
        && !need
            .models
            .iter()
            .any(|m| tautline_gpu::shape::names_model(&counted.product, m))
    {
        let (product, wanted) = (&counted.product, need.models.join("|"));
        return Err(no(
            6,
            "WrongModel",
            format!("{product:?} is none of {wanted}"),
        ));
    }
    if need
        .requested(resource)
        .is_some_and(|requested| requested < units)
    {
        let detail = format!("the pod must request {units} {resource}");
        return Err(no(5, "NotRequested", detail));
    }
    let (has, free) = (counted.has, (counted.has - counted.used).max(0));
    if has < units {
        return Err(no(
            7,
            "NoSuchGpu",
            format!("offers {has} {resource}, {units} wanted"),
        ));
    }
    if free < units {
        let detail = format!("{free} of {has} {resource} free, {units} wanted");
        return Err(busy("GpuBusy", detail));
    }
    let left = free - units;
    let useless = (left % units.max(1)).min(1 << 16);
    let mut cost = (useless << 16) + left.min((1 << 16) - 1);
    if names.is_shared(resource) {
        cost += UNKNOWN_CARDS / RANKS;
    }
    Ok((cost, format!("leaves {left} of {has} {resource} free")))
}
