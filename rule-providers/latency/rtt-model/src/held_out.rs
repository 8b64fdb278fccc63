//! Held-out pairs: measured pairs that a second fit leaves out, and its predictions for them. The
//! coordinates of the second fit are stored from fit to fit, separate from those of the first fit,
//! so they do not remember these pairs.

use crate::{
    calibration::HeldOut,
    coords::{Coords, Pair},
    hash,
    model::Node,
    predictor::Predictor,
    tuning::TUNING,
};

/// The number of held-out pairs in a fold above which only some nodes' pairs are predicted.
const MAX_PAIRS: usize = 8_000;
/// The least number of other pairs of a node whose held-out pairs are predicted.
const MIN_PAIRS_LEFT: u32 = 2;
/// The least number of held-out pairs with a mean error.
const MIN_PAIRS: usize = 25;
/// The number of ranges of measured times in the mean error.
const TIME_RANGES: usize = 4;
/// The upper bound of an error, in logarithm, when the usual corrections and those of noisy samples
/// are compared.
const MAX_ERROR_OF_CORRECTIONS: f32 = 0.5;
/// The upper bound of a pair's error in the mean error, in logarithm.
const MAX_ERROR: f32 = 1.0;
/// The lower bound of the mean error of a range, in logarithm.
const MIN_MEAN_ERROR: f32 = 1e-3;

/// Returns the number of parts of the pairs that are held out in turn.
pub(crate) fn folds(pairs: usize) -> usize {
    if pairs < TUNING.held_out_few_pairs {
        TUNING.held_out_folds
    } else {
        1
    }
}

/// Returns whether the pair of nodes with these keys is held out in a fold, which is the same for
/// all fits.
fn is_held(a: u64, b: u64, fold: usize) -> bool {
    hash::pair(a.min(b) ^ 0x0dd, a.max(b)) % TUNING.held_out_parts == fold as u64
}

/// Splits the pairs into those that a fold holds out and the rest.
pub(crate) fn split(nodes: &[Node], pairs: &[Pair], fold: usize) -> (Vec<Pair>, Vec<Pair>) {
    let key = |node: u32| nodes[node as usize].key;
    pairs
        .iter()
        .partition(|pair| is_held(key(pair.a), key(pair.b), fold))
}

/// Appends to `out` the predictions for the pairs `held` by a fit of the pairs `kept`.
pub(crate) fn predict(
    nodes: &[Node],
    coords: &Coords,
    kept: &[Pair],
    held: &[Pair],
    out: &mut Vec<HeldOut>,
) {
    let mut degrees = vec![0u32; nodes.len()];
    for pair in kept {
        degrees[pair.a as usize] += 1;
        degrees[pair.b as usize] += 1;
    }
    let live = degrees.iter().filter(|degree| **degree > 0).count();
    let usual = 2.0 * kept.len() as f32 / live.max(1) as f32;
    let predictor = Predictor::new(nodes, coords, kept);
    let stride = held.len().div_ceil(MAX_PAIRS).max(1);
    for pairs in held.chunk_by(|p, q| p.a == q.a).step_by(stride) {
        let from = pairs[0].a as usize;
        let to: Vec<u32> = pairs.iter().map(|pair| pair.b).collect();
        for (pair, predicted) in pairs.iter().zip(predictor.some(from, &to)) {
            let both = [pair.a, pair.b].map(|node| degrees[node as usize]);
            if both.iter().any(|degree| *degree < MIN_PAIRS_LEFT) {
                continue;
            }
            let weights = both.map(|degree| (usual / degree as f32).min(1.0));
            out.push(HeldOut {
                measured: pair.log,
                noise: pair.noise().unwrap_or(0.0),
                weight: weights.iter().product(),
                coords: predicted.coords[0],
                coords_if_noisy: predicted.coords[1],
                labels: predicted.labels,
            });
        }
    }
}

/// Returns whether samples are noisy, and if so replaces the predictions by those with the
/// corrections of noisy samples.
pub(crate) fn is_noisy(held: &mut [HeldOut]) -> bool {
    let error = |of: fn(&HeldOut) -> f32| -> f32 {
        let off = held.iter().map(|held| (held.measured - of(held)).abs());
        off.map(|off| off.min(MAX_ERROR_OF_CORRECTIONS)).sum()
    };
    let noisy = error(|held| held.coords) > error(|held| held.coords_if_noisy);
    if noisy {
        for held in held {
            held.coords = held.coords_if_noisy;
        }
    }
    noisy
}

/// Returns the mean error of predictions by coordinates, in logarithm: the geometric mean over the
/// ranges from near to far pairs, because near pairs are measured more often. `None` if there are
/// too few pairs.
pub(crate) fn mean_error(held: &[HeldOut]) -> Option<f32> {
    let mut held: Vec<&HeldOut> = held.iter().collect();
    held.sort_by(|a, b| a.measured.total_cmp(&b.measured));
    let logs = held
        .chunks(held.len().div_ceil(TIME_RANGES).max(1))
        .map(|held| {
            let off = |held: &HeldOut| (held.measured - held.coords).abs().min(MAX_ERROR);
            let sum: f32 = held.iter().map(|held| held.weight * off(held)).sum();
            let all: f32 = held.iter().map(|held| held.weight).sum();
            (sum / all.max(1e-9)).max(MIN_MEAN_ERROR).ln()
        });
    (held.len() >= MIN_PAIRS).then(|| (logs.sum::<f32>() / TIME_RANGES as f32).exp())
}
