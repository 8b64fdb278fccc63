//! The distribution of requests, learned from the requests seen so far.

use std::{collections::BTreeMap, sync::Arc};

use crate::shape::{CARD_MILLI, Shape, SharingMode};

/// The fraction of all requests to plan for (FGD, USENIX ATC 2023, section 5).
const PLANNED_REQUEST_RATIO: f64 = 0.95;
/// The maximum number of classes to plan for: each class costs work on every node.
const MAX_CLASSES: usize = 512;
/// The number of later requests after which a request counts half.
const HALF_LIFE_REQUESTS: f64 = 2_000.0;
/// The weight of the next request above which all weights are scaled down.
const MAX_INCREMENT: f64 = 1e12;

/// A class of requests, which differ in memory only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestClass {
    /// Thousandths of a core.
    pub cpu_milli: i64,
    /// Thousandths of each card: 1000 for whole cards; 0: no GPU.
    pub milli: u16,
    /// Number of cards; 1 for a share; 0: no GPU.
    pub cards: u16,
    /// Model names; empty: any card.
    pub models: Arc<[Arc<str>]>,
    /// Sharing mode that the cards must have.
    pub mode: SharingMode,
}

impl RequestClass {
    /// The class of a shape. A share in addition to whole cards counts as one more card.
    pub fn of_shape(shape: &Shape) -> Self {
        Self {
            cpu_milli: shape.cpu_milli,
            milli: match shape.whole {
                0 => shape.share,
                _ => CARD_MILLI,
            },
            cards: shape.whole.saturating_add(u16::from(shape.share > 0)),
            models: Arc::clone(&shape.models),
            mode: shape.mode,
        }
    }

    /// A shape of the class that requests no memory.
    pub fn shape(&self) -> Shape {
        let (whole, share) = match self.milli {
            CARD_MILLI => (self.cards, 0),
            share => (0, share),
        };
        Shape {
            cpu_milli: self.cpu_milli,
            memory_bytes: 0,
            whole,
            share,
            mode: self.mode,
            models: Arc::clone(&self.models),
        }
    }

    /// Thousandths of all cards together.
    pub fn total_milli(&self) -> i64 {
        i64::from(self.cards) * i64::from(self.milli)
    }
}

/// The frequency of each class of requests. A request counts half after 2000 later requests.
#[derive(Clone, Debug)]
pub struct RequestDistribution {
    counts: BTreeMap<RequestClass, f64>,
    total: f64,
    /// Weight of the next request: it grows, instead of the weights of earlier requests shrinking.
    increment: f64,
    /// Factor by which `increment` grows with each request.
    growth: f64,
}

impl Default for RequestDistribution {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
            total: 0.0,
            increment: 1.0,
            growth: 2_f64.powf(1.0 / HALF_LIFE_REQUESTS),
        }
    }
}

