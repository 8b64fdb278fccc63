//! The calibration of predictions on held-out pairs. It chooses the mix of coordinates and labels
//! that predicts these pairs best, and the error bars of each range of predicted times from the
//! errors that remain.

use crate::{labels::LabelEstimate, statistics::weighted_quantile, tuning::TUNING};

/// The candidates for the coordinates' share in a prediction if nodes have labels, the default
/// first.
const SHARES: [f32; 3] = [0.0, 0.5, 1.0];
/// The candidates if no node has labels, so that all nodes are one class.
const SHARES_WITHOUT_LABELS: [f32; 3] = [1.0, 0.5, 0.0];
/// The ratio of losses below which another share replaces the default.
const MIN_GAIN_RATIO: f32 = 0.95;
/// The upper bound of an error in that choice, in logarithm: the largest errors do not decide it.
const MAX_COMPARED_ERROR: f32 = 4.0;
/// The part of pairs whose measured time is to lie within the error bar.
const TARGET_COVERAGE_RATIO: f32 = 0.8;
/// The quantile of measured times up to which a pair is near: lower ends are widened until they
/// cover enough near pairs.
const NEAR_TIME_QUANTILE: f32 = 0.1;
/// The candidate factors on the lower ends of error bars, in the order of trial.
const LOWER_FACTORS: [f32; 8] = [1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0];
/// The candidate factors on the upper ends of error bars, in the order of trial.
const UPPER_FACTORS: [f32; 8] = [0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0];
/// The relative error of the 80 % quantile of n errors, times the square root of n.
const QUANTILE_ERROR_RATIO: f32 = 1.5;
/// Half the error bar, in logarithm, if too few pairs were held out to know it: a factor of 2.
const UNKNOWN_BAR: f32 = std::f32::consts::LN_2;

/// A measured pair and its predictions by a fit that leaves it out; all times are logarithms of
/// multiples of the fit's scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldOut {
    pub measured: f32,
    /// The relative number of unmeasured pairs that this pair represents.
    pub weight: f32,
    /// Half an 80 % error bar of the measured time; 0 if unknown.
    pub noise: f32,
    /// The prediction by coordinates, with the corrections that suit the samples.
    pub coords: f32,
    /// The prediction by coordinates with the corrections of noisy samples.
    pub coords_if_noisy: f32,
    pub labels: Option<LabelEstimate>,
}

impl HeldOut {
    fn off(&self, share: f32) -> f32 {
        self.measured - combined(self.coords, self.labels, share)
    }
}

fn combined(coords: f32, labels: Option<LabelEstimate>, share: f32) -> f32 {
    labels.map_or(coords, |labels| share * coords + (1.0 - share) * labels.log)
}

/// Returns the unit of error bars, in logarithm: the error of the labels' class if labels count,
/// else 1.
fn unit(labels: Option<LabelEstimate>, share: f32) -> f32 {
    labels
        .filter(|_| share < 1.0)
        .map_or(1.0, |labels| labels.error)
}

/// A range of predicted times.
#[derive(Clone, Copy, Debug)]
struct Bin {
    /// The upper end of the range, in logarithm.
    edge: f32,
    /// The coordinates' share in a prediction, from 0 to 1.
    share: f32,
    /// The distances from the prediction to both ends of an 80 % error bar, in [`unit`]s.
    ends: Ends,
}

/// The figures for the lower and the upper end of an error bar.
pub(crate) type Ends = [f32; 2];

/// The ranges of predicted times, in rising order. The range of a pair with labels depends on the
/// prediction by labels, the range of any other pair on the prediction by coordinates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calibration {
    /// The ranges of pairs with a prediction by labels.
    labelled: Vec<Bin>,
    /// The ranges of pairs without one, fitted to all held-out pairs.
    plain: Vec<Bin>,
    /// True if nodes have labels; else all nodes are one class, whose predictions say little.
    by_labels: bool,
}

