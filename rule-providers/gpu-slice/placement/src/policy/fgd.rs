//! Fragmentation gradient descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023):
//! chooses the node and card whose expected unusable GPU grows least.

use smallvec::SmallVec;

use super::{NodeView, PlacementCost, Policy};
use crate::{
    node_capacity::NodeCapacity,
    planned_classes::PlannedClasses,
    shape::{CARD_MILLI, Shape},
};

#[derive(Clone, Debug, Default)]
pub(super) struct Fgd {
    types: PlannedClasses,
}

/// The published score in whole percent: a sigmoid of the gradient in cards.
fn steps(before: f64, after: f64) -> i64 {
    (1.0 / (1.0 + (-(before - after) / 1000.0).exp()) * 100.0) as i64
}

impl Policy for Fgd {
    fn plan_for(&mut self, types: PlannedClasses) {
        self.types = types;
    }

    fn precompute(&self, capacity: &NodeCapacity) -> Box<[f64]> {
        [self.types.fragmented_milli(capacity)].into()
    }

    fn place(&self, node: NodeView<'_>, shape: &Shape) -> PlacementCost {
        let capacity = node.capacity;
        let before = node.precomputed.first().copied().unwrap_or_default();
        let cpu = capacity.cpu_milli() - shape.cpu_milli;
        let mut cards: SmallVec<[u16; 16]> = capacity.cards().into();
        let mut whole = shape.whole;
        for left in cards.iter_mut().filter(|c| **c == CARD_MILLI) {
            if whole > 0 {
                *left = 0;
                whole -= 1;
            }
        }
        let placement = |cards: &[u16], card: Option<u16>| {
            let after = self.types.fragmented(cpu, capacity.kind(), cards);
            PlacementCost {
                cost: 100 - steps(before, after),
                card,
                ..PlacementCost::default()
            }
        };
        if shape.share == 0 {
            return placement(&cards, None);
        }
        // Equal cards have equal costs, so only the first one counts.
        let tried = |card: usize| {
            let left = cards[card];
            left >= shape.share && !cards[..card].contains(&left)
        };
        let placements = (0..cards.len()).filter(|card| tried(*card)).map(|card| {
            let mut after = cards.clone();
            after[card] -= shape.share;
            placement(&after, Some(card as u16))
        });
        // Not reached if the shape fits: then a card for the share is left after the whole cards.
        let unplaced = || PlacementCost {
            cost: 100,
            card: capacity.tightest_card(shape),
            ..PlacementCost::default()
        };
        let best = placements.min_by_key(|placement| placement.cost);
        best.unwrap_or_else(unplaced)
    }
}
