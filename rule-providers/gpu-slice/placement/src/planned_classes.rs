//! The classes of requests to plan for, and FGD's measure of fragmentation.

use crate::{node_capacity::NodeCapacity, request_distribution::RequestClass, shape::CardKind};

/// A class of requests to plan for.
#[derive(Clone, Debug)]
pub struct PlannedClass {
    /// The requests of the class.
    pub request: RequestClass,
    /// Probability that the next request is of this class, from 0 to 1.
    pub probability: f64,
    allowed: Box<[bool]>,
}

impl PlannedClass {
    /// Returns whether free cards of the kind could serve the class. `kind` is the kind's index in
    /// the cost cache.
    pub fn may_run_on(&self, kind: u16) -> bool {
        self.allowed.get(usize::from(kind)) == Some(&true)
    }

    /// The idle thousandths that the class cannot use: all if the class cannot run on the node,
    /// else those of cards with too little left.
    pub fn unusable_milli(&self, capacity: &NodeCapacity) -> i64 {
        let all = !self.can_use_gpu(capacity);
        let lost = |left: &&u16| all || **left < self.request.milli;
        let cards = capacity.cards().iter().filter(lost);
        cards.map(|left| i64::from(*left)).sum()
    }

    fn can_use_gpu(&self, capacity: &NodeCapacity) -> bool {
        self.request.milli > 0 && PlannedClasses::runs_on(self, capacity)
    }
}

/// The classes of requests to plan for, with the card kinds that may serve them.
#[derive(Clone, Debug, Default)]
pub struct PlannedClasses(Vec<PlannedClass>);

impl PlannedClasses {
    /// Creates the classes to plan for. `classes` have their probabilities; `kinds` are the card
    /// kinds in the order of their indexes.
    pub fn new(classes: &[(RequestClass, f64)], kinds: &[CardKind]) -> Self {
        let class = |(class, p): &(RequestClass, f64)| {
            let shape = class.shape();
            PlannedClass {
                request: class.clone(),
                probability: *p,
                allowed: kinds.iter().map(|k| shape.allows(k)).collect(),
            }
        };
        Self(classes.iter().map(class).collect())
    }

