//! Corrections of coordinates by the mean residual of measured pairs with both ends near a pair's
//! ends (the Nadaraya-Watson estimate on both ends at once). A wide kernel comes first, then a
//! narrow one on the residuals that the wide one leaves.

use crate::{coords::Pair, sparse::Sparse, tuning::TUNING};

/// The upper bound of a residual's absolute value, in logarithm.
const MAX_RESIDUAL: f32 = 1.0;

/// A measured pair in a fit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// The logarithm of the measured time over the fit's scale.
    pub log: f32,
    /// The residuals after the coordinates and after the first correction, in logarithm.
    left: [f32; 2],
    /// Half an 80 % error bar of the logarithm; `None` if unknown.
    pub noise: Option<f32>,
}

impl Sample {
    /// Creates the sample of a pair whose distance has the logarithm `fitted`.
    pub fn new(pair: &Pair, fitted: f32) -> Self {
        Self {
            log: pair.log,
            left: [(pair.log - fitted).clamp(-MAX_RESIDUAL, MAX_RESIDUAL), 0.0],
            noise: pair.noise(),
        }
    }
}

/// The sums of weighted residuals and of weights, for the wide and the narrow kernel.
type Sums = [[f32; 2]; 2];

fn mean([sum, weight]: [f32; 2], prior: f32) -> f32 {
    sum / (weight + prior)
}

/// Returns the correction of a pair, in logarithm. If samples are noisy, only many residuals
/// together count, and only with the wide kernel.
fn correction(sums: &Sums, noisy: bool) -> f32 {
    let priors = if noisy {
        [TUNING.noisy_correction_prior, f32::INFINITY]
    } else {
        [TUNING.correction_prior; 2]
    };
    (mean(sums[0], priors[0]) + mean(sums[1], priors[1]))
        .clamp(-2.0 * MAX_RESIDUAL, 2.0 * MAX_RESIDUAL)
}

/// Writes, for each node m, the sums over all measured pairs (l, m) with l near `from`.
fn evidence_from(
    samples: &Sparse<Sample>,
    kernels: &Sparse<[f32; 2]>,
    from: usize,
    out: &mut [Sums],
) {
    out.fill(Sums::default());
    for &(l, weight) in kernels.row(from) {
        for &(m, sample) in samples.row(l as usize) {
            let out = &mut out[m as usize];
            for step in 0..2 {
                out[step][0] += weight[step] * sample.left[step];
                out[step][1] += weight[step];
            }
        }
    }
}

/// Returns the total of the sums `heard` over all nodes m near `to`.
fn evidence_for(kernels: &Sparse<[f32; 2]>, heard: &[Sums], to: usize) -> Sums {
    let mut sums = Sums::default();
    for &(m, weight) in kernels.row(to) {
        for step in 0..2 {
            sums[step][0] += weight[step] * heard[m as usize][step][0];
            sums[step][1] += weight[step] * heard[m as usize][step][1];
        }
    }
    sums
}

/// Sets each sample's second residual, which the wide kernel leaves for the narrow one.
pub(crate) fn second_step(samples: &mut Sparse<Sample>, kernels: &Sparse<[f32; 2]>, nodes: usize) {
    let mut sums = vec![Sums::default(); nodes];
    for from in 0..nodes {
        evidence_from(samples, kernels, from, &mut sums);
        for (to, sample) in samples.row_mut(from) {
            let [first, _] = evidence_for(kernels, &sums, *to as usize);
            sample.left[1] = sample.left[0] - mean(first, TUNING.correction_prior);
        }
    }
}

/// Returns the corrections of the distances from a node to all nodes, in logarithm.
pub(crate) fn corrections(
    samples: &Sparse<Sample>,
    kernels: &Sparse<[f32; 2]>,
    from: usize,
    noisy: bool,
    nodes: usize,
) -> impl Iterator<Item = f32> {
    let mut sums = vec![Sums::default(); nodes];
    evidence_from(samples, kernels, from, &mut sums);
    let mut all = vec![Sums::default(); nodes];
    for (m, heard) in sums.iter().enumerate().filter(|(_, h)| h[0][1] > 0.0) {
        for &(to, weight) in kernels.row(m) {
            let all = &mut all[to as usize];
            for step in 0..2 {
                all[step][0] += weight[step] * heard[step][0];
                all[step][1] += weight[step] * heard[step][1];
            }
        }
    }
    all.into_iter().map(move |sums| correction(&sums, noisy))
}

/// Returns the [`corrections`] of the distances from a node to the nodes `to`: the usual ones and
/// those of noisy samples.
pub(crate) fn corrections_of<'a>(
    samples: &Sparse<Sample>,
    kernels: &'a Sparse<[f32; 2]>,
    from: usize,
    to: &'a [u32],
    nodes: usize,
) -> impl Iterator<Item = [f32; 2]> + 'a {
    let mut sums = vec![Sums::default(); nodes];
    evidence_from(samples, kernels, from, &mut sums);
    to.iter().map(move |&to| {
        let evidence = evidence_for(kernels, &sums, to as usize);
        [false, true].map(|noisy| correction(&evidence, noisy))
    })
}
