//! Coordinates in twelve dimensions and a height: the fitted distance of two nodes is that of their
//! points plus both heights (Dabek et al., "Vivaldi", SIGCOMM 2004). All pairs are fitted at once
//! as in GNP (Ng & Zhang, INFOCOM 2002), by Adam on the Huber loss of log(fitted / measured), which
//! bounds the pull of a bad sample by [`CLIP`], or by [`NOISY_CLIP`] where all samples are bad.

use crate::{hash::Random, ridge::Ridge};

pub(crate) const D: usize = 12;
/// Sums that a processor adds at once.
const LANES: usize = 4;
pub(crate) type Point = [f32; D];

/// Residuals of the logarithm count no more than this.
const CLIP: f32 = 0.1;
const NOISY_CLIP: f32 = 0.5;
/// A pair counts as its time to this power: near pairs are measured more often than others.
const FAR: f32 = 0.15;
/// No pair counts more than this many others.
const FARTHEST: f32 = 4.0;
const FIRST_HEIGHT: f32 = 0.02;
const SPREAD: f32 = 0.3;
const HEIGHT_PULL: f32 = 1e-4;

/// A measured pair: both directions in one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub a: u32,
    pub b: u32,
    /// Logarithm of measured microseconds over the fit's scale.
    pub log: f32,
    /// How many directions were measured.
    pub weight: f32,
    /// The difference of both directions' logarithms; 0 for one.
    pub apart: f32,
    /// Half an 80 % bar of the logarithm, by the samples' own spread; `None`: not known.
    pub spread: Option<f32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    rounds: usize,
    first: f32,
    last: f32,
    /// As [`FAR`]; 1 while random places sort themselves.
    far: f32,
    clip: f32,
    ridge: Ridge,
}

impl Pace {
    /// From random places: together from the start, near pairs would hold each other there.
    pub fn cold(rounds: usize, ridge: Ridge) -> [Self; 2] {
        let far = Self {
            rounds: rounds / 2,
            first: 0.3,
            last: 0.003,
            far: 1.0,
            clip: CLIP,
            ridge,
        };
        let all = Self {
            first: 0.02,
            last: 0.0005,
            far: FAR,
            ..far
        };
        [far, all]
    }

    /// From known places: larger steps would undo what near pairs have found.
    pub fn warm(rounds: usize, noisy: bool, ridge: Ridge) -> Self {
        Self {
            rounds,
            first: 0.005,
            last: 0.0005,
            far: FAR,
            clip: if noisy { NOISY_CLIP } else { CLIP },
            ridge,
        }
    }
}

/// What a gradient reads of a pair.
struct Link {
    a: u32,
    b: u32,
    /// Of the measured time.
    inverse: f32,
    weight: f32,
}

impl Link {
    fn new(pair: &Pair, pace: Pace) -> Self {
        let far = (pace.far * pair.log).exp().min(FARTHEST);
        Self {
            a: pair.a,
            b: pair.b,
            inverse: (-pair.log).exp(),
            weight: far * pair.weight,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Coords {
    pub points: Vec<Point>,
    pub log_heights: Vec<f32>,
}

/// The logarithm, where its size is below a half: 2 artanh((x - 1) / (x + 1)), as a series.
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
    /// A place for every node; `key` seeds a node's first place.
    pub fn scatter(keys: impl Iterator<Item = u64>, seed: u64) -> Self {
        let mut coords = Self::default();
        for key in keys {
            coords.push(key, seed);
        }
        coords
    }

    /// Puts nodes without a place next to the nearest placed node that they measured.
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

    pub fn push(&mut self, key: u64, seed: u64) {
        let slot = self.points.len();
        self.points.push([0.0; D]);
        self.log_heights.push(0.0);
        self.place(slot, key, seed);
    }

    pub fn place(&mut self, slot: usize, key: u64, seed: u64) {
        let mut random = Random::new(key ^ seed.rotate_left(17));
        if let Some(point) = self.points.get_mut(slot) {
            point.fill_with(|| SPREAD * random.normal());
        }
        if let Some(height) = self.log_heights.get_mut(slot) {
            *height = FIRST_HEIGHT.ln();
        }
    }

    pub fn descend(&mut self, pairs: &[Pair], pace: Pace) {
        let n = self.points.len();
        let links: Vec<Link> = pairs.iter().map(|pair| Link::new(pair, pace)).collect();
        let mut pull = vec![[0.0f32; D]; n];
        let mut lift = vec![0.0f32; n];
        let mut heights = vec![0.0f32; n];
        let mut moments = Moments {
            points: [vec![[0.0; D]; n], vec![[0.0; D]; n]],
            heights: [vec![0.0; n], vec![0.0; n]],
            decay: [1.0; 2],
        };
        for round in 0..pace.rounds {
            for (height, log) in heights.iter_mut().zip(&self.log_heights) {
                *height = log.exp();
            }
            self.gradient(&links, pace, &heights, &mut pull, &mut lift);
            let done = round as f32 / pace.rounds as f32;
            let rate = pace.first * (pace.last / pace.first).powf(done);
            self.step(&mut moments, &pull, &lift, rate);
        }
    }

    fn gradient(
        &self,
        links: &[Link],
        pace: Pace,
        heights: &[f32],
        pull: &mut [Point],
        lift: &mut [f32],
    ) {
        let floor = FIRST_HEIGHT.ln();
        let [least, most] = [-pace.clip, pace.clip].map(f32::exp);
        let ridge = pace.ridge.pull();
        for (pull, point) in pull.iter_mut().zip(&self.points) {
            *pull = point.map(|x| ridge * x);
        }
        lift.fill(0.0);
        for link in links {
            let (a, b) = (link.a as usize, link.b as usize);
            let (x, y) = (&self.points[a], &self.points[b]);
            let mut apart = [0.0f32; D];
            let mut squares = [1e-8 / LANES as f32; LANES];
            for d in 0..D {
                apart[d] = x[d] - y[d];
                squares[d % LANES] += apart[d] * apart[d];
            }
            let length = squares.iter().sum::<f32>().sqrt();
            let fitted = length + heights[a] + heights[b];
            let off = log_near_one((fitted * link.inverse).clamp(least, most));
            let along = link.weight * off / (fitted * length);
            let slope = along * length;
            for d in 0..D {
                pull[a][d] += along * apart[d];
                pull[b][d] -= along * apart[d];
            }
            lift[a] += slope;
            lift[b] += slope;
        }
        for ((lift, height), log) in lift.iter_mut().zip(heights).zip(&self.log_heights) {
            *lift = *lift * height + HEIGHT_PULL * (log - floor);
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
