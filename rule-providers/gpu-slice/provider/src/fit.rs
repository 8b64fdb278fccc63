//! The answer of one node to a request.

use tautline_gpu_placement::Shape;

use crate::unfit::Unfit;

/// The order of equally good nodes takes the costs below this.
pub(crate) const POSITION_STEPS: i64 = 1 << 17;

/// The answer of a node to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The node can serve it.
    Usable {
        /// The cost in the answer: lower is better, few nodes have the same.
        cost: i64,
        /// The part of `cost` that only orders equally good nodes.
        tie_break: i64,
        /// The cost in the policy's own unit, in which nodes may be equal.
        policy_cost: i64,
        /// Text about what would be left.
        detail: String,
        /// `None`: no cards are known, or none are requested.
        location: Option<Location>,
    },
    /// The node cannot serve it.
    Unusable(Unfit),
}

/// A place on a node: the pool, and the card of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Index in the inventory's pools.
    pub pool: usize,
    /// The shape that would be taken.
    pub shape: Shape,
    /// Index in the pool of the share's card.
    pub card: Option<u16>,
}

impl Fit {
    /// A node at `position` (0 to 1) in the order of nodes, with a cost in the policy's unit of
    /// which `by_order` comes from the position. The position also decides between equal costs.
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
