//! Fragmentation gradient descent: Weng et al., "Beware of Fragmentation", USENIX
//! ATC 2023. The node and card whose expected unusable GPU grows least.

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
}

/// A step of the published score: a sigmoid of the gradient in cards, in percent.
fn steps(before: f64, after: f64) -> i64 {
    (1.0 / (1.0 + (-(before - after) / 1000.0).exp()) * 100.0) as i64
}

impl Policy for Fgd {
    fn plan_for(&mut self, types: Types) {
        self.types = types;
    }

    fn base(&self, room: &Room) -> Box<[f64]> {
        [self.types.fragmented_milli(room)].into()
    }

    fn place(&self, node: Seen<'_>, shape: &Shape) -> Place {
        let (room, before) = (node.room, node.base.first().copied().unwrap_or_default());
        let cpu = room.cpu_milli() - shape.cpu_milli;
        let mut cards = room.cards().to_vec();
        let mut whole = shape.whole;
        for left in cards.iter_mut().filter(|c| **c == CARD) {
            if whole > 0 {
                *left = 0;
                whole -= 1;
            }
        }
        if shape.share == 0 {
            let after = self.types.fragmented(cpu, &cards, room.kind());
            return Place {
                cost: 100 - steps(before, after),
                card: None,
            };
        }
        let mut best: Option<Place> = None;
        for card in 0..cards.len() {
            if cards[card] < shape.share {
                continue;
            }
            cards[card] -= shape.share;
            let after = self.types.fragmented(cpu, &cards, room.kind());
            cards[card] += shape.share;
            let cost = 100 - steps(before, after);
            if best.is_none_or(|b| cost < b.cost) {
                best = Some(Place {
                    cost,
                    card: Some(card as u16),
                });
            }
        }
        // Only a share beside whole cards can find none but the cards they take.
        best.unwrap_or_else(|| Place {
            cost: 100,
            card: tightest(room, shape),
        })
    }
}
