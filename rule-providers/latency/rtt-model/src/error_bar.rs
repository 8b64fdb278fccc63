//! The widths of error bars: by predicted time, from pairs that were held out.

use crate::{
    held_out::{HeldOut, weighted_quantile},
    mix::{self, Case, Mix},
    stated::Stated,
};

const BINS: usize = 8;
/// A bin has at least so many pairs.
const FEWEST: usize = 25;
/// The prior weight of all pairs in a bin.
const PRIOR: f32 = 8.0;
pub(crate) const WIDEST: f32 = 5.0;
/// Of an odd node, where too few of its pairs were held out.
const ODD: f32 = 1.0;
/// The 80 % quantile of errors is known up to this part over the root of their number; noise is
/// taken out only as far.
const UNSURE: f32 = 1.5;
/// Near pairs are those below this quantile of all times.
const NEAR: f32 = 0.1;
/// Bars hold at least this part of near pairs, or are as long as the last of [`LOWER`] says.
const HOLDS: f32 = 0.8;
const NEAR_HOLDS: f32 = 0.78;
/// Factors of the lower and of the upper end.
const LOWER: [f32; 8] = [1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0];
const UPPER: [f32; 8] = [0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0];

/// For a range of predicted times.
#[derive(Clone, Copy, Debug)]
struct Bin {
    /// The upper end.
    edge: f32,
    mix: Mix,
    /// From the prediction to both ends of an 80 % bar, of the logarithm, in the mix's unit.
    ends: Ends,
}

/// To the lower end and to the upper one.
pub(crate) type Ends = [f32; 2];

/// Bins by time, rising: by the labels' prediction where there is one, else by the coordinates'.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calibration {
    labelled: Vec<Bin>,
    plain: Vec<Bin>,
    odd: Vec<Bin>,
    /// Nodes have labels, and bins are by their predictions.
    by_labels: bool,
    stated: Stated,
}

impl Calibration {
    /// `shrink` is the number of the corrections in use; `keys` are some other pairs' predictions,
    /// with labels, without, and of odd nodes.
    pub fn new(
        stated: Stated,
        held: &[HeldOut],
        shrink: usize,
        by_labels: bool,
        keys: &[Vec<f32>; 3],
    ) -> Self {
        let (odd, rest): (Vec<HeldOut>, Vec<HeldOut>) = held.iter().partition(|held| held.odd);
        let plain = rest.iter().map(|held| Case::plain(held, shrink));
        let odd = odd.iter().map(|held| Case::plain(held, shrink));
        let labelled = held
            .iter()
            .filter_map(|held| Case::labelled(held, shrink, by_labels, &stated));
        Self {
            labelled: bins(labelled.collect(), Some(by_labels), &keys[0]),
            plain: bins(plain.collect(), None, &keys[1]),
            odd: bins(odd.collect(), None, &keys[2]),
            by_labels,
            stated,
        }
    }

    /// The bar of a prediction by coordinates alone; times are multiples of the scale.
    pub fn plain(&self, predicted: f32) -> Ends {
        let stated = || [self.stated.coords(predicted); 2];
        bin(&self.plain, predicted).map_or_else(stated, |bin| bin.ends)
    }

    /// The bar of a prediction for an odd node.
    pub fn odd(&self, predicted: f32) -> Ends {
        bin(&self.odd, predicted).map_or([ODD; 2], |bin| bin.ends)
    }

    /// Of times by coordinates and by labels, with the labels' error: the coordinates' share in the
    /// logarithm, and the bar.
    pub fn combine(&self, [coords, labels]: [f32; 2], error: f32) -> (f32, Ends) {
        let key = if self.by_labels { labels } else { coords };
        let stated = [self.stated.coords(coords), self.stated.labels(error)];
        let bin = bin(&self.labelled, key);
        let mix = bin.map_or(Mix::usual(self.by_labels), |bin| bin.mix);
        let unit = mix.unit(stated);
        let ends = match (bin, mix) {
            (Some(bin), _) => bin.ends.map(|end| end * unit),
            (None, Mix::Coordinates) => [stated[0]; 2],
            (None, _) => [unit; 2],
        };
        (mix.share(stated), ends)
    }

    /// What is predicted for a pair that was held out, as a logarithm.
    pub fn predicted(&self, held: &HeldOut, shrink: usize) -> f32 {
        let coords = held.coords[shrink];
        let Some((labels, error)) = held.labels else {
            return coords;
        };
        let (share, _) = self.combine([coords.exp(), labels.exp()], error);
        share * coords + (1.0 - share) * labels
    }

    /// The bar of a prediction by labels alone.
    pub fn labels(&self, error: f32) -> Ends {
        [self.stated.labels(error); 2]
    }
}

fn bin(bins: &[Bin], time: f32) -> Option<&Bin> {
    let at = bins.partition_point(|bin| bin.edge < time);
    bins.get(at).or(bins.last())
}

