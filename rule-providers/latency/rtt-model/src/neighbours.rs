//! Near nodes, sparsely: the kernels that weigh a measured pair's evidence for its neighbours.

use crate::{axes::Axes, smooth::Sample, sparse::Sparse};

const NEIGHBOURS: usize = 32;
/// So many nodes tell how far the nearest are.
const SOME: usize = 300;
/// A node's own scale is the distance to its neighbour of this rank.
const SCALE_RANK: usize = 12;
/// How fast a kernel falls with distance over scale, and with unlikeness.
const WIDTHS: [(f32, f32); 2] = [(0.35, 0.0), (0.15, 4.0)];
/// The weight of the mean unlikeness, in common targets.
const PRIOR: f32 = 0.3;

#[derive(Clone, Copy)]
struct Neighbour {
    node: u32,
    distance: f32,
    /// Sum and count of [`unlikeness`].
    unlike: [f32; 2],
}

/// Two kernels of two nodes, the wider first: symmetric, 1 for a node itself, only for a node's
/// nearest. Nearness is a pair's measured time, else the fitted one.
pub(crate) fn kernels(
    axes: &Axes,
    samples: &Sparse<Sample>,
    measured: &[bool],
) -> Sparse<[f32; 2]> {
    let n = measured.len();
    let live: Vec<u32> = (0..n as u32).filter(|&i| measured[i as usize]).collect();
    let rank = SCALE_RANK
        .min((live.len() / 40).max(4))
        .min(live.len().saturating_sub(2));
    let mut lists: Vec<Vec<Neighbour>> = vec![Vec::new(); n];
    let mut scales = vec![0.0f32; n];
    let mut row = vec![0.0f32; n];
    let mut spare = Vec::new();
    let dead: Vec<usize> = (0..n).filter(|&i| !measured[i]).collect();
    let mut unlike = vec![[0.0f32; 2]; n];
    let mut all = [0.0f64; 2];
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
        if NEIGHBOURS < near.len() {
            near.select_nth_unstable_by(NEIGHBOURS, order);
            near.truncate(NEIGHBOURS);
        }
        near.retain(|e| e.0.is_finite());
        near.sort_unstable_by(order);
        scales[i] = near.get(rank).map_or(0.0, |e| e.0);
        let [sum, count] = unlikeness(samples, i, &mut unlike);
        all[0] += f64::from(sum);
        all[1] += f64::from(count);
        let neighbour = |&(distance, node): &(f32, u32)| Neighbour {
            node,
            distance,
            unlike: unlike[node as usize],
        };
        lists[i] = near.iter().map(neighbour).collect();
        lists[i].sort_unstable_by_key(|e| e.node);
    }
    let mean = (all[0] / all[1].max(1.0)) as f32;
    let mut cells: Vec<(u32, u32, [f32; 2])> = Vec::new();
    for &i in &live {
        cells.push((i, i, [1.0; 2]));
        for near in lists[i as usize].iter().filter(|e| e.node > i) {
            let j = near.node;
            let other = &lists[j as usize];
            // Only where each lists the other.
            if other.binary_search_by_key(&i, |e| e.node).is_err() {
                continue;
            }
            let scale = (scales[i as usize] * scales[j as usize]).sqrt() + 1e-9;
            let [sum, count] = near.unlike;
            let unlike = (sum + PRIOR * mean) / (count + PRIOR);
            let weight =
                |(width, by): (f32, f32)| (-near.distance / (scale * width) - by * unlike).exp();
            cells.push((i, j, WIDTHS.map(weight)));
        }
    }
    drop(lists);
    Sparse::new(n, cells.iter().copied())
}

/// A distance within which more than [`NEIGHBOURS`] are, by some of all.
fn far_enough(row: &[f32], some: &mut Vec<f32>) -> f32 {
    some.clear();
    some.extend(row.iter().step_by((row.len() / SOME).max(1)));
    match NEIGHBOURS < some.len() {
        true => *some.select_nth_unstable_by(NEIGHBOURS, f32::total_cmp).1,
        false => f32::INFINITY,
    }
}

/// How unlike a node each other one is: over the nodes that both measured, the sum of the
/// differences of their times' logarithms, and their number. Returns the sums of both.
pub(crate) fn unlikeness(samples: &Sparse<Sample>, node: usize, out: &mut [[f32; 2]]) -> [f32; 2] {
    out.fill([0.0; 2]);
    let mut all = [0.0; 2];
    for &(l, first) in samples.row(node) {
        for &(j, second) in samples.row(l as usize) {
            let out = &mut out[j as usize];
            let apart = (first.log - second.log).abs();
            out[0] += apart;
            out[1] += 1.0;
            all[0] += apart;
            all[1] += 1.0;
        }
    }
    all
}
