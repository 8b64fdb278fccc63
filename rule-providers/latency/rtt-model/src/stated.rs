//! The errors that coordinates and labels state themselves: from the residuals of measured pairs,
//! each predicted from the others. Both have seen these pairs, so they err more elsewhere;
//! `error_bar` says how much.

use crate::held_out::quantile;

const BINS: usize = 8;
/// The prior weight of the typical residual in a bin.
const PRIOR: f32 = 8.0;
/// The degrees of freedom of a node's coordinates, by which pairs that were not fitted err more.
const FOLLOWED: f32 = 6.0;
/// An offset a node and its share of the classes follow about so many samples.
const FOLLOWED_BY_LABELS: f32 = 1.2;
/// From so many measured pairs on, labels' errors are checked.
const FEWEST_LABELLED: usize = 50;
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
