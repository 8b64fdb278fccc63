//! The coordinates of nodes: each has a point in twelve dimensions and a height. The fitted time of
//! two nodes is the distance between their points plus both heights (Dabek et al., "Vivaldi",
//! SIGCOMM 2004). All pairs are fitted at once as in GNP (Ng & Zhang, INFOCOM 2002), by Adam (Kingma
//! & Ba, ICLR 2015) on the Huber loss of log(fitted / measured), which bounds the pull of a bad
//! sample.

use crate::{hash::Random, network::Pair, tuning};

/// The number of dimensions of a point.
const DIMENSIONS: usize = 12;
/// The index of the height's logarithm in a place.
pub(crate) const HEIGHT: usize = DIMENSIONS;
/// The number of partial sums that a processor adds at once.
const SIMD_LANES: usize = 4;

/// The coordinates of a node: those of its point, and the logarithm of its height.
pub(crate) type Place = [f32; DIMENSIONS + 1];
type Point = [f32; DIMENSIONS];

/// Returns a random place for the node with this key.
pub(crate) fn random_place(key: u64, seed: u64) -> Place {
    let mut random = Random::new(key ^ seed.rotate_left(17));
    let mut place = Place::default();
    place[HEIGHT] = tuning::FIRST_HEIGHT.ln();
    place[..HEIGHT].fill_with(|| tuning::FIRST_SPREAD * random.normal());
    place
}

/// Moves each node that was not placed to the point of the nearest placed node in its pairs.
pub(crate) fn settle(places: &mut [Place], pairs: &[Pair], placed: impl Fn(u32) -> bool) {
    let mut nearest = vec![(f32::INFINITY, 0); places.len()];
    for pair in pairs {
        for (i, j) in [(pair.a, pair.b), (pair.b, pair.a)] {
            if pair.log < nearest[i as usize].0 && !placed(i) && placed(j) {
                nearest[i as usize] = (pair.log, j as usize);
            }
        }
    }
    for (i, (_, j)) in (0..)
        .zip(nearest)
        .filter(|(_, nearest)| nearest.0.is_finite())
    {
        let point = places[j];
        places[i][..HEIGHT].copy_from_slice(&point[..HEIGHT]);
    }
}

/// Moves all nodes so that their distances approach the pairs' measured times: in so many rounds,
/// from the first to the last size of a step. A pair's weight is its time to the power of
/// `time_weight`; a residual beyond `max_residual` pulls no harder than that.
pub(crate) fn descend(
    places: &mut [Place],
    pairs: &[Pair],
    rounds: usize,
    [first, last]: [f32; 2],
    time_weight: f32,
    max_residual: f32,
) {
    let links = pairs.iter().map(|pair| Link {
        a: pair.a,
        b: pair.b,
        inverse: (-pair.log).exp(),
        weight: (time_weight * pair.log).exp().min(tuning::MAX_PAIR_WEIGHT) * pair.weight,
    });
    let links: Vec<Link> = links.collect();
    // Apart, points and heights are added faster.
    let point = |place: &Place| std::array::from_fn(|d| place[d]);
    let mut points: Vec<Point> = places.iter().map(point).collect();
    let mut logs: Vec<f32> = places.iter().map(|place| place[HEIGHT]).collect();
    let (mut pull, mut lift) = (vec![[0.0; DIMENSIONS]; logs.len()], logs.clone());
    let mut of_points = [(); 2].map(|()| vec![0.0; DIMENSIONS * logs.len()]);
    let mut of_heights = [(); 2].map(|()| vec![0.0; logs.len()]);
    let mut decay = [1.0f32; 2];
    for round in 0..rounds {
        gradient(&points, &logs, &links, max_residual, &mut pull, &mut lift);
        let rate = first * (last / first).powf(round as f32 / rounds as f32);
        decay = [decay[0] * 0.9, decay[1] * 0.99];
        let scale = decay.map(|decay| 1.0 / (1.0 - decay));
        let step = |at: &mut [f32], slopes: &[f32], [means, squares]: &mut [Vec<f32>; 2]| {
            let moments = means.iter_mut().zip(squares);
            for ((at, slope), (mean, square)) in at.iter_mut().zip(slopes).zip(moments) {
                *mean += 0.1 * (slope - *mean);
                *square += 0.01 * (slope * slope - *square);
                *at -= rate * *mean * scale[0] / ((*square * scale[1]).sqrt() + 1e-12);
            }
        };
        let flat = points.as_flattened_mut();
        step(flat, pull.as_flattened(), &mut of_points);
        step(&mut logs, &lift, &mut of_heights);
        for log in &mut logs {
            *log = log.clamp(-20.0, 5.0);
        }
    }
    for ((place, point), log) in places.iter_mut().zip(points).zip(logs) {
        place[..HEIGHT].copy_from_slice(&point);
        place[HEIGHT] = log;
    }
}

