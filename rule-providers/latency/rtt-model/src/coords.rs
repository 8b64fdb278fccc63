//! The coordinates of nodes: each has a point in twelve dimensions and a height. The fitted time of
//! two nodes is the distance between their points plus both heights (Dabek et al., "Vivaldi",
//! SIGCOMM 2004). All pairs are fitted at once as in GNP (Ng & Zhang, INFOCOM 2002), by Adam on the
//! Huber loss of log(fitted / measured), which bounds the pull of a bad sample.

use crate::{hash::Random, tuning::TUNING};

/// The number of dimensions of a point.
pub(crate) const POINT_DIMENSIONS: usize = 12;
/// The number of partial sums that a processor adds at once.
const SIMD_LANES: usize = 4;
pub(crate) type Point = [f32; POINT_DIMENSIONS];

/// A measured pair of nodes, with both directions combined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub a: u32,
    pub b: u32,
    /// The logarithm of the measured time over the fit's scale.
    pub log: f32,
    /// The number of directions that were measured.
    pub weight: f32,
    /// Half an 80 % error bar of the logarithm, by the samples' own spread; `None` if unknown.
    pub spread: Option<f32>,
}

/// The factor on a pair's own spread, because few samples understate it.
const SPREAD_FACTOR: f32 = 1.1;

impl Pair {
    /// Returns half an 80 % error bar of the logarithm; `None` if unknown.
    pub fn noise(&self) -> Option<f32> {
        self.spread.map(|spread| SPREAD_FACTOR * spread)
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
        let powers = [1.0, TUNING.time_weight_power];
        std::array::from_fn(|half| Self {
            rounds: rounds / 2,
            steps: TUNING.cold_steps[half],
            time_weight_power: powers[half],
            max_residual: TUNING.max_pull_residual,
        })
    }

    /// Returns the steps of a fit from known places.
    pub fn warm(rounds: usize, noisy: bool) -> Self {
        Self {
            rounds,
            steps: TUNING.warm_steps,
            time_weight_power: TUNING.time_weight_power,
            max_residual: if noisy {
                TUNING.max_pull_residual_if_noisy
            } else {
                TUNING.max_pull_residual
            },
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
            weight: time_weight.min(TUNING.max_pair_weight) * pair.weight,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Coords {
    pub points: Vec<Point>,
    pub log_heights: Vec<f32>,
}

/// Returns the logarithm of `x` if its absolute value is at most 0.5: 2 artanh((x - 1) / (x + 1)),
/// as a series.
fn log_near_one(x: f32) -> f32 {
    let t = (x - 1.0) / (x + 1.0);
    let square = t * t;
    2.0 * t * (1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square / 7.0)))
}

/// Adam's moments (Kingma & Ba, ICLR 2015).
struct Moments {
    points: [Vec<Point>; 2],
    heights: [Vec<f32>; 2],
    decay: [f32; 2],
}

impl Coords {
    /// Returns a random place for every node, derived from its key and `seed`.
    pub fn scatter(keys: impl Iterator<Item = u64>, seed: u64) -> Self {
        let mut coords = Self::default();
        for key in keys {
            coords.push(key, seed);
        }
        coords
    }

    /// Moves each node without a place to the point of the nearest placed node in its pairs.
    pub fn settle(&mut self, pairs: &[Pair], placed: &[bool]) {
        let mut nearest = vec![(f32::INFINITY, u32::MAX); placed.len()];
        for pair in pairs {
            for (i, j) in [(pair.a, pair.b), (pair.b, pair.a)] {
                let nearer = pair.log < nearest[i as usize].0;
                if !placed[i as usize] && placed[j as usize] && nearer {
                    nearest[i as usize] = (pair.log, j);
                }
            }
        }
        for (i, &(_, j)) in nearest.iter().enumerate().filter(|(_, n)| n.0.is_finite()) {
            self.points[i] = self.points[j as usize];
        }
    }

    /// Adds a node at a random place.
    pub fn push(&mut self, key: u64, seed: u64) {
        let slot = self.points.len();
        self.points.push([0.0; POINT_DIMENSIONS]);
        self.log_heights.push(0.0);
        self.place(slot, key, seed);
    }

