use tautline_gpu_placement::Shape;

use crate::unfit::Unfit;

/// Costs below this order equally good nodes.
pub(crate) const POSITION_STEPS: i64 = 1 << 17;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    Usable {
        /// The cost in the answer: lower is better, few nodes have the same.
        cost: i64,
        tie_break: i64,
        /// The cost in the policy's own unit, in which nodes may be equal.
        policy_cost: i64,
        detail: String,
        /// `None`: no cards are known, or none are requested.
        location: Option<Location>,
    },
    Unusable(Unfit),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub pool: usize,
    pub shape: Shape,
    pub card: Option<u16>,
}

impl Fit {
    /// `by_order`: the part of the cost from `position`, which also breaks ties.
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
