//! The value of a card's remainder, from the dual prices of the cutting-stock linear programme
//! (Gilmore and Gomory, 1961), which finds the fewest cards that hold the popular sizes in their
//! proportions.
//!
//! A size's price is the part of a card that one more pod of this size costs in the best packing: a
//! size that fits where no other size does costs nothing. A remainder is worth the dearest set of
//! sizes that fits in it.

use std::collections::BTreeMap;

use crate::shape::CARD_MILLI;

/// The thousandths of a whole card, as an index of remainders.
const WHOLE_MILLI: usize = CARD_MILLI as usize;
/// The maximum number of pivots for each size: it stops degenerate programmes, whose prices are
/// nearly right by then.
const MAX_PIVOTS_PER_SIZE: usize = 50;
/// The maximum number of share sizes with a price: it limits the time of the linear programme to
/// milliseconds.
const MAX_PRICED_SIZES: usize = 128;
/// The difference up to which two numbers count as equal.
const EPSILON: f64 = 1e-9;

#[derive(Clone, Debug)]
pub(super) struct RemainderValues(Box<[f64]>);

impl Default for RemainderValues {
    fn default() -> Self {
        Self::from_demand([])
    }
}

impl RemainderValues {
    /// Computes the values for sizes with their frequencies; a size may come several times.
    pub(super) fn from_demand(sizes: impl IntoIterator<Item = (u16, f64)>) -> Self {
        let mut demand: BTreeMap<u16, f64> = BTreeMap::new();
        for (size, frequency) in sizes {
            if (1..=CARD_MILLI).contains(&size) && frequency > 0.0 {
                *demand.entry(size).or_default() += frequency;
            }
        }
        let mut demand: Vec<(u16, f64)> = demand.into_iter().collect();
        demand.sort_by(|a, b| b.1.total_cmp(&a.1));
        demand.truncate(MAX_PRICED_SIZES);
        demand.sort_by_key(|(size, _)| *size);
        let sizes: Vec<usize> = demand.iter().map(|(size, _)| usize::from(*size)).collect();
        let prices = LinearProgramme::new(&demand).solve(&sizes);
        let (mut worth, _) = knapsack(&sizes, &prices);
        worth
            .iter_mut()
            .for_each(|w| *w = w.min(WHOLE_MILLI as f64));
        worth[WHOLE_MILLI] = WHOLE_MILLI as f64;
        Self(worth.into())
    }

    pub(super) fn value(&self, milli: u16) -> f64 {
        self.0[usize::from(milli).min(WHOLE_MILLI)]
    }
}

/// The linear programme, solved by a revised simplex with a dense inverse. The first basis cuts
/// each card into copies of one size.
struct LinearProgramme {
    inverse: Vec<Vec<f64>>,
    cards: Vec<f64>,
    cost: Vec<f64>,
}

impl LinearProgramme {
    fn new(demand: &[(u16, f64)]) -> Self {
        let n = demand.len();
        let total: f64 = demand.iter().map(|(_, p)| p).sum();
        let mut made = Self {
            inverse: vec![vec![0.0; n]; n],
            cards: vec![0.0; n],
            cost: vec![WHOLE_MILLI as f64; n],
        };
        for (i, (size, p)) in demand.iter().enumerate() {
            let copies = f64::from(CARD_MILLI / size);
            made.inverse[i][i] = 1.0 / copies;
            // A small perturbation against cycling.
            let apart = 1.0 + 1e-6 * ((i as f64 * 0.618).fract() + 1.0);
            made.cards[i] = p / total * apart / copies;
        }
        made
    }

    fn solve(mut self, sizes: &[usize]) -> Vec<f64> {
        let mut prices = self.prices();
        for _ in 0..MAX_PIVOTS_PER_SIZE * (sizes.len() + 1) {
            let cheapest = (0..sizes.len()).min_by(|a, b| prices[*a].total_cmp(&prices[*b]));
            let (column, cost) = match cheapest.filter(|i| prices[*i] < -1e-7) {
                Some(i) => {
                    let mut column = vec![0.0; sizes.len()];
                    column[i] = -1.0;
                    (column, 0.0)
                }
                None => {
                    let (worth, pattern) = knapsack(sizes, &prices);
                    if worth[WHOLE_MILLI] <= WHOLE_MILLI as f64 + 1e-6 {
                        break;
                    }
                    (pattern, WHOLE_MILLI as f64)
                }
            };
            if !self.enter(&column, cost) {
                break;
            }
            prices = self.prices();
        }
        prices
    }

