//! What the rest of a card is worth: dual prices of the cutting-stock linear
//! programme over the sizes that are asked (Gilmore and Gomory, 1961).
//!
//! All cards are filled with the popular sizes, in the proportions they come in, as
//! full as can be. The dual price of a size is what one more pod of it would displace;
//! what a rest could earn beyond those prices is its worth. A rest that no mixture of
//! sizes fills is worth little, so a card left with it has lost something.

use crate::shape::CARD;

/// Sizes and rests are told apart in steps of so many thousandths.
const STEP: usize = 10;
const STEPS: usize = CARD as usize / STEP;
/// More than enough; a degenerate programme ends here, with prices nearly right.
const MOST_PIVOTS: usize = 5_000;
const EPSILON: f64 = 1e-9;

/// The worth of each rest of a card, in thousandths.
#[derive(Clone, Debug)]
pub(super) struct Prices([f64; STEPS + 1]);

impl Default for Prices {
    fn default() -> Self {
        Self([0.0; STEPS + 1])
    }
}

impl Prices {
    /// Of sizes (1 to 1000) with the parts that they come in. None of them: all
    /// rests are worth nothing.
    pub(super) fn of(mut demand: Vec<(u16, f64)>) -> Self {
        demand.retain(|(size, p)| (1..=CARD).contains(size) && *p > 0.0);
        let total: f64 = demand.iter().map(|(s, p)| f64::from(*s) * p).sum();
        if total <= 0.0 {
            return Self::default();
        }
        // A thousand cards' worth of pods for a thousand cards.
        for (_, count) in &mut demand {
            *count *= 1e6 / total;
        }
        Self(Programme::new(&demand, 1000.0).solve())
    }

    /// What so many thousandths left are worth.
    pub(super) fn of_rest(&self, milli: u16) -> f64 {
        self.0[(usize::from(milli) / STEP).min(STEPS)]
    }
}

/// A revised simplex with a dense inverse: a row a size, one for the cards.
struct Programme {
    sizes: Vec<u16>,
    rows: usize,
    inverse: Vec<f64>,
    basic: Vec<f64>,
    gain: Vec<f64>,
}

impl Programme {
    fn new(demand: &[(u16, f64)], cards: f64) -> Self {
        let rows = demand.len() + 1;
        let mut inverse = vec![0.0; rows * rows];
        for i in 0..rows {
            inverse[i * rows + i] = 1.0;
        }
        let bounds = demand.iter().map(|(_, count)| *count).chain([cards]);
        // Slightly apart, against cycling.
        let apart =
            |(i, b): (usize, f64)| b + 1e-7 * (1.0 + b) * (1.0 + (i as f64 * 0.618).fract());
        Self {
            sizes: demand.iter().map(|(size, _)| *size).collect(),
            rows,
            inverse,
            basic: bounds.enumerate().map(apart).collect(),
            gain: vec![0.0; rows],
        }
    }

    fn solve(mut self) -> [f64; STEPS + 1] {
        let mut worth = [0.0; STEPS + 1];
        for _ in 0..MOST_PIVOTS {
            let prices = self.prices();
            let pattern = self.pattern(&prices, &mut worth);
            let surplus = worth[STEPS] - prices[self.rows - 1].max(0.0);
            let slack = (0..self.rows).min_by(|a, b| prices[*a].total_cmp(&prices[*b]));
            let slack = slack.filter(|i| prices[*i] < -1e-7 && -prices[*i] > surplus);
            let (gain, column) = match slack {
                Some(row) => (0.0, vec![(row, 1.0)]),
                None if surplus > 1e-6 => pattern,
                None => break,
            };
            if !self.enter(gain, &column) {
                break;
            }
        }
        worth
    }

