//! Spread: prefers the nodes and cards with the most idle GPU, so that pods have few neighbours.

use super::{NodeView, PlacementCost, Policy};
use crate::shape::Shape;

#[derive(Clone, Copy, Debug)]
pub(super) struct Spread;

impl Policy for Spread {
    fn place(&self, NodeView { capacity, .. }: NodeView<'_>, shape: &Shape) -> PlacementCost {
        let card = (0..capacity.cards().len())
            .filter(|c| shape.share > 0 && capacity.can_give_share(shape, *c))
            .max_by_key(|c| (capacity.cards()[*c], std::cmp::Reverse(*c)));
        PlacementCost {
            cost: (1 << 20) - capacity.idle_milli().min(1 << 20),
            card: card.map(|c| c as u16),
            ..PlacementCost::default()
        }
    }
}
