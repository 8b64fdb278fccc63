//! Corrections of coordinates by the mean residual of measured pairs with both ends near a pair's
//! ends (the Nadaraya-Watson estimate on both ends at once). A wide kernel comes first, then a
//! narrow one on the residuals that the wide one leaves.

use crate::{coords::Axes, network::Pair, sparse::Sparse, tuning};

/// A measured pair in a fit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// The logarithm of the measured time over the fit's scale.
    pub log: f32,
    /// The residuals after the coordinates and after the first correction, in logarithm.
    pub left: [f32; 2],
    /// Half an 80 % error bar of the logarithm; `None` if unknown.
    pub noise: Option<f32>,
}

/// The sums of weighted residuals and of weights, for the wide and the narrow kernel.
type Sums = [[f32; 2]; 2];

fn add(to: &mut Sums, weights: [f32; 2], sums: Sums) {
    for step in 0..2 {
        to[step][0] += weights[step] * sums[step][0];
        to[step][1] += weights[step] * sums[step][1];
    }
}

fn mean([sum, weight]: [f32; 2], prior: f32) -> f32 {
    sum / (weight + prior)
}

/// Returns the correction of a pair, in logarithm. If samples are noisy, only many residuals
/// together count, and only with the wide kernel.
fn correction(sums: Sums, noisy: bool) -> f32 {
    let prior = tuning::CORRECTION_PRIORS[usize::from(noisy)];
    let narrow = if noisy { 0.0 } else { mean(sums[1], prior) };
    (mean(sums[0], prior) + narrow).clamp(-2.0 * tuning::MAX_ERROR, 2.0 * tuning::MAX_ERROR)
}

/// The measured pairs with their residuals, and the weights of a residual in the corrections of
/// pairs near it.
#[derive(Clone, Debug)]
pub(crate) struct Corrections {
    pub samples: Sparse<Sample>,
    /// The wide and the narrow kernel of near nodes.
    kernels: Sparse<[f32; 2]>,
}

impl Corrections {
    pub fn new(axes: &Axes, measured: &[bool], pairs: &[Pair]) -> Self {
        let cells = pairs.iter().map(|pair| {
            let fitted = axes.distance(pair.a as usize, pair.b as usize).ln();
            let residual = (pair.log - fitted).clamp(-tuning::MAX_ERROR, tuning::MAX_ERROR);
            let sample = Sample {
                log: pair.log,
                left: [residual, 0.0],
                noise: pair.noise,
            };
            (pair.a, pair.b, sample)
        });
        let samples = Sparse::new(measured.len(), cells);
        let kernels = kernels(axes, measured);
        let mut new = Self { samples, kernels };
        for from in 0..measured.len() {
            let sums = new.evidence(from);
            for (to, sample) in new.samples.row_mut(from) {
                let [first, _] = evidence_for(&new.kernels, &sums, *to);
                sample.left[1] = sample.left[0] - mean(first, tuning::CORRECTION_PRIORS[0]);
            }
        }
        new
    }

    /// Returns, for each node m, the sums over all measured pairs (l, m) with l near `from`.
    fn evidence(&self, from: usize) -> Vec<Sums> {
        let mut out = vec![Sums::default(); self.samples.rows()];
        for &(near, weights) in self.kernels.row(from) {
            for &(to, sample) in self.samples.row(near as usize) {
                let residuals = sample.left.map(|left| [left, 1.0]);
                add(&mut out[to as usize], weights, residuals);
            }
        }
        out
    }

    /// Returns the corrections of the distances from a node to all nodes, in logarithm.
    pub fn all(&self, from: usize, noisy: bool) -> impl Iterator<Item = f32> {
        let heard = self.evidence(from);
        let mut all = vec![Sums::default(); heard.len()];
        for (near, sums) in heard.iter().enumerate().filter(|(_, h)| h[0][1] > 0.0) {
            for &(to, weights) in self.kernels.row(near) {
                add(&mut all[to as usize], weights, *sums);
            }
        }
        all.into_iter().map(move |sums| correction(sums, noisy))
    }