    fn prices(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.rows];
        for (gain, row) in self.gain.iter().zip(self.inverse.chunks(self.rows)) {
            if *gain != 0.0 {
                for (price, x) in prices.iter_mut().zip(row) {
                    *price += gain * x;
                }
            }
        }
        prices
    }

    /// The most that each rest can earn beyond the prices, by an unbounded knapsack,
    /// and the pattern that a whole card earns most with.
    fn pattern(&self, prices: &[f64], worth: &mut [f64; STEPS + 1]) -> (f64, Vec<(usize, f64)>) {
        let earns = |i: usize| f64::from(self.sizes[i]) - prices[i];
        let mut last = [None; STEPS + 1];
        worth[0] = 0.0;
        for rest in 1..=STEPS {
            worth[rest] = worth[rest - 1];
            for (i, size) in self.sizes.iter().enumerate() {
                let step = usize::from(*size).div_ceil(STEP);
                if step <= rest && worth[rest - step] + earns(i) > worth[rest] + EPSILON {
                    worth[rest] = worth[rest - step] + earns(i);
                    last[rest] = Some(i);
                }
            }
        }
        let (mut rest, mut gain) = (STEPS, 0.0);
        let mut counts = vec![0.0; self.rows];
        while rest > 0 {
            match last[rest] {
                None => rest -= 1,
                Some(i) => {
                    counts[i] += 1.0;
                    gain += f64::from(self.sizes[i]);
                    rest -= usize::from(self.sizes[i]).div_ceil(STEP);
                }
            }
        }
        counts[self.rows - 1] = 1.0;
        let column = counts.into_iter().enumerate().filter(|(_, n)| *n > 0.0);
        (gain, column.collect())
    }

    /// Brings a column into the basis; whether that was possible.
    fn enter(&mut self, gain: f64, column: &[(usize, f64)]) -> bool {
        let n = self.rows;
        let of_row = |row: &[f64]| -> f64 { column.iter().map(|(i, x)| row[*i] * x).sum() };
        let direction: Vec<f64> = self.inverse.chunks(n).map(of_row).collect();
        let ratio = |i: &usize| self.basic[*i].max(0.0) / direction[*i];
        let able = (0..n).filter(|i| direction[*i] > EPSILON);
        let Some(leaves) = able.min_by(|a, b| ratio(a).total_cmp(&ratio(b))) else {
            return false;
        };
        let step = ratio(&leaves);
        for (i, x) in self.basic.iter_mut().enumerate() {
            *x = if i == leaves {
                step
            } else {
                *x - step * direction[i]
            };
        }
        let row: Vec<f64> = self.inverse[leaves * n..(leaves + 1) * n]
            .iter()
            .map(|x| x / direction[leaves])
            .collect();
        for (i, other) in self.inverse.chunks_mut(n).enumerate() {
            if i == leaves {
                other.copy_from_slice(&row);
            } else if direction[i].abs() > 1e-12 {
                for (x, y) in other.iter_mut().zip(&row) {
                    *x -= direction[i] * y;
                }
            }
        }
        self.gain[leaves] = gain;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rest_that_nothing_fills_is_worth_nothing() {
        // Every 810 leaves 190, and nothing smaller comes.
        let prices = Prices::of(vec![(810, 1.0)]);
        assert!(prices.of_rest(190) == 0.0);
        // Halves fill whatever is left of a card, and one of them is displaced by none.
        let prices = Prices::of(vec![(500, 1.0), (1000, 0.5)]);
        assert!(prices.of_rest(490) == 0.0, "{prices:?}");
        assert!(prices.of_rest(500) <= prices.of_rest(1000));
        assert!(Prices::of(Vec::new()).of_rest(1000) == 0.0);
    }

    proptest! {
        /// More of a card is never worth less, and never more than it is.
        #[test]
        fn worth_grows_with_the_rest(demand in prop::collection::vec((1..=CARD, 0.01..10.0_f64), 0..20)) {
            let prices = Prices::of(demand);
            for rest in 1..=CARD {
                let (less, more) = (prices.of_rest(rest - 1), prices.of_rest(rest));
                prop_assert!(more >= less - 1e-6 && more <= f64::from(rest) + 1e-3, "{rest}: {less} {more}");
            }
        }
    }
}
