//! The calibration of predictions on held-out pairs. It chooses the mix of coordinates and labels
//! that predicts these pairs best, and the error bars of each range of predicted times from the
//! errors that remain.

use std::f32::consts::LN_2;

use crate::{labels::LabelEstimate, statistics::weighted_quantile, tuning};

/// The figures for the lower and the upper end of an error bar.
pub(crate) type Ends = [f32; 2];

/// The predictions of a pair, as logarithms of multiples of the fit's scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Predicted {
    /// The prediction by coordinates, or by labels if a node has no samples.
    pub coords: f32,
    pub labels: Option<LabelEstimate>,
}

impl Predicted {
    fn combined(self, share: f32) -> f32 {
        self.labels.map_or(self.coords, |labels| {
            share * self.coords + (1.0 - share) * labels.log
        })
    }

    /// Returns the unit of error bars, in logarithm: the error of the labels' class if labels
    /// count, else 1.
    fn unit(self, share: f32) -> f32 {
        let labels = self.labels.filter(|_| share < 1.0);
        labels.map_or(1.0, |labels| labels.error)
    }
}

/// A measured pair and its predictions by a fit that leaves it out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldOut {
    /// The logarithm of the measured time over the fit's scale.
    pub measured: f32,
    /// The relative number of unmeasured pairs that this pair represents.
    pub weight: f32,
    /// Half an 80 % error bar of the measured time; 0 if unknown.
    pub noise: f32,
    pub predicted: Predicted,
    /// The prediction by coordinates with the corrections of noisy samples.
    pub coords_if_noisy: f32,
}

impl HeldOut {
    fn off(&self, share: f32) -> f32 {
        self.measured - self.predicted.combined(share)
    }
}

/// The ranges of predicted times, in rising order.
#[derive(Clone, Debug, Default)]
struct Ranges {
    /// The coordinates' share in a prediction, from 0 to 1.
    share: f32,
    /// The upper end of each range, in logarithm.
    edges: Vec<f32>,
    /// The distances from the prediction to both ends of an 80 % error bar in each range, in
    /// [`Predicted::unit`]s.
    ends: Vec<Ends>,
}

impl Ranges {
    /// Returns the range of a key; the last one also has all keys above it.
    fn at(&self, key: f32) -> usize {
        let at = self.edges.partition_point(|edge| *edge < key);
        at.min(self.edges.len().saturating_sub(1))
    }
}

/// The ranges of predicted times. The range of a pair with labels depends on the prediction by
/// labels, the range of any other pair on the prediction by coordinates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calibration {
    /// The ranges of pairs with a prediction by labels.
    labelled: Ranges,
    /// The ranges of pairs without one, fitted to all held-out pairs.
    plain: Ranges,
    /// True if nodes have labels; else all nodes are one class, whose predictions say little.
    by_labels: bool,
}

impl Calibration {
    /// Calibrates on the pairs `held`; `others` are the predictions of some unmeasured pairs.
    pub fn new(held: &[HeldOut], by_labels: bool, others: &[Predicted]) -> Self {
        let mut new = Self {
            by_labels,
            ..Self::default()
        };
        let keys = |labelled: bool| -> Vec<f32> {
            let others = others.iter().filter(|one| one.labels.is_some() == labelled);
            others.map(|one| new.key(*one)).collect()
        };
        let (of_labelled, of_others) = (keys(true), keys(false));
        let shares = if by_labels {
            [0.0, 0.5, 1.0]
        } else {
            [1.0, 0.5, 0.0]
        };
        let labelled = held.iter().filter(|held| held.predicted.labels.is_some());
        new.labelled = new.ranges(labelled.copied().collect(), &shares, &of_labelled);
        new.plain = new.ranges(held.to_vec(), &[1.0], &of_others);
        new
    }

    /// Returns the prediction and the distances to the ends of its error bar, both in logarithm.
    pub fn predict(&self, predicted: Predicted) -> (f32, Ends) {
        let ranges = match predicted.labels {
            Some(_) => &self.labelled,
            None => &self.plain,
        };
        let unit = predicted.unit(ranges.share);
        let ends = ranges.ends.get(ranges.at(self.key(predicted)));
        // If too few pairs were held out to know the error, the bar is a factor of 2.
        let bar = ends.map_or([LN_2; 2], |ends| ends.map(|end| end * unit));
        (predicted.combined(ranges.share), bar)
    }

    fn key(&self, predicted: Predicted) -> f32 {
        let labels = predicted.labels.filter(|_| self.by_labels);
        labels.map_or(predicted.coords, |labels| labels.log)
    }