impl Calibration {
    /// Calibrates on the pairs `held`; `others` are the predictions by coordinates and by labels of
    /// some unmeasured pairs.
    pub fn new(held: &[HeldOut], by_labels: bool, others: &[(f32, Option<LabelEstimate>)]) -> Self {
        let mut calibration = Self {
            by_labels,
            ..Self::default()
        };
        let keys = |labelled: bool| -> Vec<f32> {
            let others = others
                .iter()
                .filter(|(_, labels)| labels.is_some() == labelled);
            others
                .map(|(coords, labels)| calibration.key(*coords, *labels))
                .collect()
        };
        let of_labelled = held.iter().filter(|held| held.labels.is_some());
        let shares = if by_labels {
            &SHARES
        } else {
            &SHARES_WITHOUT_LABELS
        };
        let labelled = calibration.bins(of_labelled.copied().collect(), shares, &keys(true));
        let plain = calibration.bins(held.to_vec(), &[1.0], &keys(false));
        (calibration.labelled, calibration.plain) = (labelled, plain);
        calibration
    }

    /// Returns the prediction and the distances to the ends of its error bar, both in logarithm.
    pub fn predict(&self, coords: f32, labels: Option<LabelEstimate>) -> (f32, Ends) {
        let bins = if labels.is_some() {
            &self.labelled
        } else {
            &self.plain
        };
        let key = self.key(coords, labels);
        let at = bins.partition_point(|bin| bin.edge < key);
        let Some(bin) = bins.get(at).or(bins.last()) else {
            let share = if self.by_labels { 0.0 } else { 1.0 };
            return (combined(coords, labels, share), [UNKNOWN_BAR; 2]);
        };
        let unit = unit(labels, bin.share);
        (
            combined(coords, labels, bin.share),
            bin.ends.map(|end| end * unit),
        )
    }

    fn key(&self, coords: f32, labels: Option<LabelEstimate>) -> f32 {
        let labels = labels.filter(|_| self.by_labels);
        labels.map_or(coords, |labels| labels.log)
    }

    fn bins(&self, mut held: Vec<HeldOut>, shares: &[f32], others: &[f32]) -> Vec<Bin> {
        if held.len() < TUNING.min_pairs_per_bin {
            return Vec::new();
        }
        let key = |held: &HeldOut| self.key(held.coords, held.labels);
        held.sort_by(|a, b| key(a).total_cmp(&key(b)));
        let share = best_share(&held, shares);
        let count = (held.len() / TUNING.min_pairs_per_bin).clamp(1, TUNING.bins);
        let bin = |chunk: &[HeldOut]| -> Bin {
            let prior = TUNING.bin_prior;
            let drawn = |own: f32, usual: f32| {
                let count = chunk.len() as f32;
                (count * own + prior * usual) / (count + prior)
            };
            Bin {
                edge: chunk.last().map_or(0.0, key),
                share,
                ends: [drawn(width(chunk, share).ln(), width(&held, share).ln()).exp(); 2],
            }
        };
        let size = held.len().div_ceil(count);
        let mut bins: Vec<Bin> = held.chunks(size).map(bin).collect();
        represent(&bins, &mut held, size, others);
        let chunks = || held.chunks(size);
        let measured = held.iter().map(|held| (held.measured, held.weight));
        let near = weighted_quantile(measured.collect(), NEAR_TIME_QUANTILE).unwrap_or_default();
        let lower = LOWER_FACTORS.iter().find(|factor| {
            part_held(&bins, chunks(), near, [**factor, 1.0]) >= TARGET_COVERAGE_RATIO
        });
        let lower = *lower.unwrap_or(&LOWER_FACTORS[LOWER_FACTORS.len() - 1]);
        let upper = UPPER_FACTORS.iter().find(|factor| {
            part_held(&bins, chunks(), f32::INFINITY, [lower, **factor]) >= TARGET_COVERAGE_RATIO
        });
        for bin in &mut bins {
            bin.ends[0] *= lower;
            bin.ends[1] *= upper.unwrap_or(&1.0);
        }
        bins
    }
}

/// Scales the weights of held-out pairs so that each range's total is the number of `others` in it:
/// near pairs are measured more often than others.
fn represent(bins: &[Bin], held: &mut [HeldOut], size: usize, others: &[f32]) {
    let mut counts = vec![0.0f32; bins.len()];
    for key in others {
        let at = bins.partition_point(|bin| bin.edge < *key);
        counts[at.min(bins.len() - 1)] += 1.0;
    }
    for (chunk, count) in held.chunks_mut(size).zip(counts) {
        let all: f32 = chunk.iter().map(|held| held.weight).sum();
        for held in chunk {
            held.weight *= count / all.max(1e-9);
        }
    }
}

