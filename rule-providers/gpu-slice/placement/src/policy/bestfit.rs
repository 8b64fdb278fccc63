//! Best fit: the node with the least CPU and GPU left, both as parts of a large
//! node (128 cores, 8 cards), as FGD's artifact has it.

use super::{Place, Policy, Seen};
use crate::{shape::Shape, types::tightest};

const CORES_MILLI: f64 = 128_000.0;
const CARDS_MILLI: f64 = 8_000.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct BestFit;

impl Policy for BestFit {
    fn place(&self, Seen { room, .. }: Seen<'_>, shape: &Shape) -> Place {
        let cpu = (room.cpu_milli() - shape.cpu_milli) as f64 / CORES_MILLI;
        let gpu = (room.idle_milli() - shape.milli()) as f64 / CARDS_MILLI;
        let left = cpu * 0.5 + gpu * 0.5;
        Place {
            cost: 100 - ((1.0 - left) * 100.0) as i64,
            card: tightest(room, shape),
            ..Place::default()
        }
    }
}
