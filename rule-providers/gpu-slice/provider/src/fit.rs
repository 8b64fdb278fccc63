use std::sync::Arc;

use tautline_core::quantity;
use tautline_gpu_placement::{PlacementError, Shape, Shortage, inventory::CardPool};

/// The number of cost steps between two policy costs; the steps order equally good nodes.
pub(crate) const POSITION_STEPS: i64 = 1 << 17;

/// One node's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The node can take the pod.
    Usable {
        /// The cost in the answer; lower is better, and few nodes have the same cost.
        cost: i64,
        /// The part of `cost` that only puts equally good nodes in an order.
        tie_break: i64,
        /// The cost in the policy's own unit, in which nodes may be equal.
        policy_cost: i64,
        /// A text for people, such as the cards that would be left.
        detail: String,
        /// The chosen cards; `None`: no cards are known, or no cards are requested.
        location: Option<Location>,
    },
    /// The node cannot take the pod.
    Unusable(Unfit),
}

/// The cards of a node that the policy chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The index of the pool in the node's inventory.
    pub pool: usize,
    /// The request in the pool's cards; shares are rounded up to the units of shared cards.
    pub shape: Shape,
    /// The index, in the pool, of the card that gives the share; `None`: the shape has no share.
    pub card: Option<u16>,
}

impl Fit {
    /// Returns a usable fit. `by_order` is the part of `policy_cost` that comes from `position`,
    /// which also breaks ties.
    pub(crate) fn usable(
        policy_cost: i64,
        by_order: i64,
        position: f64,
        detail: String,
        location: Option<Location>,
    ) -> Self {
        let rank = (position * POSITION_STEPS as f64) as i64;
        let cost = policy_cost
            .saturating_mul(POSITION_STEPS)
            .saturating_add(rank.clamp(0, POSITION_STEPS - 1));
        let net = policy_cost
            .saturating_sub(by_order)
            .saturating_mul(POSITION_STEPS);
        Self::Usable {
            cost,
            tie_break: cost.saturating_sub(net),
            policy_cost,
            detail,
            location,
        }
    }
}

/// The reason why a node cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// A stable reason code in CamelCase, such as `GpuBusy`.
    pub code: &'static str,
    /// A text for people, which may have figures.
    pub detail: String,
    /// True if the removal of pods from the node could make it usable.
    pub freeable: bool,
    /// The closeness to a fit, from 0 (the node has no such cards) to 9 (the cards are only busy).
    /// The closest pool gives the reason.
    pub(crate) closeness: u8,
}

impl Unfit {
    pub(crate) fn new(closeness: u8, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            freeable: false,
            closeness,
        }
    }

    pub(crate) fn busy(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            freeable: true,
            ..Self::new(9, code, detail)
        }
    }

    pub(crate) fn unknown_node() -> Self {
        Self::new(1, "UnknownNode", "not in the provider's view yet")
    }

    pub(crate) fn wrong_model(product: &str, models: &[Arc<str>]) -> Self {
        let detail = format!("{product:?} is not one of {}", models.join("|"));
        Self::new(6, "WrongModel", detail)
    }

    pub(crate) fn not_requested(units: i64, resource: &str) -> Self {
        let detail = format!("the pod must request {units} {resource}");
        Self::new(5, "NotRequested", detail)
    }

    pub(crate) fn no_shared_gpu() -> Self {
        Self::new(1, "NoSharedGpu", "no card of it is shared")
    }

    pub(crate) fn from_refusal(pool: &CardPool, shape: &Shape, refusal: PlacementError) -> Self {
        let short = match refusal {
            PlacementError::UnknownNode => return Self::unknown_node(),
            PlacementError::OtherKind => {
                return Self::wrong_model(&pool.kind.product, &shape.models);
            }
            PlacementError::Shortage(short) => short,
        };
        let wanted = quantity::format_milli(shape.milli());
        match short {
            Shortage::Cpu => Self::busy("CpuShort", "too little CPU is free"),
            Shortage::Memory => Self::busy("MemoryShort", "too little memory is free"),
            Shortage::Gpu => {
                let cards = pool.cards.iter().filter(|c| c.fault.is_none()).count();
                let needed = usize::from(shape.whole) + usize::from(shape.share > 0);
                if cards < needed {
                    let detail = format!("has {cards} cards, {needed} wanted");
                    return Self::new(7, "NoSuchGpu", detail);
                }
                let idle: i64 = pool.cards.iter().map(|c| i64::from(c.left_milli())).sum();
                let free = quantity::format_milli(idle);
                if idle >= shape.milli() {
                    let detail = format!("{free} cards free in parts, {wanted} wanted");
                    return Self::busy("GpuFragmented", detail);
                }
                let detail = format!("{free} of {cards} cards free, {wanted} wanted");
                Self::busy("GpuBusy", detail)
            }
        }
    }
}