/// Returns the weighted part of the pairs with a measured time of at most `most` that lie within
/// their error bars, if the ends of the bars are multiplied by `factors`.
fn part_held<'a>(
    bins: &[Bin],
    chunks: impl Iterator<Item = &'a [HeldOut]>,
    most: f32,
    factors: Ends,
) -> f32 {
    let (mut holds, mut all) = (0.0, 0.0);
    for (bin, chunk) in bins.iter().zip(chunks) {
        for held in chunk.iter().filter(|held| held.measured <= most) {
            let off = held.off(bin.share);
            let which = usize::from(off >= 0.0);
            let end = bin.ends[which] * factors[which] * unit(held.labels, bin.share);
            holds += if off.abs() <= end.hypot(held.noise) {
                held.weight
            } else {
                0.0
            };
            all += held.weight;
        }
    }
    holds / f32::max(all, 1e-9)
}

/// Returns the first of `shares`, or the best one if its loss is clearly smaller.
fn best_share(held: &[HeldOut], shares: &[f32]) -> f32 {
    let usual = shares[0];
    let losses = shares.iter().map(|share| (loss(held, *share), *share));
    let best = losses.min_by(|a, b| a.0.total_cmp(&b.0));
    let clearly = best.filter(|(best, _)| *best < MIN_GAIN_RATIO * loss(held, usual));
    clearly.map_or(usual, |(_, share)| share)
}

/// Returns the weighted mean of errors to the power of 0.75, each error bounded.
fn loss(held: &[HeldOut], share: f32) -> f32 {
    let (mut sum, mut all) = (0.0, 0.0);
    for held in held {
        let off = held.off(share).abs().min(MAX_COMPARED_ERROR);
        sum += held.weight * off.powf(0.75);
        all += held.weight;
    }
    sum / all.max(1e-9)
}

/// Returns the 80 % quantile of errors, in [`unit`]s, without the noise of the measured times. The
/// quantile is uncertain by [`QUANTILE_ERROR_RATIO`] over the square root of the number of pairs,
/// so that part of its square remains however large the noise is.
fn width(held: &[HeldOut], share: f32) -> f32 {
    let quantile = |noise: f32| {
        let errors = held.iter().map(|held| {
            let own = held.off(share).powi(2) - noise * held.noise.powi(2);
            (own.max(0.0).sqrt() / unit(held.labels, share), held.weight)
        });
        weighted_quantile(errors.collect(), 0.8).unwrap_or(1.0)
    };
    let least = (QUANTILE_ERROR_RATIO / (held.len() as f32).sqrt())
        .sqrt()
        .min(1.0);
    quantile(1.0).max(least * quantile(0.0)).max(1e-4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels err by up to a tenth, coordinates by a half or more.
    fn held(i: u32) -> HeldOut {
        HeldOut {
            measured: (i % 20) as f32 / 100.0 - 0.1,
            weight: 1.0,
            noise: 0.0,
            coords_if_noisy: 0.0,
            coords: if i.is_multiple_of(3) { 0.6 } else { -0.5 },
            labels: Some(LabelEstimate {
                log: 0.0,
                error: 0.1,
            }),
        }
    }

    #[test]
    fn what_errs_less_is_chosen_and_its_errors_are_the_bar() {
        let all: Vec<HeldOut> = (0..400).map(held).collect();
        let others: Vec<_> = all.iter().map(|one| (one.coords, one.labels)).collect();
        let calibration = Calibration::new(&all, true, &others);
        let (log, [low, high]) = calibration.predict(0.5, all[0].labels);
        assert_eq!(log, 0.0);
        let inside = all
            .iter()
            .filter(|held| -low <= held.measured && held.measured <= high);
        let part = inside.count() as f32 / all.len() as f32;
        assert!((0.74..=0.9).contains(&part), "{part}");
    }

    #[test]
    fn few_pairs_leave_the_bar_unknown() {
        let few: Vec<HeldOut> = (0..10).map(held).collect();
        let calibration = Calibration::new(&few, true, &[]);
        let (log, ends) = calibration.predict(0.5, few[0].labels);
        assert_eq!((log, ends), (0.0, [UNKNOWN_BAR; 2]));
    }
}
