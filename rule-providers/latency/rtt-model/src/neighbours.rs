//! The kernels of near nodes, stored sparsely: the weights of a measured pair's residual in the
//! corrections of pairs near it.

use crate::{axes::Axes, smooth::Sample, sparse::Sparse, tuning::TUNING};

/// The least number of distances from which the distance of the nearest nodes is bounded, if there
/// are as many.
const SAMPLED_NODES: usize = 300;

/// Returns the wide and the narrow kernel of near nodes. Kernels are symmetric and 1 for a node
/// itself; two nodes have kernels only if each is among the nearest of the other.
pub(crate) fn kernels(axes: &Axes, measured: &[bool]) -> Sparse<[f32; 2]> {
    let n = measured.len();
    let live: Vec<u32> = (0..n as u32).filter(|&i| measured[i as usize]).collect();
    let rank = TUNING
        .neighbour_scale_rank
        .min((live.len() / 40).max(4))
        .min(live.len().saturating_sub(2));
    // The nearest nodes of each node, with their distances.
    let mut lists: Vec<Vec<(u32, f32)>> = vec![Vec::new(); n];
    let mut scales = vec![0.0f32; n];
    let mut row = vec![0.0f32; n];
    let mut spare = Vec::new();
    let dead: Vec<usize> = (0..n).filter(|&i| !measured[i]).collect();
    let mut near: Vec<(f32, u32)> = Vec::with_capacity(n);
    for &from in &live {
        let i = from as usize;
        axes.unlikeness(i, &mut row);
        row[i] = f32::INFINITY;
        for &j in &dead {
            row[j] = f32::INFINITY;
        }
        let bound = far_enough(&row, &mut spare);
        near.clear();
        let nodes = row.iter().zip(0u32..).map(|(distance, j)| (*distance, j));
        near.extend(nodes.filter(|e| e.0 <= bound));
        let order = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        if TUNING.neighbours < near.len() {
            near.select_nth_unstable_by(TUNING.neighbours, order);
            near.truncate(TUNING.neighbours);
        }
        near.retain(|e| e.0.is_finite());
        near.sort_unstable_by(order);
        scales[i] = near.get(rank).map_or(0.0, |e| e.0);
        lists[i] = near
            .iter()
            .map(|&(distance, node)| (node, distance))
            .collect();
        lists[i].sort_unstable_by_key(|e| e.0);
    }
    let mut cells: Vec<(u32, u32, [f32; 2])> = Vec::new();
    for &i in &live {
        cells.push((i, i, [1.0; 2]));
        for &(j, distance) in lists[i as usize].iter().filter(|e| e.0 > i) {
            let other = &lists[j as usize];
            // Two nodes have kernels only if each lists the other.
            if other.binary_search_by_key(&i, |e| e.0).is_ok() {
                let scale = (scales[i as usize] * scales[j as usize]).sqrt() + 1e-9;
                let weight = |width: f32| (-distance / (scale * width)).exp();
                cells.push((i, j, TUNING.kernel_widths.map(weight)));
            }
        }
    }
    drop(lists);
    Sparse::new(n, cells.iter().copied())
}

/// Returns a distance within which more than `TUNING.neighbours` nodes lie, found from a sample of
/// the distances in `row`.
fn far_enough(row: &[f32], some: &mut Vec<f32>) -> f32 {
    some.clear();
    some.extend(row.iter().step_by((row.len() / SAMPLED_NODES).max(1)));
    if some.len() <= TUNING.neighbours {
        return f32::INFINITY;
    }
    *some
        .select_nth_unstable_by(TUNING.neighbours, f32::total_cmp)
        .1
}

/// Writes, for each node, how much its times differ from those of `node`: the sum of the absolute
/// differences of logarithms over the nodes that both measured, and the number of these nodes.
pub(crate) fn unlikeness(samples: &Sparse<Sample>, node: usize, out: &mut [[f32; 2]]) {
    out.fill([0.0; 2]);
    for &(l, first) in samples.row(node) {
        for &(j, second) in samples.row(l as usize) {
            let out = &mut out[j as usize];
            out[0] += (first.log - second.log).abs();
            out[1] += 1.0;
        }
    }
}
