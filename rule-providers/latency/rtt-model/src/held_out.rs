//! Held-out pairs: measured pairs that a second fit leaves out, and its predictions for them. The
//! coordinates of the second fit are stored from fit to fit, separate from those of the first fit,
//! so they do not remember these pairs.

use crate::{
    calibration::HeldOut,
    fit::Fit,
    hash,
    network::{Node, Pair},
    tuning,
};

/// Splits the pairs into those that a fold holds out, which are the same in all fits, and the rest.
pub(crate) fn split(nodes: &[Node], pairs: &[Pair], fold: usize) -> (Vec<Pair>, Vec<Pair>) {
    pairs.iter().partition(|pair| {
        let [a, b] = [pair.a, pair.b].map(|node| nodes[node as usize].key);
        hash::pair(a.min(b) ^ 0x0dd, a.max(b)) % tuning::HELD_OUT_PARTS == fold as u64
    })
}

/// Appends to `out` the predictions for the pairs `held` by a fit of the pairs `kept`. With more than
/// 8,000 pairs, only those of some nodes are predicted, and none of nodes with fewer than two other
/// pairs.
pub(crate) fn predict(fit: &Fit, kept: &[Pair], held: &[Pair], out: &mut Vec<HeldOut>) {
    let mut degrees = vec![0u32; fit.measured.len()];
    for node in kept.iter().flat_map(|pair| [pair.a, pair.b]) {
        degrees[node as usize] += 1;
    }
    let live = degrees.iter().filter(|degree| **degree > 0).count();
    let usual = 2.0 * kept.len() as f32 / live.max(1) as f32;
    let stride = held.len().div_ceil(8_000).max(1);
    for pairs in held.chunk_by(|p, q| p.a == q.a).step_by(stride) {
        let from = pairs[0].a as usize;
        let to: Vec<u32> = pairs.iter().map(|pair| pair.b).collect();
        for (pair, (predicted, coords_if_noisy)) in pairs.iter().zip(fit.some(from, &to)) {
            let both = [pair.a, pair.b].map(|node| degrees[node as usize]);
            if both.iter().all(|degree| *degree >= 2) {
                let weights = both.map(|degree| (usual / degree as f32).min(1.0));
                out.push(HeldOut {
                    measured: pair.log,
                    noise: pair.noise.unwrap_or(0.0),
                    weight: weights.iter().product(),
                    predicted,
                    coords_if_noisy,
                });
            }
        }
    }
}

/// Returns whether samples are noisy, and if so replaces the predictions by those with the
/// corrections of noisy samples.
pub(crate) fn is_noisy(held: &mut [HeldOut]) -> bool {
    let error = |of: fn(&HeldOut) -> f32| -> f32 {
        let off = held.iter().map(|held| (held.measured - of(held)).abs());
        off.map(|off| off.min(0.5)).sum()
    };
    let noisy = error(|held| held.predicted.coords) > error(|held| held.coords_if_noisy);
    for held in held.iter_mut().filter(|_| noisy) {
        held.predicted.coords = held.coords_if_noisy;
    }
    noisy
}

/// Returns the mean error of predictions by coordinates, in logarithm: the geometric mean over
/// four ranges from near to far pairs, because near pairs are measured more often. `None` if there are
/// too few pairs.
pub(crate) fn mean_error(held: &[HeldOut]) -> Option<f32> {
    let mut held: Vec<&HeldOut> = held.iter().collect();
    held.sort_by(|a, b| a.measured.total_cmp(&b.measured));
    let ranges = held.chunks(held.len().div_ceil(4).max(1));
    let logs = ranges.map(|held| {
        let off = |held: &HeldOut| (held.measured - held.predicted.coords).abs();
        let errors = held
            .iter()
            .map(|held| held.weight * off(held).min(tuning::MAX_ERROR));
        let all: f32 = held.iter().map(|held| held.weight).sum();
        (errors.sum::<f32>() / all.max(1e-9)).max(1e-3).ln()
    });
    (held.len() >= tuning::MIN_PAIRS).then(|| (logs.sum::<f32>() / 4.0).exp())
}
