//! Measured pairs that a second fit leaves out, and what it predicts for them. Its coordinates are
//! kept from fit to fit, apart from the first one's, so they do not remember these pairs.

use crate::{
    NodeId,
    axes::Axes,
    coords::{Coords, Pair},
    hash,
    labels::LabelFit,
    neighbours,
    noise::Noise,
    odd::Labels,
    smooth::{self, Sample},
    sparse::Sparse,
};

/// One pair in so many is held out.
pub(crate) const PARTS: u64 = 10;
/// With fewer pairs, several parts are held out in turn.
const FEW_PAIRS: usize = 4_000;
pub(crate) const FEW_FOLDS: usize = 6;
/// So many pairs that were held out are enough.
const MOST: usize = 8_000;
/// A node with fewer other pairs is not predicted.
const FEWEST_LEFT: u32 = 2;
/// From so many pairs on, their mean error is known: of so many ranges of times.
const FEWEST_HELD: usize = 25;
const RANGES: usize = 4;
/// The bounds of an error in the mean, and of the mean.
const MOST_MISSED: f32 = 1.0;
const LEAST_MISSED: f32 = 1e-3;

/// A pair that was held out; all times are logarithms of multiples of the fit's scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldOut {
    pub measured: f32,
    /// Half an 80 % bar of the measured time.
    pub noise: f32,
    /// For how many pairs that are not measured it stands.
    pub weight: f32,
    /// Predicted by coordinates, for each of `smooth::SHRINKS`.
    pub coords: [f32; 3],
    /// Predicted by labels, and their error.
    pub labels: Option<(f32, f32)>,
    /// A node is odd; labels then do not count.
    pub odd: bool,
}

pub(crate) fn folds(pairs: usize) -> usize {
    match pairs < FEW_PAIRS {
        true => FEW_FOLDS,
        false => 1,
    }
}

/// Whether a pair of nodes is held out in a fold; the same for all fits.
pub(crate) fn is_held(a: u64, b: u64, fold: usize) -> bool {
    hash::pair(a.min(b) ^ 0x0dd, a.max(b)) % PARTS == fold as u64
}

/// A fit to the pairs `kept`, for the pairs `held`.
pub(crate) struct Fold<'a> {
    /// Microseconds a unit.
    pub scale: f32,
    pub coords: &'a Coords,
    pub kept: &'a [Pair],
    pub held: &'a [Pair],
    /// The first are fitted to `kept`, the second to all: bars are in errors that these state.
    pub labels: [&'a LabelFit; 2],
    /// Nodes have labels.
    pub labelled: bool,
    pub noise: &'a Noise,
}

impl Fold<'_> {
    /// Appends what the fit predicts.
    pub fn predict(&self, out: &mut Vec<HeldOut>) {
        let &Self {
            scale,
            coords,
            kept,
            held,
            labels,
            labelled,
            noise,
        } = self;
        let n = coords.points.len();
        let mut degrees = vec![0u32; n];
        for pair in kept {
            degrees[pair.a as usize] += 1;
            degrees[pair.b as usize] += 1;
        }
        let measured: Vec<bool> = degrees.iter().map(|degree| *degree > 0).collect();
        let live = measured.iter().filter(|m| **m).count();
        let usual = 2.0 * kept.len() as f32 / live.max(1) as f32;
        let axes = Axes::new(coords, kept, Labels::new(labelled, labels[0], scale));
        let cells = kept.iter().map(|p| {
            let fitted = axes.distance(p.a as usize, p.b as usize).ln();
            (p.a, p.b, Sample::new(p, fitted))
        });
        let mut samples = Sparse::new(n, cells);
        let kernels = neighbours::kernels(&axes, &samples, &measured);
        smooth::second_step(&mut samples, &kernels, smooth::NARROW, n);
        let stride = held.len().div_ceil(MOST).max(1);
        let held = held.chunk_by(|p, q| p.a == q.a).step_by(stride);
        let mut guesses = [Vec::new(), Vec::new()];
        for pairs in held {
            let from = pairs[0].a as usize;
            let to: Vec<u32> = pairs.iter().map(|pair| pair.b).collect();
            let ids: Vec<NodeId> = to.iter().map(|to| NodeId(*to)).collect();
            let corrections = smooth::corrections_of(&samples, &kernels, from, &to, n);
            for (which, guesses) in guesses.iter_mut().enumerate() {
                guesses.clear();
                labels[which].row(NodeId(from as u32), &ids, guesses);
            }
            let [kept, all] = &guesses;
            let guesses = kept.iter().zip(all);
            for ((pair, corrections), (guess, all)) in pairs.iter().zip(corrections).zip(guesses) {
                let both = [pair.a, pair.b].map(|node| degrees[node as usize]);
                if both.iter().any(|degree| *degree < FEWEST_LEFT) {
                    continue;
                }
                let fitted = axes.distance(from, pair.b as usize).ln();
                let odd = axes.is_odd(from, pair.b as usize);
                out.push(HeldOut {
                    measured: pair.log,
                    noise: noise
                        .of_most(pair.log, pair.weight, pair.spread)
                        .unwrap_or(0.0),
                    weight: both
                        .map(|degree| (usual / degree as f32).min(1.0))
                        .iter()
                        .product(),
                    coords: corrections.map(|correction| fitted + correction),
                    odd,
                    labels: guess
                        .zip(*all)
                        .filter(|_| !odd)
                        .map(|(guess, all)| ((guess.micros / scale).ln(), all.error.max(1e-3))),
                });
            }
        }
    }
}

/// The error of predictions: the geometric mean of that of near pairs to that of far ones, because
/// near ones are measured more often. `None`: of too few pairs.
pub(crate) fn missed(held: &[HeldOut], predicted: impl Fn(&HeldOut) -> f32) -> Option<f32> {
    let off = |held: &HeldOut| (held.measured - predicted(held)).abs().min(MOST_MISSED);
    let mut held: Vec<&HeldOut> = held.iter().collect();
    held.sort_by(|a, b| a.measured.total_cmp(&b.measured));
    let logs = held.chunks(held.len().div_ceil(RANGES).max(1)).map(|held| {
        let sum: f32 = held.iter().map(|held| held.weight * off(held)).sum();
        let all: f32 = held.iter().map(|held| held.weight).sum();
        (sum / all.max(1e-9)).max(LEAST_MISSED).ln()
    });
    (held.len() >= FEWEST_HELD).then(|| (logs.sum::<f32>() / RANGES as f32).exp())
}

/// Of values with weights.
pub(crate) fn weighted_quantile(mut values: Vec<(f32, f32)>, part: f32) -> Option<f32> {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let all: f32 = values.iter().map(|v| v.1).sum();
    let mut sum = 0.0;
    let reached = values.iter().find(|v| {
        sum += v.1;
        sum >= part * all
    });
    reached.or(values.last()).map(|v| v.0)
}

pub(crate) fn quantile(mut values: Vec<f32>, part: f32) -> Option<f32> {
    let at = (part * values.len().checked_sub(1)? as f32) as usize;
    Some(*values.select_nth_unstable_by(at, f32::total_cmp).1)
}
