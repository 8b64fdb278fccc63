//! Corrections of coordinates by the mean residual of measured pairs with both ends near a pair's
//! ends (the Nadaraya-Watson estimate on both ends at once), first with a wide kernel, then with a
//! narrow one on the rest.

use crate::{coords::Pair, sparse::Sparse};

/// Residuals of the logarithm count no more than this.
const CLIP: f32 = 1.0;
/// Prior weight of "no correction", for each step: if measured pairs predict their neighbours
/// well, if only many together do, and for no correction.
pub(crate) const NARROW: Shrink = [0.03, 0.03];
pub(crate) const WIDE: Shrink = [1.0, f32::INFINITY];
const NONE: Shrink = [f32::INFINITY; 2];
pub(crate) const SHRINKS: [Shrink; 3] = [NARROW, WIDE, NONE];
pub(crate) type Shrink = [f32; 2];
/// The narrow one is left out when residuals exceed this part of those without correction.
/// Coordinates follow the samples, so the latter are too small; once near targets are found
/// PlanetLab's part is below 0.95, that of Seattle's noisy nodes above 1.04.
const WORSE: f32 = 1.03;
/// The upper bound of a residual in that comparison.
const MOST_MISSED: f32 = 0.5;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Logarithm of measured over the fit's scale.
    pub log: f32,
    /// The residuals after the coordinates, and after the first correction.
    pub left: [f32; 2],
    /// How many were measured.
    pub directions: f32,
    /// As a [`Pair`]'s.
    pub spread: Option<f32>,
}

impl Sample {
    pub fn new(pair: &Pair, fitted: f32) -> Self {
        Self {
            log: pair.log,
            left: [(pair.log - fitted).clamp(-CLIP, CLIP), 0.0],
            directions: pair.weight,
            spread: pair.spread,
        }
    }
}

/// Sums of weighted residuals and of weights, of both steps.
type Sums = [[f32; 2]; 2];

fn correction(sums: &Sums, shrink: Shrink) -> f32 {
    let step = |[sum, weight]: [f32; 2], shrink| sum / (weight.max(0.0) + shrink);
    (step(sums[0], shrink[0]) + step(sums[1], shrink[1])).clamp(-2.0 * CLIP, 2.0 * CLIP)
}

/// The evidence of pairs (l, m) for (from, m), with l near from.
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

/// The evidence for (from, to), with m near to.
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

pub(crate) fn second_step(
    samples: &mut Sparse<Sample>,
    kernels: &Sparse<[f32; 2]>,
    shrink: Shrink,
    nodes: usize,
) {
    let mut sums = vec![Sums::default(); nodes];
    for from in 0..nodes {
        evidence_from(samples, kernels, from, &mut sums);
        for (to, sample) in samples.row_mut(from) {
            let first = evidence_for(kernels, &sums, *to as usize)[0];
            sample.left[1] = sample.left[0] - first[0] / (first[1] + shrink[0]);
        }
    }
}

/// Chooses one of [`SHRINKS`] by predicting each measured pair of `rows` from the others.
pub(crate) fn choose(
    samples: &Sparse<Sample>,
    kernels: &Sparse<[f32; 2]>,
    rows: &[usize],
    nodes: usize,
) -> usize {
    let missed = |shrink: Shrink| -> f32 {
        let pairs = rows
            .iter()
            .flat_map(|&from| without_own(samples, kernels, shrink, from, nodes));
        let residuals =
            pairs.map(|(_, sample, predicted)| (sample.left[0] - predicted).abs().min(MOST_MISSED));
        residuals.sum()
    };
    match missed(NARROW) > WORSE * missed(NONE) {
        true => 1,
        false => 0,
    }
}

/// The logarithms by which a node's distances to all are corrected.
pub(crate) fn corrections(
    samples: &Sparse<Sample>,
    kernels: &Sparse<[f32; 2]>,
    shrink: Shrink,
    from: usize,
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
    all.into_iter().map(move |sums| correction(&sums, shrink))
}

/// [`corrections`] of some pairs that are not measured, for each of [`SHRINKS`].
pub(crate) fn corrections_of<'a>(
    samples: &Sparse<Sample>,
    kernels: &'a Sparse<[f32; 2]>,
    from: usize,
    to: &'a [u32],
    nodes: usize,
) -> impl Iterator<Item = [f32; 3]> + 'a {
    let mut sums = vec![Sums::default(); nodes];
    evidence_from(samples, kernels, from, &mut sums);
    to.iter().map(move |&to| {
        let evidence = evidence_for(kernels, &sums, to as usize);
        SHRINKS.map(|shrink| correction(&evidence, shrink))
    })
}

/// [`corrections`] of a node's measured pairs, each as if it were not measured.
pub(crate) fn without_own<'a>(
    samples: &'a Sparse<Sample>,
    kernels: &'a Sparse<[f32; 2]>,
    shrink: Shrink,
    from: usize,
    nodes: usize,
) -> impl Iterator<Item = (u32, Sample, f32)> + 'a {
    let mut sums = vec![Sums::default(); nodes];
    evidence_from(samples, kernels, from, &mut sums);
    samples.row(from).iter().map(move |&(to, sample)| {
        let mut evidence = evidence_for(kernels, &sums, to as usize);
        let near = kernels.get(from, to).unwrap_or_default();
        for step in 0..2 {
            // As (from, to), and as (to, from).
            let own = 1.0 + near[step] * near[step];
            evidence[step][0] -= own * sample.left[step];
            evidence[step][1] -= own;
        }
        (to, sample, correction(&evidence, shrink))
    })
}