    /// Puts a node at a random place.
    pub fn place(&mut self, slot: usize, key: u64, seed: u64) {
        let mut random = Random::new(key ^ seed.rotate_left(17));
        if let Some(point) = self.points.get_mut(slot) {
            point.fill_with(|| TUNING.first_spread * random.normal());
        }
        if let Some(height) = self.log_heights.get_mut(slot) {
            *height = TUNING.first_height.ln();
        }
    }

    /// Moves all nodes so that their distances approach the pairs' measured times.
    pub fn descend(&mut self, pairs: &[Pair], pace: Pace) {
        let n = self.points.len();
        let links: Vec<Link> = pairs.iter().map(|pair| Link::new(pair, pace)).collect();
        let mut pull = vec![[0.0f32; POINT_DIMENSIONS]; n];
        let mut lift = vec![0.0f32; n];
        let mut heights = vec![0.0f32; n];
        let mut moments = Moments {
            points: [
                vec![[0.0; POINT_DIMENSIONS]; n],
                vec![[0.0; POINT_DIMENSIONS]; n],
            ],
            heights: [vec![0.0; n], vec![0.0; n]],
            decay: [1.0; 2],
        };
        for round in 0..pace.rounds {
            for (height, log) in heights.iter_mut().zip(&self.log_heights) {
                *height = log.exp();
            }
            self.gradient(&links, pace.max_residual, &heights, &mut pull, &mut lift);
            let done = round as f32 / pace.rounds as f32;
            let [first, last] = pace.steps;
            let rate = first * (last / first).powf(done);
            self.step(&mut moments, &pull, &lift, rate);
        }
    }

    fn gradient(
        &self,
        links: &[Link],
        max_residual: f32,
        heights: &[f32],
        pull: &mut [Point],
        lift: &mut [f32],
    ) {
        let floor = TUNING.first_height.ln();
        let clip = max_residual;
        let [least, most] = [-clip, clip].map(f32::exp);
        for (pull, point) in pull.iter_mut().zip(&self.points) {
            *pull = point.map(|x| TUNING.ridge * x);
        }
        lift.fill(0.0);
        for link in links {
            let (a, b) = (link.a as usize, link.b as usize);
            let (x, y) = (&self.points[a], &self.points[b]);
            let mut apart = [0.0f32; POINT_DIMENSIONS];
            let mut squares = [1e-8 / SIMD_LANES as f32; SIMD_LANES];
            for d in 0..POINT_DIMENSIONS {
                apart[d] = x[d] - y[d];
                squares[d % SIMD_LANES] += apart[d] * apart[d];
            }
            let length = squares.iter().sum::<f32>().sqrt();
            let fitted = length + heights[a] + heights[b];
            let off = log_near_one((fitted * link.inverse).clamp(least, most));
            let along = link.weight * off / (fitted * length);
            let slope = along * length;
            for d in 0..POINT_DIMENSIONS {
                pull[a][d] += along * apart[d];
                pull[b][d] -= along * apart[d];
            }
            lift[a] += slope;
            lift[b] += slope;
        }
        for ((lift, height), log) in lift.iter_mut().zip(heights).zip(&self.log_heights) {
            *lift = *lift * height + TUNING.height_ridge * (log - floor);
        }
    }

    fn step(&mut self, moments: &mut Moments, pull: &[Point], lift: &[f32], rate: f32) {
        moments.decay[0] *= 0.9;
        moments.decay[1] *= 0.99;
        let scale = [
            1.0 / (1.0 - moments.decay[0]),
            1.0 / (1.0 - moments.decay[1]),
        ];
        let advance = |at: &mut f32, mean: &mut f32, square: &mut f32, slope: f32| {
            *mean += 0.1 * (slope - *mean);
            *square += 0.01 * (slope * slope - *square);
            *at -= rate * *mean * scale[0] / ((*square * scale[1]).sqrt() + 1e-12);
        };
        let [means, squares] = &mut moments.points;
        let points = self.points.as_flattened_mut().iter_mut();
        let moved = means
            .as_flattened_mut()
            .iter_mut()
            .zip(squares.as_flattened_mut());
        for ((at, (mean, square)), slope) in points.zip(moved).zip(pull.as_flattened()) {
            advance(at, mean, square, *slope);
        }
        let [means, squares] = &mut moments.heights;
        let moved = means.iter_mut().zip(squares);
        for ((height, (mean, square)), slope) in self.log_heights.iter_mut().zip(moved).zip(lift) {
            advance(height, mean, square, *slope);
            *height = height.clamp(-20.0, 5.0);
        }
    }
}
