//! How coordinates and labels are combined, and the widths of error bars: for each range of times
//! what would have predicted the pairs best that were held out, and how far that was off.

use crate::{labels::LabelEstimate, statistics::weighted_quantile, tuning::TUNING};

/// The coordinates' shares in a prediction that are compared, the usual one first: with labels, and
/// where all nodes are one class.
const SHARES: [f32; 3] = [0.0, 0.5, 1.0];
const SHARES_WITHOUT_LABELS: [f32; 3] = [1.0, 0.5, 0.0];
/// The ratio of errors below which another share replaces the usual one.
const MIN_GAIN_RATIO: f32 = 0.95;
/// The upper bound of an error in the choice: most errors matter, not the largest.
const MAX_COMPARED_ERROR: f32 = 4.0;
/// The part of pairs that bars hold.
const GOAL: f32 = 0.8;
/// The part of pairs that are near: their lower ends reach further where they would be missed.
const NEAR: f32 = 0.1;
/// The factors on lower and upper ends that are tried.
const LOWER_FACTORS: [f32; 8] = [1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0];
const UPPER_FACTORS: [f32; 8] = [0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0];
/// The relative error of the 80 % quantile of errors, times the root of their number.
const UNSURE: f32 = 1.5;
/// Half the error bar where too few pairs were held out to know it: a factor of 2.
const UNKNOWN_BAR: f32 = std::f32::consts::LN_2;

/// A measured pair, as a fit without it predicts it; all times are logarithms of multiples of the
/// fit's scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldOut {
    pub measured: f32,
    /// The number of pairs for which it stands that are not measured.
    pub weight: f32,
    /// Half an 80 % bar of the measured time.
    pub noise: f32,
    pub coords: f32,
    /// By coordinates with the corrections of noisy samples.
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

/// Returns the unit of error bars: the error of the labels' class, where labels count.
fn unit(labels: Option<LabelEstimate>, share: f32) -> f32 {
    labels
        .filter(|_| share < 1.0)
        .map_or(1.0, |labels| labels.error)
}

/// A range of predicted times.
#[derive(Clone, Copy, Debug)]
struct Bin {
    /// The upper end, a logarithm.
    edge: f32,
    /// The coordinates' share.
    share: f32,
    /// From the prediction to both ends of an 80 % error bar, of the logarithm, in [`unit`]s.
    ends: Ends,
}

/// The lower end and the upper one.
pub(crate) type Ends = [f32; 2];

/// Ranges of times, rising: of pairs with labels by their prediction, of others by the
/// coordinates'.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calibration {
    labelled: Vec<Bin>,
    plain: Vec<Bin>,
    /// Nodes have labels; else all are one class, whose predictions say little.
    by_labels: bool,
}

impl Calibration {
    /// Takes the pairs that were held out, and coordinates and labels of some pairs that are not
    /// measured.
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

    /// Returns the prediction and the ends of its error bar, both of the logarithm.
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
        let near = weighted_quantile(measured.collect(), NEAR).unwrap_or_default();
        let lower = LOWER_FACTORS
            .iter()
            .find(|factor| part_held(&bins, chunks(), near, [**factor, 1.0]) >= GOAL);
        let lower = *lower.unwrap_or(&LOWER_FACTORS[LOWER_FACTORS.len() - 1]);
        let upper = UPPER_FACTORS
            .iter()
            .find(|factor| part_held(&bins, chunks(), f32::INFINITY, [lower, **factor]) >= GOAL);
        for bin in &mut bins {
            bin.ends[0] *= lower;
            bin.ends[1] *= upper.unwrap_or(&1.0);
        }
        bins
    }
}

/// Weighs pairs such that each range of predicted times has as many as among the others: near pairs
/// are measured more often.
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

/// Returns the part of pairs up to a measured time that bars hold, if their ends are moved by these
/// factors.
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
            let end = end.hypot(held.noise);
            holds += if off.abs() <= end { held.weight } else { 0.0 };
            all += held.weight;
        }
    }
    holds / f32::max(all, 1e-9)
}

/// Returns the first share, or one that errs clearly less.
fn best_share(held: &[HeldOut], shares: &[f32]) -> f32 {
    let usual = shares[0];
    let losses = shares.iter().map(|share| (loss(held, *share), *share));
    let best = losses.min_by(|a, b| a.0.total_cmp(&b.0));
    let clearly = best.filter(|(best, _)| *best < MIN_GAIN_RATIO * loss(held, usual));
    clearly.map_or(usual, |(_, share)| share)
}

/// Returns the mean of errors, each bounded.
fn loss(held: &[HeldOut], share: f32) -> f32 {
    let (mut sum, mut all) = (0.0, 0.0);
    for held in held {
        let off = held.off(share).abs().min(MAX_COMPARED_ERROR);
        sum += held.weight * off.powf(0.75);
        all += held.weight;
    }
    sum / all.max(1e-9)
}

/// Returns the error below which four in five are, without the part that is the measured times'.
/// That quantile is known up to [`UNSURE`] over the root of the pairs' number: noise is taken out
/// only as far.
fn width(held: &[HeldOut], share: f32) -> f32 {
    let quantile = |noise: f32| {
        let errors = held.iter().map(|held| {
            let own = held.off(share).powi(2) - noise * held.noise.powi(2);
            (own.max(0.0).sqrt() / unit(held.labels, share), held.weight)
        });
        weighted_quantile(errors.collect(), 0.8).unwrap_or(1.0)
    };
    let least = (UNSURE / (held.len() as f32).sqrt()).sqrt().min(1.0);
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
