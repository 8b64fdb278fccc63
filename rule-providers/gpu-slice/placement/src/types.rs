//! The classes of requests as the policies read them: with what each may run on
//! looked up beforehand.

use crate::{
    popularity::TaskType,
    room::Room,
    shape::{CARD, Kind},
};

/// A class of requests and its part of all.
#[derive(Clone, Debug)]
pub struct Type {
    pub cpu_milli: i64,
    /// Thousandths of each card; 0: it asks for no GPU.
    pub milli: u16,
    pub cards: u16,
    /// Its probability.
    pub p: f64,
    /// Whether cards of a kind may serve it, by the kind's number.
    pub allowed: Box<[bool]>,
}

impl Type {
    pub fn total_milli(&self) -> i64 {
        i64::from(self.milli) * i64::from(self.cards)
    }

    pub fn may_run_on(&self, kind: u16) -> bool {
        self.allowed
            .get(usize::from(kind))
            .copied()
            .unwrap_or(false)
    }

    /// The idle thousandths of a node that it can make no use of: all where it cannot
    /// run, else those of cards with too little left.
    pub fn unusable_milli(&self, room: &Room) -> i64 {
        let all = !self.uses_gpu_of(room);
        let lost = |left: &&u16| all || **left < self.milli;
        room.cards()
            .iter()
            .filter(lost)
            .map(|c| i64::from(*c))
            .sum()
    }

    fn uses_gpu_of(&self, room: &Room) -> bool {
        self.milli > 0 && Types::runs_on(self, room)
    }
}

/// The distribution that a policy plans for, against the kinds that there are.
#[derive(Clone, Debug, Default)]
pub struct Types(Vec<Type>);

impl Types {
    pub fn new(classes: &[(TaskType, f64)], kinds: &[Kind]) -> Self {
        let class = |(class, p): &(TaskType, f64)| {
            let shape = class.shape();
            Type {
                cpu_milli: class.cpu_milli,
                milli: class.milli,
                cards: class.cards,
                p: *p,
                allowed: kinds.iter().map(|k| shape.allows(k)).collect(),
            }
        };
        Self(classes.iter().map(class).collect())
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Type> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// FGD's measure: the idle GPU of a node, in thousandths, that the next request
    /// is expected not to be able to use (USENIX ATC 2023, section 4). A class that
    /// cannot run there can use none of it, one that can not the cards with too
    /// little left, one without GPU none at all.
    pub fn fragmented_milli(&self, room: &Room) -> f64 {
        self.fragmented(room.cpu_milli(), room.cards(), room.kind())
    }

    /// The same, card by card; together they are the node's.
    pub fn fragmented_cards(&self, room: &Room) -> Vec<f64> {
        let mut cards = vec![0.0; room.cards().len()];
        for class in &self.0 {
            let all = !class.uses_gpu_of(room);
            for (lost, left) in cards.iter_mut().zip(room.cards()) {
                if all || *left < class.milli {
                    *lost += class.p * f64::from(*left);
                }
            }
        }
        cards
    }

    pub(crate) fn fragmented(&self, cpu_milli: i64, cards: &[u16], kind: u16) -> f64 {
        let idle: i64 = cards.iter().map(|c| i64::from(*c)).sum();
        let idle = idle as f64;
        // In the published order of summation: costs are cut to integers, and a
        // last bit can turn one.
        let (mut short, mut runs, mut no_cpu) = (0.0, 0.0, 0.0);
        let (mut light, mut light_no_cpu, mut foreign) = (0.0, 0.0, 0.0);
        for class in &self.0 {
            let has_cpu = cpu_milli >= class.cpu_milli;
            if class.milli == 0 {
                *(if has_cpu {
                    &mut light
                } else {
                    &mut light_no_cpu
                }) += class.p * idle;
            } else if !class.may_run_on(kind) {
                foreign += class.p * idle;
            } else {
                let (mut enough, mut small) = (0, 0_i64);
                for left in cards {
                    if *left >= class.milli {
                        enough += 1;
                    } else {
                        small += i64::from(*left);
                    }
                }
                match (enough >= class.cards, has_cpu) {
                    (true, true) => runs += class.p * small as f64,
                    (true, false) => no_cpu += class.p * idle,
                    (false, true) => runs += class.p * idle,
                    (false, false) => short += class.p * idle,
                }
            }
        }
        short + runs + no_cpu + light + light_no_cpu + foreign
    }

    /// Whether a class could run on a node as it is.
    pub fn runs_on(class: &Type, room: &Room) -> bool {
        let enough = room.cards().iter().filter(|c| **c >= class.milli).count();
        room.cpu_milli() >= class.cpu_milli
            && class.may_run_on(room.kind())
            && (class.milli == 0 || enough >= usize::from(class.cards))
    }
}

/// The card with least left that can still give the share, and the first of those;
/// none for a shape without one.
pub(crate) fn tightest(room: &Room, shape: &crate::shape::Shape) -> Option<u16> {
    let able = |i: &usize| shape.share > 0 && room.can_share(shape, *i);
    let card = (0..room.cards().len())
        .filter(able)
        .min_by_key(|i| room.cards()[*i])?;
    Some(card as u16)
}

/// Cards that nothing runs on.
pub(crate) fn untouched(cards: &[u16]) -> i64 {
    cards.iter().filter(|c| **c == CARD).count() as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{popularity::Popularity, shape::Shape};

    proptest! {
        /// What each class cannot use, and what is useless of each card, are the
        /// published measure, taken apart.
        #[test]
        fn the_parts_are_the_measure(
            asks in prop::collection::vec((0..3_u16, 0..1000_u16, 0..8_i64), 1..12),
            cards in prop::collection::vec(0..=CARD, 0..8),
            cpu in 0..8_i64,
        ) {
            let shapes: Vec<Shape> = asks.iter().map(|(whole, share, cpu)| Shape {
                cpu_milli: cpu * 1000,
                whole: *whole,
                share: if *whole == 0 { *share } else { 0 },
                ..Shape::default()
            }).collect();
            let types = Types::new(&Popularity::of(&shapes).types(), &[Kind::default()]);
            let room = Room::new(cpu * 1000, 0, 0, cards);
            let whole = types.fragmented_milli(&room);
            let classes: f64 = types.iter().map(|t| t.p * t.unusable_milli(&room) as f64).sum();
            let cards: f64 = types.fragmented_cards(&room).iter().sum();
            prop_assert!((whole - classes).abs() < 1e-6, "{whole} {classes}");
            prop_assert!((whole - cards).abs() < 1e-6, "{whole} {cards}");
        }
    }
}
