//! Computes [`PlannedClasses::fragmented_milli`] after a placement: faster than that function, and
//! equal to the last bit.

use smallvec::SmallVec;

use crate::planned_classes::PlannedClasses;

/// The sums over a node's cards for one size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CardSums {
    /// Number of cards with enough left.
    enough: u16,
    /// Thousandths left on the other cards together.
    small: u32,
}

pub(super) type Rows = SmallVec<[CardSums; 64]>;

#[derive(Clone, Debug)]
struct Class {
    cpu_milli: i64,
    probability: f64,
    cards: u16,
    /// Index of the class's size in the rows; `None` for a class without GPU.
    row: Option<u16>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FragmentationSums {
    millis: Vec<u16>,
    classes: Vec<Class>,
    allowed: Vec<bool>,
}

impl FragmentationSums {
    pub(super) fn new(types: &PlannedClasses) -> Self {
        let mut millis: Vec<u16> = types.iter().map(|t| t.milli).filter(|m| *m > 0).collect();
        millis.sort_unstable();
        millis.dedup();
        let class = |t: &crate::planned_classes::PlannedClass| Class {
            cpu_milli: t.cpu_milli,
            probability: t.probability,
            cards: t.cards,
            row: millis.binary_search(&t.milli).ok().map(|r| r as u16),
        };
        let kinds = types.iter().map(|t| t.allowed.len()).max().unwrap_or(0);
        let of_kind = |kind: usize| types.iter().map(move |t| t.may_run_on(kind as u16));
        Self {
            classes: types.iter().map(class).collect(),
            allowed: (0..kinds).flat_map(of_kind).collect(),
            millis,
        }
    }

    pub(super) fn rows(&self, cards: &[u16]) -> Rows {
        let row = |milli: &u16| {
            let mut row = CardSums::default();
            for left in cards {
                row.put(*left, *milli);
            }
            row
        };
        self.millis.iter().map(row).collect()
    }

    pub(super) fn with_changed_card(&self, rows: &Rows, left: u16, less: u16) -> Rows {
        let moved = |(row, milli): (&CardSums, &u16)| {
            let mut row = *row;
            row.take(left, *milli);
            row.put(less, *milli);
            row
        };
        rows.iter().zip(&self.millis).map(moved).collect()
    }

    pub(super) fn fragmented(&self, cpu_milli: i64, kind: u16, idle: i64, rows: &Rows) -> f64 {
        let idle = idle as f64;
        let at = usize::from(kind) * self.classes.len();
        let allowed = self.allowed.get(at..at + self.classes.len());
        // The order of summation is the published one: the last bit can change a truncated cost.
        let (mut short, mut runs, mut no_cpu) = (0.0, 0.0, 0.0);
        let (mut light, mut light_no_cpu, mut foreign) = (0.0, 0.0, 0.0);
        for (i, class) in self.classes.iter().enumerate() {
            let has_cpu = cpu_milli >= class.cpu_milli;
            let Some(row) = class.row.and_then(|r| rows.get(usize::from(r))) else {
                *(if has_cpu {
                    &mut light
                } else {
                    &mut light_no_cpu
                }) += class.probability * idle;
                continue;
            };
            if !allowed.is_some_and(|a| a[i]) {
                foreign += class.probability * idle;
                continue;
            }
            match (row.enough >= class.cards, has_cpu) {
                (true, true) => runs += class.probability * f64::from(row.small),
                (true, false) => no_cpu += class.probability * idle,
                (false, true) => runs += class.probability * idle,
                (false, false) => short += class.probability * idle,
            }
        }
        short + runs + no_cpu + light + light_no_cpu + foreign
    }
}

impl CardSums {
    fn put(&mut self, left: u16, milli: u16) {
        if left >= milli {
            self.enough += 1;
        } else {
            self.small += u32::from(left);
        }
    }

    fn take(&mut self, left: u16, milli: u16) {
        if left >= milli {
            self.enough -= 1;
        } else {
            self.small -= u32::from(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        node_capacity::NodeCapacity,
        request_distribution::RequestDistribution,
        shape::{CARD_MILLI, CardKind, Shape},
    };

    fn shapes() -> impl Strategy<Value = Shape> {
        (0..9_i64, 0..9_u16, 0..CARD_MILLI, any::<bool>()).prop_map(|(cpu, whole, share, t4)| {
            Shape {
                cpu_milli: cpu * 4000,
                whole,
                share: if whole == 0 { share } else { 0 },
                models: if t4 { ["T4".into()].into() } else { [].into() },
                ..Shape::default()
            }
        })
    }

    proptest! {
        #[test]
        fn sums_equal_the_measure_to_the_last_bit(
            requests in prop::collection::vec(shapes(), 1..60),
            cards in prop::collection::vec(0..=CARD_MILLI, 1..9),
            cpu in 0..64_000_i64,
            kind in 0..2_u16,
            (at, by) in (0..8_usize, 0..CARD_MILLI),
        ) {
            let kinds = ["T4", "A10"].map(|product| CardKind {
                product: product.into(),
                ..CardKind::default()
            });
            let types = PlannedClasses::new(&RequestDistribution::from_shapes(&requests).classes(), &kinds);
            let sums = FragmentationSums::new(&types);
            let idle = |cards: &[u16]| cards.iter().map(|c| i64::from(*c)).sum();
            let rows = sums.rows(&cards);
            let ours = sums.fragmented(cpu, kind, idle(&cards), &rows);
            let capacity = NodeCapacity::new(cpu, 0, kind, cards.clone());
            prop_assert_eq!(ours.to_bits(), types.fragmented_milli(&capacity).to_bits());

            let mut less = cards.clone();
            let at = at % cards.len();
            less[at] = cards[at].saturating_sub(by);
            let rows = sums.with_changed_card(&rows, cards[at], less[at]);
            let ours = sums.fragmented(cpu, kind, idle(&less), &rows);
            let capacity = NodeCapacity::new(cpu, 0, kind, less);
            prop_assert_eq!(ours.to_bits(), types.fragmented_milli(&capacity).to_bits());
        }
    }
}
