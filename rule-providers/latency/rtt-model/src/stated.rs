//! The errors that coordinates and labels state themselves: from the residuals of measured pairs,
//! each predicted from the others, and of pairs that were held out. Both have seen the former, so
//! they err more elsewhere; `error_bar` says how much.

use crate::held_out::{HeldOut, quantile, weighted_quantile};

const BINS: usize = 8;
/// The prior weight of the typical residual in a bin.
const PRIOR: f32 = 8.0;
/// The degrees of freedom of a node's coordinates, by which pairs that were not fitted err more.
const FOLLOWED: f32 = 6.0;
/// An offset a node and its share of the classes follow about so many samples.
const FOLLOWED_BY_LABELS: f32 = 1.2;
/// From so many measured pairs on, labels' errors are checked.
const FEWEST_LABELLED: usize = 50;
/// From so many pairs in a bin on that were held out, their errors count.
const FEWEST_HELD: usize = 10;
/// Standard deviations of the normal distribution that hold four in five.
const FOUR_OF_FIVE: f32 = 1.2816;
const WIDEST: f32 = 5.0;

/// Of a measured pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Residual {
    /// By coordinates, in multiples of the scale.
    pub predicted: f32,
    /// The logarithm's residual, its size.
    pub coords: f32,
    /// That of labels over the error that they state.
    pub labels: Option<f32>,
}

/// Half 80 % bars of the logarithm.
#[derive(Clone, Debug)]
pub(crate) struct Stated {
    /// Upper ends of all bins but the last, rising.
    edges: Vec<f32>,
    /// Each bin's 80 % quantile of the residual, inflated.
    widths: Vec<f32>,
    /// The factor from the labels' errors.
    labels: f32,
}

impl Default for Stated {
    fn default() -> Self {
        Self {
            edges: Vec::new(),
            widths: Vec::new(),
            labels: FOUR_OF_FIVE,
        }
    }
}

impl Stated {
    /// From residuals of nodes with `degree` measured pairs each on average.
    pub fn new(residuals: &mut [Residual], degree: f32) -> Self {
        residuals.sort_by(|a, b| a.predicted.total_cmp(&b.predicted));
        let usual = of_four_in_five(residuals).unwrap_or(1.0);
        let inflation = inflation(FOLLOWED, degree);
        let size = residuals.len().div_ceil(BINS).max(1);
        let mut stated = Self::default();
        for bin in residuals.chunks(size) {
            let own = of_four_in_five(bin).unwrap_or(usual);
            let count = bin.len() as f32;
            stated.edges.extend(bin.last().map(|r| r.predicted));
            stated
                .widths
                .push(inflation * (count * own + PRIOR * usual) / (count + PRIOR));
        }
        stated.edges.pop();
        let labels: Vec<f32> = residuals.iter().filter_map(|r| r.labels).collect();
        let enough = labels.len() >= FEWEST_LABELLED;
        if let Some(usual) = enough.then(|| quantile(labels, 0.8)).flatten() {
            let usual = usual * self::inflation(FOLLOWED_BY_LABELS, degree);
            stated.labels = usual.clamp(0.5 * FOUR_OF_FIVE, 2.0 * FOUR_OF_FIVE);
        }
        stated
    }

    /// Errors of coordinates are at least those of pairs that were held out. Where coordinates
    /// follow near pairs closely, residuals are a tenth of them. `shrink` is the number of the
    /// corrections in use.
    pub fn raise(&mut self, held: &[HeldOut], shrink: usize) {
        let mut bins = vec![Vec::new(); self.widths.len()];
        for held in held.iter().filter(|held| !held.odd) {
            let predicted = held.coords[shrink];
            let at = self.edges.partition_point(|edge| *edge < predicted.exp());
            if let Some(bin) = bins.get_mut(at) {
                bin.push(((held.measured - predicted).abs(), held.weight));
            }
        }
        for (width, bin) in self.widths.iter_mut().zip(bins) {
            if bin.len() >= FEWEST_HELD {
                *width = width.max(weighted_quantile(bin, 0.8).unwrap_or(0.0));
            }
        }
    }

    /// Of a prediction by coordinates, in multiples of the scale.
    pub fn coords(&self, predicted: f32) -> f32 {
        let bin = self.edges.partition_point(|edge| *edge < predicted);
        self.widths.get(bin).map_or(1.0, |width| width.min(WIDEST))
    }

    /// Of a prediction by labels with this error.
    pub fn labels(&self, error: f32) -> f32 {
        (self.labels * error).max(1e-3)
    }
}

fn of_four_in_five(residuals: &[Residual]) -> Option<f32> {
    quantile(residuals.iter().map(|r| r.coords).collect(), 0.8)
}

/// The factor between residuals of fitted and of other pairs, if a fit follows `followed` of the
/// `degree` samples of a node.
fn inflation(followed: f32, degree: f32) -> f32 {
    let part = (followed / degree.max(1.0)).min(0.6);
    ((1.0 + part) / (1.0 - part)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_were_held_out_raise_errors_and_never_lower_them() {
        let residual = |i: u32, coords: f32| Residual {
            predicted: 1.0 + i as f32 / 1e3,
            coords,
            labels: None,
        };
        let held = |measured: f32| HeldOut {
            measured,
            noise: 0.0,
            weight: 1.0,
            coords: [0.0; 3],
            labels: None,
            odd: false,
        };
        let mut residuals: Vec<Residual> = (0..80).map(|i| residual(i, 0.01)).collect();
        let mut stated = Stated::new(&mut residuals, 1e6);
        let first = stated.coords(1.0);
        stated.raise(&[held(0.001); 20], 0);
        assert_eq!(stated.coords(1.0), first);
        stated.raise(&[held(0.2); 9], 0);
        assert_eq!(stated.coords(1.0), first);
        stated.raise(&[held(0.2); 20], 0);
        assert_eq!(stated.coords(1.0), 0.2);
    }
}