    /// The classes, in the order in which they were given.
    pub fn iter(&self) -> std::slice::Iter<'_, PlannedClass> {
        self.0.iter()
    }

    /// Returns whether no request is known; then no GPU counts as fragmented.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of card kinds.
    pub(crate) fn kind_count(&self) -> usize {
        self.0.first().map_or(0, |class| class.allowed.len())
    }

    /// FGD's measure: the idle GPU of a node, in thousandths, that the next request is expected not
    /// to be able to use (USENIX ATC 2023, section 4). A class without GPU and a class that cannot
    /// run on the node can use no GPU; a class that can run cannot use cards with too little left.
    pub fn fragmented_milli(&self, capacity: &NodeCapacity) -> f64 {
        self.fragmented(capacity.cpu_milli(), capacity.kind(), capacity.cards())
    }

    /// The measure of [`Self::fragmented_milli`] for a node with this CPU, card kind and cards.
    pub(crate) fn fragmented(&self, cpu_milli: i64, kind: u16, cards: &[u16]) -> f64 {
        let sum = |cards: &mut dyn Iterator<Item = &u16>| cards.map(|left| f64::from(*left)).sum();
        let idle: f64 = sum(&mut cards.iter());
        // The order of summation is the published one: the last bit can change a truncated cost.
        let (mut short, mut runs, mut no_cpu) = (0.0, 0.0, 0.0);
        let (mut light, mut light_no_cpu, mut foreign) = (0.0, 0.0, 0.0);
        for class in &self.0 {
            let has_cpu = cpu_milli >= class.request.cpu_milli;
            let (sum, lost) = if class.request.milli == 0 && has_cpu {
                (&mut light, idle)
            } else if class.request.milli == 0 {
                (&mut light_no_cpu, idle)
            } else if !class.may_run_on(kind) {
                (&mut foreign, idle)
            } else {
                let mut small = cards.iter().filter(|left| **left < class.request.milli);
                let enough = cards.len() - small.clone().count();
                match (enough >= usize::from(class.request.cards), has_cpu) {
                    (true, true) => (&mut runs, sum(&mut small)),
                    (true, false) => (&mut no_cpu, idle),
                    (false, true) => (&mut runs, idle),
                    (false, false) => (&mut short, idle),
                }
            };
            *sum += class.probability * lost;
        }
        short + runs + no_cpu + light + light_no_cpu + foreign
    }

    /// The parts of [`Self::fragmented_milli`] that the cards have, in the order of the cards.
    pub fn fragmented_cards(&self, capacity: &NodeCapacity) -> Vec<f64> {
        let mut cards = vec![0.0; capacity.cards().len()];
        for class in &self.0 {
            let all = !class.can_use_gpu(capacity);
            for (lost, left) in cards.iter_mut().zip(capacity.cards()) {
                if all || *left < class.request.milli {
                    *lost += class.probability * f64::from(*left);
                }
            }
        }
        cards
    }

    /// Returns whether CPU and cards for a request of the class are free. Memory does not count.
    pub fn runs_on(class: &PlannedClass, capacity: &NodeCapacity) -> bool {
        let cards = capacity.cards().iter();
        let enough = cards.filter(|left| **left >= class.request.milli).count();
        capacity.cpu_milli() >= class.request.cpu_milli
            && class.may_run_on(capacity.kind())
            && (class.request.milli == 0 || enough >= usize::from(class.request.cards))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        request_distribution::RequestDistribution,
        shape::{CARD_MILLI, Shape},
    };

    /// The measure as published, card by card.
    fn published(types: &PlannedClasses, cpu_milli: i64, cards: &[u16], kind: u16) -> f64 {
        let idle: i64 = cards.iter().map(|c| i64::from(*c)).sum();
        let idle = idle as f64;
        // The order of summation is the published one: the last bit can change a truncated cost.
        let (mut short, mut runs, mut no_cpu) = (0.0, 0.0, 0.0);
        let (mut light, mut light_no_cpu, mut foreign) = (0.0, 0.0, 0.0);
        for class in types.iter() {
            let has_cpu = cpu_milli >= class.request.cpu_milli;
            if class.request.milli == 0 {
                *(if has_cpu {
                    &mut light
                } else {
                    &mut light_no_cpu
                }) += class.probability * idle;
            } else if !class.may_run_on(kind) {
                foreign += class.probability * idle;
            } else {
                let (mut enough, mut small) = (0, 0_i64);
                for left in cards {
                    if *left >= class.request.milli {
                        enough += 1;
                    } else {
                        small += i64::from(*left);
                    }
                }
                match (enough >= class.request.cards, has_cpu) {
                    (true, true) => runs += class.probability * small as f64,
                    (true, false) => no_cpu += class.probability * idle,
                    (false, true) => runs += class.probability * idle,
                    (false, false) => short += class.probability * idle,
                }
            }
        }
        short + runs + no_cpu + light + light_no_cpu + foreign
    }

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
        fn fragmented_equals_the_published_measure_to_the_last_bit(
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
            let capacity = NodeCapacity::new(cpu, 0, kind, cards.clone());
            let ours = types.fragmented_milli(&capacity);
            prop_assert_eq!(ours.to_bits(), published(&types, cpu, &cards, kind).to_bits());

            let mut less = cards.clone();
            let at = at % cards.len();
            less[at] = cards[at].saturating_sub(by);
            let ours = types.fragmented(cpu, kind, &less);
            prop_assert_eq!(ours.to_bits(), published(&types, cpu, &less, kind).to_bits());
        }

        #[test]
        fn fragmentation_is_the_sum_of_its_parts(
            asks in prop::collection::vec((0..3_u16, 0..1000_u16, 0..8_i64), 1..12),
            cards in prop::collection::vec(0..=CARD_MILLI, 0..8),
            cpu in 0..8_i64,
        ) {
            let shapes: Vec<Shape> = asks.iter().map(|(whole, share, cpu)| Shape {
                cpu_milli: cpu * 1000,
                whole: *whole,
                share: if *whole == 0 { *share } else { 0 },
                ..Shape::default()
            }).collect();
            let types = PlannedClasses::new(&RequestDistribution::from_shapes(&shapes).classes(), &[CardKind::default()]);
            let capacity = NodeCapacity::new(cpu * 1000, 0, 0, cards);
            let whole = types.fragmented_milli(&capacity);
            let classes: f64 = types.iter().map(|t| t.probability * t.unusable_milli(&capacity) as f64).sum();
            let cards: f64 = types.fragmented_cards(&capacity).iter().sum();
            prop_assert!((whole - classes).abs() < 1e-6, "{whole} {classes}");
            prop_assert!((whole - cards).abs() < 1e-6, "{whole} {cards}");
        }
    }
}
