//! Spread: the node with most GPU left, and of it the card with most left. For
//! those who want neighbours few rather than nodes full.

use super::{Place, Policy, Seen};
use crate::shape::Shape;

#[derive(Clone, Copy, Debug)]
pub(super) struct Spread;

impl Policy for Spread {
    fn place(&self, Seen { room, .. }: Seen<'_>, shape: &Shape) -> Place {
        let card = (0..room.cards().len())
            .filter(|c| shape.share > 0 && room.can_share(shape, *c))
            .max_by_key(|c| (room.cards()[*c], std::cmp::Reverse(*c)));
        Place {
            // Idle GPU of a node stays far below this.
            cost: (1 << 20) - room.idle_milli().min(1 << 20),
            card: card.map(|c| c as u16),
            ..Place::default()
        }
    }
}
