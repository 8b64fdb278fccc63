//! Coordinates in twelve dimensions and a height: the fitted distance of two nodes is that of their
//! points plus both heights (Dabek et al., "Vivaldi", SIGCOMM 2004). All pairs are fitted at once
//! as in GNP (Ng & Zhang, INFOCOM 2002), by Adam on the Huber loss of log(fitted / measured), which
//! bounds the pull of a bad sample by [`CLIP`], or by [`NOISY_CLIP`] where all samples are bad.

use crate::{
    hash::Random,
    odd::{Labels, Levels},
};

pub(crate) const D: usize = 12;
pub(crate) type Point = [f32; D];

/// Residuals of the logarithm count no more than this.
pub(crate) const CLIP: f32 = 0.1;
pub(crate) const NOISY_CLIP: f32 = 0.5;
/// No pair counts more than this many others.
const FARTHEST: f32 = 4.0;
const FIRST_HEIGHT: f32 = 0.02;
const SPREAD: f32 = 0.3;
const POINT_PULL: f32 = 0.01;
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
    pub rounds: usize,
    pub first: f32,
    pub last: f32,
    /// Far pairs count more, by their time.
    pub far_first: bool,
    pub clip: f32,
}

/// What a gradient reads of a pair.
struct Link {
    a: u32,
    b: u32,
    log: f32,
    weight: f32,
}

impl Link {
    fn new(pair: &Pair, pace: Pace) -> Self {
        let far = match pace.far_first {
            true => pair.log.exp().min(FARTHEST),
            false => 1.0,
        };
        Self {
            a: pair.a,
            b: pair.b,
            log: pair.log,
            weight: far * pair.weight,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Coords {
    pub points: Vec<Point>,
    pub log_heights: Vec<f32>,
}

/// As points, an axis at a time and with heights as they are: for fast reads. Odd nodes have a
/// level instead of a place.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    axes: Vec<Vec<f32>>,
    heights: Vec<f32>,
    levels: Levels,
}

impl Axes {
    /// Of coordinates that are fitted to these pairs, as labels are.
    pub fn new(coords: &Coords, pairs: &[Pair], labels: Option<Labels<'_>>) -> Self {
        let axis = |d: usize| coords.points.iter().map(|point| point[d]).collect();
        let mut axes = Self {
            axes: (0..D).map(axis).collect(),
            heights: coords.log_heights.iter().map(|log| log.exp()).collect(),
            levels: Levels::default(),
        };
        let fitted = pairs
            .iter()
            .map(|p| axes.distance(p.a as usize, p.b as usize).ln())
            .collect::<Vec<f32>>();
        axes.levels = Levels::new(coords.points.len(), pairs, &fitted, labels);
        axes
    }

    /// Whether a node of the pair is odd.
    pub fn is_odd(&self, a: usize, b: usize) -> bool {
        self.levels.of_pair(a, b).is_some()
    }

    pub fn distances(&self, from: usize, out: &mut [f32]) {
        self.squares(from, out);
        let height = self.heights[from];
        for (out, other) in out.iter_mut().zip(&self.heights) {
            *out = out.sqrt() + (height + other);
        }
        if self.levels.is_empty() {
            return;
        }
        for (to, out) in out.iter_mut().enumerate() {
            if let Some(level) = self.levels.of_pair(from, to) {
                *out = level.exp();
            }
        }
    }

    fn squares(&self, from: usize, out: &mut [f32]) {
        out.fill(1e-8);
        for axis in &self.axes {
            let at = axis[from];
            for (out, x) in out.iter_mut().zip(axis) {
                *out += (x - at) * (x - at);
            }
        }
    }

    /// The most that two nodes' times to a third one can differ: the distance of their points and
    /// the difference of their heights. Two nodes behind one slow line are alike, though far from
    /// each other.
    pub fn unlikeness(&self, from: usize, out: &mut [f32]) {
        self.squares(from, out);
        let height = self.heights[from];
        for (out, other) in out.iter_mut().zip(&self.heights) {
            *out = out.sqrt() + (height - other).abs();
        }
        if self.levels.is_empty() {
            return;
        }
        for (to, out) in out.iter_mut().enumerate() {
            *out = match (self.levels.of(from), self.levels.of(to)) {
                (None, None) => *out,
                (Some(one), Some(other)) => (one - other).abs(),
                _ => f32::INFINITY,
            };
        }
    }

    pub fn distance(&self, a: usize, b: usize) -> f32 {
        if let Some(level) = self.levels.of_pair(a, b) {
            return level.exp();
        }
        let apart = self.axes.iter().map(|axis| (axis[a] - axis[b]).powi(2));
        (1e-8 + apart.sum::<f32>()).sqrt() + (self.heights[a] + self.heights[b])
    }
}

/// Adam's moments (Kingma & Ba, ICLR 2015).
struct Moments {
    points: Vec<[[f32; 2]; D]>,
    heights: Vec<[f32; 2]>,
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
            points: vec![[[0.0; 2]; D]; n],
            heights: vec![[0.0; 2]; n],
            decay: [1.0; 2],
        };
        for round in 0..pace.rounds {
            for (height, log) in heights.iter_mut().zip(&self.log_heights) {
                *height = log.exp();
            }
            self.gradient(&links, pace.clip, &heights, &mut pull, &mut lift);
            let done = round as f32 / pace.rounds as f32;
            let rate = pace.first * (pace.last / pace.first).powf(done);
            self.step(&mut moments, &pull, &lift, rate);
        }
    }

    fn gradient(
        &self,
        links: &[Link],
        clip: f32,
        heights: &[f32],
        pull: &mut [Point],
        lift: &mut [f32],
    ) {
        let floor = FIRST_HEIGHT.ln();
        for (pull, point) in pull.iter_mut().zip(&self.points) {
            *pull = point.map(|x| POINT_PULL * x);
        }
        lift.fill(0.0);
        for link in links {
            let (a, b) = (link.a as usize, link.b as usize);
            let (x, y) = (&self.points[a], &self.points[b]);
            let mut apart = [0.0f32; D];
            let mut squared = 1e-8f32;
            for d in 0..D {
                apart[d] = x[d] - y[d];
                squared += apart[d] * apart[d];
            }
            let length = squared.sqrt();
            let fitted = length + heights[a] + heights[b];
            let off = (fitted.ln() - link.log).clamp(-clip, clip);
            let slope = link.weight * off / fitted;
            let along = slope / length;
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
        let advance = |at: &mut f32, moment: &mut [f32; 2], slope: f32| {
            moment[0] += 0.1 * (slope - moment[0]);
            moment[1] += 0.01 * (slope * slope - moment[1]);
            *at -= rate * moment[0] * scale[0] / ((moment[1] * scale[1]).sqrt() + 1e-12);
        };
        for ((point, moment), pull) in self.points.iter_mut().zip(&mut moments.points).zip(pull) {
            for d in 0..D {
                advance(&mut point[d], &mut moment[d], pull[d]);
            }
        }
        let heights = self.log_heights.iter_mut().zip(&mut moments.heights);
        for ((height, moment), lift) in heights.zip(lift) {
            advance(height, moment, *lift);
            *height = height.clamp(-20.0, 5.0);
        }
    }
}