    /// Returns the corrections of the distances from a node to the nodes `to`: the usual ones and
    /// those of noisy samples.
    pub fn some(&self, from: usize, to: &[u32]) -> impl Iterator<Item = [f32; 2]> {
        let heard = self.evidence(from);
        to.iter().map(move |to| {
            let sums = evidence_for(&self.kernels, &heard, *to);
            [false, true].map(|noisy| correction(sums, noisy))
        })
    }

    /// Returns, for each node, how much its times differ from those of `node`: the mean absolute
    /// difference of logarithms over the nodes that both measured; 1 if there is no such node.
    pub fn unlikeness(&self, node: usize) -> impl Iterator<Item = f32> {
        let mut sums = vec![[0.0f32; 2]; self.samples.rows()];
        for &(common, first) in self.samples.row(node) {
            for &(other, second) in self.samples.row(common as usize) {
                let [sum, count] = &mut sums[other as usize];
                *sum += (first.log - second.log).abs();
                *count += 1.0;
            }
        }
        sums.into_iter()
            .map(|[sum, count]| if count > 0.0 { sum / count } else { 1.0 })
    }
}

/// Returns the total of the sums `heard` over all nodes near `to`.
fn evidence_for(kernels: &Sparse<[f32; 2]>, heard: &[Sums], to: u32) -> Sums {
    let mut sums = Sums::default();
    for &(near, weights) in kernels.row(to as usize) {
        add(&mut sums, weights, heard[near as usize]);
    }
    sums
}

/// Returns the wide and the narrow kernel of near nodes. Kernels are symmetric and 1 for a node
/// itself; two nodes have kernels only if each is among the nearest of the other.
fn kernels(axes: &Axes, measured: &[bool]) -> Sparse<[f32; 2]> {
    let n = measured.len();
    let (live, dead): (Vec<usize>, Vec<usize>) = (0..n).partition(|i| measured[*i]);
    let rank = tuning::NEIGHBOUR_SCALE_RANK
        .min((live.len() / 40).max(4))
        .min(live.len().saturating_sub(2));
    // The nearest nodes of each node by their numbers, with their distances.
    let mut lists: Vec<Vec<(u32, f32)>> = vec![Vec::new(); n];
    let mut scales = vec![0.0f32; n];
    for &i in &live {
        let mut row = axes.unlikeness(i);
        row[i] = f32::INFINITY;
        for j in &dead {
            row[*j] = f32::INFINITY;
        }
        let near = nearest(&row);
        scales[i] = near.get(rank).map_or(0.0, |e| e.0);
        lists[i] = near.iter().map(|e| (e.1, e.0)).collect();
        lists[i].sort_unstable_by_key(|e| e.0);
    }
    let mut cells: Vec<(u32, u32, [f32; 2])> = Vec::new();
    for &i in &live {
        let (own, scale) = (i as u32, scales[i]);
        cells.push((own, own, [1.0; 2]));
        for &(j, distance) in lists[i].iter().filter(|e| e.0 > own) {
            if lists[j as usize]
                .binary_search_by_key(&own, |e| e.0)
                .is_ok()
            {
                let scale = (scale * scales[j as usize]).sqrt() + 1e-9;
                let weight = |width: f32| (-distance / (scale * width)).exp();
                cells.push((own, j, tuning::KERNEL_WIDTHS.map(weight)));
            }
        }
    }
    drop(lists);
    Sparse::new(n, cells.iter().copied())
}

/// Returns the nearest nodes by their distances in `row`, nearest first.
fn nearest(row: &[f32]) -> Vec<(f32, u32)> {
    // Enough nodes lie within the distance of the last of the nearest among every nth node.
    let last = tuning::NEIGHBOURS;
    let some = row.iter().step_by((row.len() / 300).max(1));
    let mut some: Vec<f32> = some.copied().collect();
    let mut bound = f32::INFINITY;
    if last < some.len() {
        bound = *some.select_nth_unstable_by(last, f32::total_cmp).1;
    }
    let near = row.iter().copied().zip(0..);
    let near = near.filter(|(distance, _)| *distance <= bound && distance.is_finite());
    let mut near: Vec<(f32, u32)> = near.collect();
    let order = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    if last < near.len() {
        near.select_nth_unstable_by(last, order);
        near.truncate(last);
    }
    near.sort_unstable_by(order);
    near
}
