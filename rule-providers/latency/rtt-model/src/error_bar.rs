//! The widths of error bars, by predicted distance: from the residuals of measured pairs, each
//! predicted from the others.

const BINS: usize = 8;
/// The prior weight of the typical residual in a bin.
const PRIOR: f32 = 8.0;
/// The degrees of freedom of a node's coordinates, by which pairs that were not fitted err more.
const FOLLOWED: f32 = 6.0;
pub(crate) const WIDEST: f32 = 5.0;
/// Standard deviations of the normal distribution that hold four in five.
pub(crate) const FOUR_OF_FIVE: f32 = 1.2816;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Residual {
    pub predicted: f32,
    /// Logarithm of measured over predicted, its size.
    pub log: f32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorBars {
    /// Upper ends of all bins but the last, rising.
    edges: Vec<f32>,
    /// Each bin's 80 % quantile of the residual, inflated.
    widths: Vec<f32>,
}

impl ErrorBars {
    /// From residuals of nodes with `degree` measured pairs each on average.
    pub fn new(residuals: &mut [Residual], degree: f32) -> Self {
        residuals.sort_by(|a, b| a.predicted.total_cmp(&b.predicted));
        let usual = quantile(residuals.iter().map(|m| m.log).collect(), 0.8).unwrap_or(1.0);
        let inflation = inflation(FOLLOWED, degree);
        let size = residuals.len().div_ceil(BINS).max(1);
        let mut bars = Self::default();
        for bin in residuals.chunks(size) {
            let own = quantile(bin.iter().map(|m| m.log).collect(), 0.8).unwrap_or(usual);
            let count = bin.len() as f32;
            bars.edges.extend(bin.last().map(|m| m.predicted));
            bars.widths
                .push(inflation * (count * own + PRIOR * usual) / (count + PRIOR));
        }
        bars.edges.pop();
        bars
    }

    pub fn width(&self, predicted: f32) -> f32 {
        let bin = self.edges.partition_point(|edge| *edge < predicted);
        self.widths.get(bin).map_or(1.0, |width| width.min(WIDEST))
    }
}

/// The factor between residuals of fitted and of other pairs, if a fit follows `followed` of the
/// `degree` samples of a node.
pub(crate) fn inflation(followed: f32, degree: f32) -> f32 {
    let part = (followed / degree.max(1.0)).min(0.6);
    ((1.0 + part) / (1.0 - part)).sqrt()
}

pub(crate) fn quantile(mut values: Vec<f32>, part: f32) -> Option<f32> {
    let at = (part * values.len().checked_sub(1)? as f32) as usize;
    Some(*values.select_nth_unstable_by(at, f32::total_cmp).1)
}
