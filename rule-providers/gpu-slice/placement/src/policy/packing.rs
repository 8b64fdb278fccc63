//! GPU packing: a share goes to a card in use, the fullest first, then to a free card of a node in
//! use, then to an idle node. Whole cards go to nodes in use first.

use super::{NodeView, PlacementCost, Policy};
use crate::shape::{CARD_MILLI, Shape};

#[derive(Clone, Copy, Debug)]
pub(super) struct Packing;

impl Policy for Packing {
    fn place(&self, NodeView { capacity, .. }: NodeView<'_>, shape: &Shape) -> PlacementCost {
        let card = capacity.tightest_card(shape);
        let free = capacity.free_cards() as i64;
        let score = if !shape.needs_gpu() {
            0
        } else if free == capacity.cards().len() as i64 {
            (33 - free).max(free)
        } else if let Some(card) = card {
            match capacity.cards()[usize::from(card)] {
                CARD_MILLI => 49,
                left => (100 - i64::from(left) * 100 / i64::from(CARD_MILLI) / 10).max(50),
            }
        } else {
            (50 - i64::from(shape.whole)).max(33)
        };
        PlacementCost {
            cost: 100 - score,
            card,
            ..PlacementCost::default()
        }
    }
}