    fn ranges(&self, mut held: Vec<HeldOut>, shares: &[f32], others: &[f32]) -> Ranges {
        let mut ranges = Ranges {
            share: shares[0],
            ..Ranges::default()
        };
        if held.len() < tuning::MIN_PAIRS {
            return ranges;
        }
        let key = |held: &HeldOut| self.key(held.predicted);
        held.sort_by(|a, b| key(a).total_cmp(&key(b)));
        let share = best_share(&held, shares);
        ranges.share = share;
        let usual = width(&held, share).ln();
        let count = (held.len() / tuning::MIN_PAIRS).min(tuning::BINS);
        let size = held.len().div_ceil(count);
        for chunk in held.chunks(size) {
            let (count, prior) = (chunk.len() as f32, tuning::BIN_PRIOR);
            let own = width(chunk, share).ln();
            let end = ((count * own + prior * usual) / (count + prior)).exp();
            ranges.edges.extend(chunk.last().map(key));
            ranges.ends.push([end; 2]);
        }
        // Near pairs are measured more often than others: each range counts as it is in `others`.
        let mut counts = vec![0.0f32; ranges.edges.len()];
        for key in others {
            counts[ranges.at(*key)] += 1.0;
        }
        for (chunk, count) in held.chunks_mut(size).zip(counts) {
            let all: f32 = chunk.iter().map(|held| held.weight).sum();
            for held in chunk {
                held.weight *= count / all.max(1e-9);
            }
        }
        let covers = |most: f32, factors: Ends| {
            let (mut holds, mut all) = (0.0, 0.0);
            for (ends, chunk) in ranges.ends.iter().zip(held.chunks(size)) {
                for held in chunk.iter().filter(|held| held.measured <= most) {
                    let off = held.off(share);
                    let which = usize::from(off >= 0.0);
                    let end = ends[which] * factors[which] * held.predicted.unit(share);
                    if off.abs() <= end.hypot(held.noise) {
                        holds += held.weight;
                    }
                    all += held.weight;
                }
            }
            holds / f32::max(all, 1e-9) >= 0.8
        };
        // Lower ends are widened until they hold enough of the nearest tenth of pairs, then upper
        // ends are narrowed until bars hold no more pairs than they should.
        let mut times: Vec<_> = held.iter().map(|one| (one.measured, one.weight)).collect();
        let near = weighted_quantile(&mut times, 0.1).unwrap_or_default();
        let lower = [1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5];
        let lower = lower.into_iter().find(|lower| covers(near, [*lower, 1.0]));
        let lower = lower.unwrap_or(3.0);
        let upper = [0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95];
        let upper = upper
            .into_iter()
            .find(|upper| covers(f32::INFINITY, [lower, *upper]));
        let upper = upper.unwrap_or(1.0);
        for ends in &mut ranges.ends {
            *ends = [ends[0] * lower, ends[1] * upper];
        }
        ranges
    }
}

/// Returns the first of `shares`, or the best one if its loss is clearly smaller.
fn best_share(held: &[HeldOut], shares: &[f32]) -> f32 {
    let usual = shares[0];
    let losses = shares.iter().map(|share| (loss(held, *share), *share));
    let best = losses.min_by(|a, b| a.0.total_cmp(&b.0));
    let most = tuning::MIN_GAIN_RATIO * loss(held, usual);
    best.map_or(
        usual,
        |(loss, share)| if loss < most { share } else { usual },
    )
}

/// Returns the weighted mean of errors to the power of 0.75, each error bounded.
fn loss(held: &[HeldOut], share: f32) -> f32 {
    let (mut sum, mut all) = (0.0, 0.0);
    for held in held {
        let off = held.off(share).abs().min(4.0);
        sum += held.weight * off.powf(0.75);
        all += held.weight;
    }
    sum / all.max(1e-9)
}

/// Returns the 80 % quantile of errors, in [`Predicted::unit`]s, without the noise of the measured
/// times. The relative error of the quantile is 1.5 over the square root of the number of pairs,
/// so that part of its square remains however large the noise is.
fn width(held: &[HeldOut], share: f32) -> f32 {
    let quantile = |noise: f32| {
        let errors = held.iter().map(|held| {
            let own = held.off(share).powi(2) - noise * held.noise.powi(2);
            let unit = held.predicted.unit(share);
            (own.max(0.0).sqrt() / unit, held.weight)
        });
        weighted_quantile(&mut errors.collect::<Vec<_>>(), 0.8).unwrap_or(1.0)
    };
    let error = 1.5 / (held.len() as f32).sqrt();
    let least = error.sqrt().min(1.0);
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
            predicted: Predicted {
                coords: if i.is_multiple_of(3) { 0.6 } else { -0.5 },
                labels: Some(LabelEstimate {
                    log: 0.0,
                    error: 0.1,
                }),
            },
        }
    }

    #[test]
    fn what_errs_less_is_chosen_and_its_errors_are_the_bar() {
        let all: Vec<HeldOut> = (0..400).map(held).collect();
        let others: Vec<_> = all.iter().map(|one| one.predicted).collect();
        let calibration = Calibration::new(&all, true, &others);
        let (log, [low, high]) = calibration.predict(all[1].predicted);
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
        let (log, ends) = calibration.predict(few[1].predicted);
        assert_eq!((log, ends), (0.0, [LN_2; 2]));
    }
}