    fn prices(&self) -> Vec<f64> {
        let rows = || self.cost.iter().zip(&self.inverse);
        let price = |column| rows().map(|(cost, row)| cost * row[column]).sum();
        (0..self.cost.len()).map(price).collect()
    }

    fn enter(&mut self, column: &[f64], cost: f64) -> bool {
        let dot = |row: &Vec<f64>| row.iter().zip(column).map(|(a, b)| a * b).sum();
        let along: Vec<f64> = self.inverse.iter().map(dot).collect();
        let ratio = |i: &usize| self.cards[*i] / along[*i];
        let able = (0..along.len()).filter(|i| along[*i] > EPSILON);
        let Some(leaves) = able.min_by(|a, b| ratio(a).total_cmp(&ratio(b))) else {
            return false;
        };
        let step = ratio(&leaves);
        for (cards, d) in self.cards.iter_mut().zip(&along) {
            *cards -= step * d;
        }
        self.cards[leaves] = step;
        self.cost[leaves] = cost;
        let row: Vec<f64> = self.inverse[leaves]
            .iter()
            .map(|x| x / along[leaves])
            .collect();
        for (other, d) in self.inverse.iter_mut().zip(&along) {
            for (x, y) in other.iter_mut().zip(&row) {
                *x -= d * y;
            }
        }
        self.inverse[leaves] = row;
        true
    }
}

/// Solves an unbounded knapsack. Returns the worth of the dearest filling of every remainder, and
/// the copies of each size in the dearest filling of a whole card.
fn knapsack(sizes: &[usize], prices: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut worth, mut last) = (vec![0.0_f64; WHOLE_MILLI + 1], vec![None; WHOLE_MILLI + 1]);
    for rest in 1..=WHOLE_MILLI {
        worth[rest] = worth[rest - 1];
        for (i, size) in sizes.iter().enumerate().take_while(|(_, s)| **s <= rest) {
            let with = worth[rest - size] + prices[i];
            if with > worth[rest] + EPSILON {
                worth[rest] = with;
                last[rest] = Some(i);
            }
        }
    }
    let (mut rest, mut copies) = (WHOLE_MILLI, vec![0.0; sizes.len()]);
    while rest > 0 {
        match last[rest] {
            None => rest -= 1,
            Some(i) => {
                copies[i] += 1.0;
                rest -= sizes[i];
            }
        }
    }
    (worth, copies)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn worth(demand: &[(u16, f64)], rests: &[u16]) -> Vec<i64> {
        let prices = RemainderValues::from_demand(demand.to_vec());
        let rounded = rests.iter().map(|r| prices.value(*r).round() as i64);
        rounded.collect()
    }

    #[test]
    fn value_is_that_of_the_sizes_that_fit() {
        let halves = [(500, 1.0), (250, 2.0)];
        let rests = [240, 250, 500, 749, 1000];
        assert_eq!(worth(&halves, &rests), [0, 250, 500, 500, 1000]);
        // A size that fits next to a frequent 810 has no price.
        let demand = [(810, 10.0), (160, 1.0), (470, 4.0)];
        assert_eq!(worth(&demand, &[190, 470, 810]), [0, 500, 1000]);
        assert_eq!(worth(&[], &[999, 1000]), [0, 1000]);
    }

    proptest! {
        #[test]
        fn value_grows_with_the_remainder(demand in prop::collection::vec((1..=CARD_MILLI, 0.01..10.0_f64), 0..20)) {
            let prices = RemainderValues::from_demand(demand);
            for rest in 1..=CARD_MILLI {
                let (less, more) = (prices.value(rest - 1), prices.value(rest));
                prop_assert!(more >= less && (0.0..=1000.0).contains(&more), "{rest}: {less} {more}");
            }
        }
    }
}
