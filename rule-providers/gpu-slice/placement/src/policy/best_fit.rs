//! Best fit: prefers the node with the least left, as in FGD's artifact. CPU and GPU are relative
//! to a node of 128 cores and 8 cards.

use super::{NodeView, PlacementCost, Policy};
use crate::shape::Shape;

const CORES_MILLI: f64 = 128_000.0;
const CARDS_MILLI: f64 = 8_000.0;

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
