//! Fragmentation gradient descent: Weng et al., "Beware of Fragmentation", USENIX
//! ATC 2023. The node and card whose expected unusable GPU grows least.

mod sums;

use smallvec::SmallVec;
use sums::Sums;

use super::{Place, Policy, Seen};
use crate::{
    room::Room,
    shape::{CARD, Shape},
    types::{Types, tightest},
};

/// The published policy, with its cost cut to 101 steps.
#[derive(Clone, Debug, Default)]
pub struct Fgd {
    types: Types,
    sums: Sums,
}

/// A step of the published score: a sigmoid of the gradient in cards, in percent.
fn steps(before: f64, after: f64) -> i64 {
    (1.0 / (1.0 + (-(before - after) / 1000.0).exp()) * 100.0) as i64
}

impl Policy for Fgd {
    fn plan_for(&mut self, types: Types) {
        self.sums = Sums::new(&types);
        self.types = types;
    }

    fn base(&self, room: &Room) -> Box<[f64]> {
        [self.types.fragmented_milli(room)].into()
    }

    fn place(&self, node: Seen<'_>, shape: &Shape) -> Place {
        let (room, before) = (node.room, node.base.first().copied().unwrap_or_default());
        let cpu = room.cpu_milli() - shape.cpu_milli;
        let mut cards: SmallVec<[u16; 16]> = room.cards().into();
        let mut whole = shape.whole;
        for left in cards.iter_mut().filter(|c| **c == CARD) {
            if whole > 0 {
                *left = 0;
                whole -= 1;
            }
        }
        let rows = self.sums.rows(&cards);
        let idle: i64 = cards.iter().map(|c| i64::from(*c)).sum();
        if shape.share == 0 {
            let after = self.sums.fragmented(cpu, room.kind(), idle, &rows);
            return Place {
                cost: 100 - steps(before, after),
                ..Place::default()
            };
        }
        let mut best: Option<Place> = None;
        for (card, &left) in cards.iter().enumerate() {
            // Of equal cards the first stands for all.
            if left < shape.share || cards[..card].contains(&left) {
                continue;
            }
            let rows = self.sums.moved(&rows, left, left - shape.share);
            let idle = idle - i64::from(shape.share);
            let after = self.sums.fragmented(cpu, room.kind(), idle, &rows);
            let cost = 100 - steps(before, after);
            if best.is_none_or(|b| cost < b.cost) {
                best = Some(Place {
                    cost,
                    card: Some(card as u16),
                    ..Place::default()
                });
            }
        }
        // Only a share beside whole cards can find none but the cards they take.
        best.unwrap_or_else(|| Place {
            cost: 100,
            card: tightest(room, shape),
            ..Place::default()
        })
    }
}