impl RequestDistribution {
    /// Counts requests with equal weights, as for a whole trace.
    pub fn from_shapes<'a>(shapes: impl IntoIterator<Item = &'a Shape>) -> Self {
        let mut all = Self {
            growth: 1.0,
            ..Self::default()
        };
        for shape in shapes {
            all.observe(shape);
        }
        all
    }

    /// Counts a request as the newest: all other requests lose a little weight.
    pub fn observe(&mut self, shape: &Shape) {
        self.observe_unordered(std::slice::from_ref(shape));
    }

    /// Counts requests with equal weights. Together they weigh as much as the same number of
    /// requests that are observed one by one.
    pub fn observe_unordered(&mut self, shapes: &[Shape]) {
        if shapes.is_empty() {
            return;
        }
        let count = shapes.len() as f64;
        let faded = self.growth.powf(count).min(1e30);
        let sum = if self.growth > 1.0 {
            (faded - 1.0) / (self.growth - 1.0)
        } else {
            count
        };
        let each = self.increment * sum / count;
        for shape in shapes {
            let class = RequestClass::of_shape(shape);
            *self.counts.entry(class).or_default() += each;
            self.total += each;
        }
        self.increment *= faded;
        self.rescale();
    }

    fn rescale(&mut self) {
        if self.increment > MAX_INCREMENT {
            let by = self.increment;
            self.increment = 1.0;
            self.total = 0.0;
            self.counts.retain(|_, count| {
                *count /= by;
                self.total += *count;
                *count > 1e-9
            });
        }
    }

    /// Returns whether no request was counted yet.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Number of classes, including the rare ones that [`Self::classes`] leaves out.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// The classes to plan for, with their probabilities: the most frequent first, equally frequent
    /// classes in descending order.
    pub fn classes(&self) -> Vec<(RequestClass, f64)> {
        let mut all: Vec<(&RequestClass, f64)> = self.counts.iter().map(|(t, c)| (t, *c)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| b.0.cmp(a.0)));
        let (mut sum, mut planned) = (0.0, Vec::new());
        for (class, count) in &all {
            if sum >= PLANNED_REQUEST_RATIO * self.total || planned.len() == MAX_CLASSES {
                break;
            }
            sum += count;
            planned.push(((*class).clone(), count / self.total));
        }
        if planned.len() < all.len() {
            for (_, p) in &mut planned {
                *p /= sum / self.total;
            }
        }
        planned
    }

    /// The distance of two distributions: 0 if they are equal, 1 if they have no class in common.
    pub fn distance(before: &[(RequestClass, f64)], now: &[(RequestClass, f64)]) -> f64 {
        fn by_class(list: &[(RequestClass, f64)]) -> BTreeMap<&RequestClass, f64> {
            list.iter().map(|(class, p)| (class, *p)).collect()
        }
        let (a, b) = (by_class(before), by_class(now));
        let new = b.iter().filter(|(class, _)| !a.contains_key(*class));
        let new: f64 = new.map(|(_, p)| p).sum();
        let changed = a
            .iter()
            .map(|(class, p)| (p - b.get(class).unwrap_or(&0.0)).abs());
        (new + changed.sum::<f64>()) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(share: u16) -> Shape {
        Shape {
            share,
            ..Shape::default()
        }
    }

    #[test]
    fn classes_leave_out_rare_ones_and_sum_to_one() {
        let mut shapes = vec![share(500); 96];
        shapes.extend(vec![share(250); 3]);
        shapes.push(share(100));
        let types = RequestDistribution::from_shapes(&shapes).classes();
        assert_eq!(types.len(), 1);
        assert_eq!(types[0].0.milli, 500);
        assert!((types[0].1 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn observe_fades_old_requests() {
        let mut seen = RequestDistribution::default();
        for _ in 0..10_000 {
            seen.observe(&share(500));
        }
        for _ in 0..4_000 {
            seen.observe(&share(250));
        }
        let types = seen.classes();
        let half = types.iter().find(|t| t.0.milli == 500).unwrap();
        assert!((half.1 - 0.25).abs() < 0.03, "{types:?}");
        assert!(RequestDistribution::distance(&types, &types) < 1e-12);
    }

    #[test]
    fn observe_unordered_weighs_all_equally() {
        let shapes: Vec<Shape> = (0..9_000).map(|i| share(100 + i / 3_000 * 100)).collect();
        let mut seen = RequestDistribution::default();
        seen.observe_unordered(&shapes);
        assert!(
            seen.classes()
                .iter()
                .all(|(_, p)| (p - 1.0 / 3.0).abs() < 1e-9)
        );
        for _ in 0..4_000 {
            seen.observe(&share(900));
        }
        let new = seen.classes().iter().find(|t| t.0.milli == 900).unwrap().1;
        assert!((new - 0.75).abs() < 0.03, "{new}");
    }

    #[test]
    fn observe_keeps_precision_over_a_million_requests() {
        let mut seen = RequestDistribution::default();
        for i in 0..1_000_000 {
            seen.observe(&share(if i % 4 == 0 { 250 } else { 500 }));
        }
        let p = seen.classes()[0].1;
        assert!((p - 0.75).abs() < 1e-3, "{p}");
    }
}