/// The part of a pair that the gradient reads.
struct Link {
    a: u32,
    b: u32,
    /// The inverse of the measured time.
    inverse: f32,
    weight: f32,
}

/// Writes the slopes of the loss by points and by the logarithms of heights.
fn gradient(
    points: &[Point],
    logs: &[f32],
    links: &[Link],
    max_residual: f32,
    pull: &mut [Point],
    lift: &mut [f32],
) {
    let [least, most] = [-max_residual, max_residual].map(f32::exp);
    let heights: Vec<f32> = logs.iter().map(|log| log.exp()).collect();
    for (pull, point) in pull.iter_mut().zip(points) {
        *pull = point.map(|x| tuning::RIDGE * x);
    }
    lift.fill(0.0);
    for link in links {
        let (a, b) = (link.a as usize, link.b as usize);
        let (x, y) = (&points[a], &points[b]);
        let mut apart = [0.0f32; DIMENSIONS];
        let mut squares = [1e-8 / SIMD_LANES as f32; SIMD_LANES];
        for d in 0..DIMENSIONS {
            apart[d] = x[d] - y[d];
            squares[d % SIMD_LANES] += apart[d] * apart[d];
        }
        let length = squares.iter().sum::<f32>().sqrt();
        let fitted = length + heights[a] + heights[b];
        let off = log_near_one((fitted * link.inverse).clamp(least, most));
        let along = link.weight * off / (fitted * length);
        for d in 0..DIMENSIONS {
            pull[a][d] += along * apart[d];
            pull[b][d] -= along * apart[d];
        }
        let rise = along * length;
        lift[a] += rise;
        lift[b] += rise;
    }
    let first = tuning::FIRST_HEIGHT.ln();
    for ((lift, height), log) in lift.iter_mut().zip(heights).zip(logs) {
        *lift = *lift * height + tuning::HEIGHT_RIDGE * (log - first);
    }
}

/// Returns the logarithm of `x` if its absolute value is at most 0.5: 2 artanh((x - 1) / (x + 1)),
/// as a series.
fn log_near_one(x: f32) -> f32 {
    let t = (x - 1.0) / (x + 1.0);
    let square = t * t;
    2.0 * t * (1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square / 7.0)))
}

/// A copy of places for fast reads: one vector per axis, and heights instead of their logarithms.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    axes: Vec<Vec<f32>>,
    heights: Vec<f32>,
}

impl Axes {
    pub fn new(places: &[Option<Place>]) -> Self {
        let axis = |d: usize| {
            places
                .iter()
                .map(move |place| place.map_or(0.0, |place| place[d]))
        };
        Self {
            axes: (0..DIMENSIONS).map(|d| axis(d).collect()).collect(),
            heights: axis(HEIGHT).map(f32::exp).collect(),
        }
    }

    /// Returns the distance from `from` to every node.
    pub fn distances(&self, from: usize) -> Vec<f32> {
        self.lengths(from, |own, other| own + other)
    }

    /// Returns, for each node, an upper bound on the difference between its time and the time of
    /// `from` to any third node: the distance of their points plus the difference of their heights.
    /// Two nodes behind one slow line are alike, though far from each other.
    pub fn unlikeness(&self, from: usize) -> Vec<f32> {
        self.lengths(from, |own, other| (own - other).abs())
    }

    fn lengths(&self, from: usize, heights: impl Fn(f32, f32) -> f32) -> Vec<f32> {
        let mut out = vec![1e-8f32; self.heights.len()];
        for axis in &self.axes {
            let at = axis[from];
            for (out, x) in out.iter_mut().zip(axis) {
                *out += (x - at) * (x - at);
            }
        }
        for (out, other) in out.iter_mut().zip(&self.heights) {
            *out = out.sqrt() + heights(self.heights[from], *other);
        }
        out
    }

    /// Returns the distance between two nodes.
    pub fn distance(&self, a: usize, b: usize) -> f32 {
        let apart = self.axes.iter().map(|axis| (axis[a] - axis[b]).powi(2));
        (1e-8 + apart.sum::<f32>()).sqrt() + (self.heights[a] + self.heights[b])
    }
}
