//! GPU packing: a share goes to a card in use, fullest first, then to a free card
//! of a node in use, then to an idle node; whole cards to nodes in use.

use super::{Place, Policy, Seen};
use crate::{
    shape::{CARD, Shape},
    types::{tightest, untouched},
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Packing;

impl Policy for Packing {
    fn place(&self, Seen { room, .. }: Seen<'_>, shape: &Shape) -> Place {
        let card = tightest(room, shape);
        let free = untouched(room.cards());
        let score = if !shape.asks_gpu() {
            0
        } else if free == room.cards().len() as i64 {
            (33 - free).max(free)
        } else if let Some(card) = card {
            match room.cards()[usize::from(card)] {
                CARD => 49,
                left => (100 - i64::from(left) * 100 / i64::from(CARD) / 10).max(50),
            }
        } else {
            (50 - i64::from(shape.whole)).max(33)
        };
        Place {
            cost: 100 - score,
            card,
            ..Place::default()
        }
    }
}
