//! The coordinates of nodes: each has a point in twelve dimensions and a height. The fitted time of
//! two nodes is the distance between their points plus both heights (Dabek et al., "Vivaldi",
//! SIGCOMM 2004). All pairs are fitted at once as in GNP (Ng & Zhang, INFOCOM 2002), by Adam (Kingma
//! & Ba, ICLR 2015) on the Huber loss of log(fitted / measured), which bounds the pull of a bad
//! sample.

use crate::{hash::Random, model::Pair, tuning};

/// The number of dimensions of a point.
const DIMENSIONS: usize = 12;
/// The index of the height's logarithm in a place.
const HEIGHT: usize = DIMENSIONS;
/// The number of partial sums that a processor adds at once.
const SIMD_LANES: usize = 4;

/// The coordinates of a node: those of its point, and the logarithm of its height.
pub(crate) type Place = [f32; DIMENSIONS + 1];

/// Returns a random place for the node with this key.
pub(crate) fn random_place(key: u64, seed: u64) -> Place {
    let mut random = Random::new(key ^ seed.rotate_left(17));
    let mut place = [tuning::FIRST_HEIGHT.ln(); DIMENSIONS + 1];
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

/// The number and sizes of the steps of a gradient descent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    rounds: usize,
    /// The sizes of the first and the last step.
    steps: [f32; 2],
    /// The exponent of a pair's time in its weight.
    time_weight_power: f32,
    /// The residual beyond which a pair pulls no harder, in logarithm.
    max_residual: f32,
}

impl Pace {
    /// Returns the two halves of a fit from random places. Far pairs dominate the first half: near
    /// ones would hold each other where they are.
    pub fn cold(rounds: usize) -> [Self; 2] {
        let powers = [1.0, tuning::TIME_WEIGHT_POWER];
        std::array::from_fn(|half| Self {
            rounds: rounds / 2,
            steps: tuning::COLD_STEPS[half],
            time_weight_power: powers[half],
            max_residual: tuning::MAX_PULL_RESIDUALS[0],
        })
    }

    /// Returns the steps of a fit from known places.
    pub fn warm(rounds: usize, noisy: bool) -> Self {
        Self {
            rounds,
            steps: tuning::WARM_STEPS,
            time_weight_power: tuning::TIME_WEIGHT_POWER,
            max_residual: tuning::MAX_PULL_RESIDUALS[usize::from(noisy)],
        }
    }
}

/// Moves all nodes so that their distances approach the pairs' measured times.
pub(crate) fn descend(places: &mut [Place], pairs: &[Pair], pace: Pace) {
    let links: Vec<Link> = pairs.iter().map(|pair| Link::new(pair, pace)).collect();
    let mut heights = vec![0.0f32; places.len()];
    let [mut slopes, mut means, mut squares] =
        [(); 3].map(|()| vec![Place::default(); places.len()]);
    let mut decay = [1.0f32; 2];
    for round in 0..pace.rounds {
        for (height, place) in heights.iter_mut().zip(&*places) {
            *height = place[HEIGHT].exp();
        }
        gradient(places, &links, pace.max_residual, &heights, &mut slopes);
        let [first, last] = pace.steps;
        let rate = first * (last / first).powf(round as f32 / pace.rounds as f32);
        decay = [decay[0] * 0.9, decay[1] * 0.99];
        let scale = decay.map(|decay| 1.0 / (1.0 - decay));
        let moments = means.as_flattened_mut().iter_mut();
        let moments = moments.zip(squares.as_flattened_mut());
        let all = places.as_flattened_mut().iter_mut();
        for ((at, slope), (mean, square)) in all.zip(slopes.as_flattened()).zip(moments) {
            *mean += 0.1 * (slope - *mean);
            *square += 0.01 * (slope * slope - *square);
            *at -= rate * *mean * scale[0] / ((*square * scale[1]).sqrt() + 1e-12);
        }
        for place in &mut *places {
            place[HEIGHT] = place[HEIGHT].clamp(-20.0, 5.0);
        }
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

impl Link {
    fn new(pair: &Pair, pace: Pace) -> Self {
        let time_weight = (pace.time_weight_power * pair.log).exp();
        Self {
            a: pair.a,
            b: pair.b,
            inverse: (-pair.log).exp(),
            weight: time_weight.min(tuning::MAX_PAIR_WEIGHT) * pair.weight,
        }
    }
}

/// Writes the slopes of the loss at all places, whose heights are `heights`.
fn gradient(
    places: &[Place],
    links: &[Link],
    max_residual: f32,
    heights: &[f32],
    slopes: &mut [Place],
) {
    let [least, most] = [-max_residual, max_residual].map(f32::exp);
    for (slope, place) in slopes.iter_mut().zip(places) {
        *slope = place.map(|x| tuning::RIDGE * x);
        slope[HEIGHT] = 0.0;
    }
    for link in links {
        let (a, b) = (link.a as usize, link.b as usize);
        let (x, y) = (&places[a], &places[b]);
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
            slopes[a][d] += along * apart[d];
            slopes[b][d] -= along * apart[d];
        }
        slopes[a][HEIGHT] += along * length;
        slopes[b][HEIGHT] += along * length;
    }
    let first = tuning::FIRST_HEIGHT.ln();
    for ((slope, height), place) in slopes.iter_mut().zip(heights).zip(places) {
        slope[HEIGHT] = slope[HEIGHT] * height + tuning::HEIGHT_RIDGE * (place[HEIGHT] - first);
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