/// `labels`: whether labels are real ones; `None`: coordinates alone.
fn bins(mut cases: Vec<Case>, labels: Option<bool>, keys: &[f32]) -> Vec<Bin> {
    if cases.len() < FEWEST {
        return Vec::new();
    }
    cases.sort_by(|a, b| a.key.total_cmp(&b.key));
    let count = (cases.len() / FEWEST).clamp(1, BINS);
    let size = cases.len().div_ceil(count);
    let choose = |cases: &[Case], overall: Option<Mix>| match labels {
        Some(labels) => mix::choose(cases, Mix::usual(labels), overall),
        None => Mix::Coordinates,
    };
    let overall = choose(&cases, None);
    let mut mixes: Vec<Mix> = cases
        .chunks(size)
        .map(|chunk| choose(chunk, Some(overall)))
        .collect();
    // Real labels alone lose what coordinates know of odd nodes: where labels are best in every
    // range, there is nothing to lose.
    if labels == Some(true) && mixes.contains(&Mix::Stated) {
        mixes.fill(Mix::Stated);
    }
    let chunks = cases.chunks(size).zip(mixes).map(|(chunk, mix)| {
        let (own, usual) = (width(chunk, mix), width(&cases, mix));
        let count = chunk.len() as f32;
        Bin {
            edge: chunk.last().map_or(0.0, |case| case.key.exp()),
            mix,
            ends: [((count * own.ln() + PRIOR * usual.ln()) / (count + PRIOR)).exp(); 2],
        }
    });
    let mut bins: Vec<Bin> = chunks.collect();
    represent(&mut cases, &bins, keys);
    widen(&mut bins, &cases);
    bins
}

/// Weighs pairs such that their predictions are as frequent as among `keys`: near pairs are
/// measured more often than others.
fn represent(cases: &mut [Case], bins: &[Bin], keys: &[f32]) {
    let at = |key: f32| {
        bins.partition_point(|bin| bin.edge < key.exp())
            .min(bins.len() - 1)
    };
    let mut sums = vec![[0.0f32; 2]; bins.len()];
    for key in keys {
        sums[at(*key)][0] += 1.0;
    }
    for case in cases.iter() {
        sums[at(case.key)][1] += case.weight;
    }
    for case in cases.iter_mut() {
        let [all, held] = sums[at(case.key)];
        case.weight *= all / held.max(1e-9);
    }
}

/// Moves lower ends until bars hold near pairs too, then upper ends back as far as all allow.
fn widen(bins: &mut [Bin], cases: &[Case]) {
    let measured = cases.iter().map(|case| (case.measured, case.weight));
    let Some(near) = weighted_quantile(measured.collect(), NEAR) else {
        return;
    };
    let held = |bins: &[Bin], most: f32, factors: Ends| {
        let mut sums = [0.0f32; 2];
        for case in cases.iter().filter(|case| case.measured <= most) {
            let Some(bin) = bin(bins, case.key.exp()) else {
                continue;
            };
            let off = case.scaled(bin.mix);
            let end = if off < 0.0 {
                bin.ends[0] * factors[0]
            } else {
                bin.ends[1] * factors[1]
            };
            let end = end.hypot(case.scaled_noise(bin.mix));
            sums[0] += case.weight * f32::from(u8::from(off.abs() <= end));
            sums[1] += case.weight;
        }
        sums[0] / sums[1].max(1e-9)
    };
    let enough = |factor: &&f32| held(bins, near, [**factor, 1.0]) >= NEAR_HOLDS;
    let lower = LOWER.iter().find(enough).map_or(LOWER[7], |factor| *factor);
    let enough = |factor: &&f32| held(bins, f32::INFINITY, [lower, **factor]) >= HOLDS;
    let upper = UPPER.iter().find(enough).map_or(1.0, |factor| *factor);
    let upper = if lower == 1.0 { 1.0 } else { upper };
    for bin in bins {
        bin.ends[0] *= lower;
        bin.ends[1] *= upper;
    }
}

/// The weighted 80 % quantile of errors, without the part that is the measured times' own.
fn width(cases: &[Case], mix: Mix) -> f32 {
    let quantile = |of: &dyn Fn(&Case) -> f32| {
        let errors = cases.iter().map(|case| (of(case), case.weight));
        weighted_quantile(errors.collect(), 0.8).unwrap_or(1.0)
    };
    let all = quantile(&|case| case.scaled(mix).abs());
    let own = quantile(&|case| {
        let rest = case.scaled(mix).powi(2) - case.scaled_noise(mix).powi(2);
        rest.max(0.0).sqrt()
    });
    let least = (UNSURE / (cases.len() as f32).sqrt()).sqrt().min(1.0);
    own.max(least * all).max(1e-4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_errs_less_is_chosen_and_its_errors_are_the_bar() {
        let held: Vec<HeldOut> = (0..400u32)
            .map(|i| {
                let off = (i % 20) as f32 / 100.0 - 0.1;
                HeldOut {
                    measured: off,
                    noise: 0.0,
                    weight: 1.0,
                    coords: [if i % 3 == 0 { 0.6 } else { -0.5 }; 3],
                    labels: Some((0.0, 0.1)),
                    odd: false,
                }
            })
            .collect();
        let keys = [vec![0.0; 50], vec![], vec![]];
        let calibration = Calibration::new(Stated::default(), &held, 0, true, &keys);
        let (share, [low, high]) = calibration.combine([0.5f32.exp(), 1.0], 0.1);
        assert!(share < 0.1, "{share}");
        let inside = held
            .iter()
            .filter(|h| -low <= h.measured && h.measured <= high);
        let part = inside.count() as f32 / held.len() as f32;
        assert!((0.74..=0.9).contains(&part), "{part}");
    }
}
