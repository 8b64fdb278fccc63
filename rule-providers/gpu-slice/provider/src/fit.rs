use tautline_gpu_placement::Shape;

use crate::unfit::Unfit;

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
