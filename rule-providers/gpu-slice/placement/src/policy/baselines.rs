//! Policies to compare with: best fit, packing and spread.

use std::cmp::Reverse;

use super::{NodeView, PlacementCost, Policy};
use crate::shape::{CARD_MILLI, Shape};

/// The CPU of a full node, in thousandths of a core.
const CORES_MILLI: f64 = 128_000.0;
/// The GPU of a full node, in thousandths of a card.
const CARDS_MILLI: f64 = 8_000.0;

/// Best fit: prefers the node with the least left, as in FGD's artifact. CPU and GPU are relative to
/// a node of 128 cores and 8 cards.
#[derive(Clone, Copy, Debug)]
pub(super) struct BestFit;

impl Policy for BestFit {
    fn place(&self, NodeView { capacity, .. }: NodeView<'_>, shape: &Shape) -> PlacementCost {
        let cpu = (capacity.cpu_milli() - shape.cpu_milli) as f64 / CORES_MILLI;
        let gpu = (capacity.idle_milli() - shape.milli()) as f64 / CARDS_MILLI;
        let left = cpu * 0.5 + gpu * 0.5;
        PlacementCost {
            cost: 100 - ((1.0 - left) * 100.0) as i64,
            card: capacity.tightest_card(shape),
            ..PlacementCost::default()
        }
    }
}

/// GPU packing: a share goes to a card in use, the fullest first, then to a free card of a node in
/// use, then to an idle node. Whole cards go to nodes in use first.
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

/// Spread: prefers the nodes and cards with the most idle GPU, so that pods have few neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread;

impl Policy for Spread {
    fn place(&self, NodeView { capacity, .. }: NodeView<'_>, shape: &Shape) -> PlacementCost {
        let card = (0..capacity.cards().len())
            .filter(|c| shape.share > 0 && capacity.can_give_share(shape, *c))
            .max_by_key(|c| (capacity.cards()[*c], Reverse(*c)));
        PlacementCost {
            cost: (1 << 20) - capacity.idle_milli().min(1 << 20),
            card: card.map(|c| c as u16),
            ..PlacementCost::default()
        }
    }
}
