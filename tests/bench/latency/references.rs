//! Two simple predictors, by which the model is judged where there is little to learn.

use std::collections::HashMap;

use crate::{
    random::Random,
    replay::Predictor,
    worlds::{Place, World, median},
};

const D: usize = 5;
const ROUNDS: usize = 600;
const FIRST_RATE: f32 = 0.1;
const CLIP: f32 = 0.25;
const PULL: f32 = 1e-3;
/// Offsets are fitted in so many rounds, as if one more sample said 0.
const SWEEPS: usize = 20;
const PRIOR: f32 = 1.0;
/// A residual counts as at most this part of its sample.
const FARTHEST_OFF: f32 = 0.3;

/// What was measured: by node, the others and microseconds.
struct Samples(Vec<Vec<(usize, f32)>>);

impl Samples {
    /// `k` random targets a node, half of them among its mates.
    fn new(
        world: &World,
        k: usize,
        random: &mut Random,
        mates: impl Fn(usize) -> Vec<usize>,
    ) -> Self {
        let measure = |node: usize| {
            let mates = mates(node);
            let near = random.choose(mates.len(), k / 2);
            let mut targets: Vec<usize> = near.into_iter().map(|at| mates[at]).collect();
            for other in random.choose(world.nodes, 2 * k + 1) {
                if targets.len() < k && other != node && !targets.contains(&other) {
                    targets.push(other);
                }
            }
            let sample = |to: usize| (to, world.measure(node, to, random).0);
            targets.into_iter().map(sample).collect()
        };
        Self((0..world.nodes).map(measure).collect())
    }

    fn all(&self) -> impl Iterator<Item = (usize, usize, f32)> {
        let rows = self.0.iter().enumerate();
        rows.flat_map(|(a, row)| row.iter().map(move |(b, micros)| (a, *b, *micros)))
    }

    fn get(&self, a: usize, b: usize) -> Option<f32> {
        let of = |a: usize, b: usize| self.0[a].iter().find(|s| s.0 == b).map(|s| s.1);
        of(a, b).or_else(|| of(b, a))
    }
}

/// Central coordinates in five dimensions with height, from random targets.
pub struct Central {
    samples: Samples,
    scale: f32,
    /// The last is the height's logarithm.
    nodes: Vec<[f32; D + 1]>,
}

impl Central {
    pub fn learn(world: &World, k: usize, seed: u64) -> Self {
        let mut random = Random::new(4000 + seed);
        let samples = Samples::new(world, k, &mut random, |_| Vec::new());
        let sum: f32 = samples.all().map(|s| s.2).sum();
        let scale = sum / samples.all().count().max(1) as f32;
        let node = |_| {
            let mut node = [0.0; D + 1];
            node.fill_with(|| 0.3 * random.normal() as f32);
            node[D] = -3.0;
            node
        };
        let mut central = Self {
            scale,
            nodes: (0..world.nodes).map(node).collect(),
            samples,
        };
        central.descend();
        central
    }

    /// Adam on Huber's loss of the logarithm.
    fn descend(&mut self) {
        let mut moments = vec![[[0.0f32; 2]; D + 1]; self.nodes.len()];
        for round in 1..=ROUNDS {
            let slopes = self.slopes();
            let rate = FIRST_RATE * 0.01f32.powf(round as f32 / ROUNDS as f32);
            let whole = [0.9f32, 0.99].map(|decay| 1.0 - decay.powi(round as i32));
            for ((node, moments), slopes) in self.nodes.iter_mut().zip(&mut moments).zip(slopes) {
                for ((at, moment), slope) in node.iter_mut().zip(moments).zip(slopes) {
                    moment[0] += 0.1 * (slope - moment[0]);
                    moment[1] += 0.01 * (slope * slope - moment[1]);
                    *at -= rate * (moment[0] / whole[0]) / ((moment[1] / whole[1]).sqrt() + 1e-9);
                }
            }
        }
    }

    fn slopes(&self) -> Vec<[f32; D + 1]> {
        let mut slopes: Vec<[f32; D + 1]> = self.nodes.clone();
        for slope in &mut slopes {
            *slope = slope.map(|x| PULL * x);
            slope[D] = 0.0;
        }
        for (a, b, micros) in self.samples.all() {
            let (length, fitted) = self.fitted(a, b);
            let off = (fitted.ln() - (micros / self.scale).ln()).clamp(-CLIP, CLIP) / fitted;
            for (d, apart) in self.apart(a, b).enumerate() {
                slopes[a][d] += off * apart / length;
                slopes[b][d] -= off * apart / length;
            }
            for node in [a, b] {
                slopes[node][D] += off * self.nodes[node][D].exp();
            }
        }
        slopes
    }

    fn apart(&self, a: usize, b: usize) -> impl Iterator<Item = f32> {
        let both = self.nodes[a].iter().zip(&self.nodes[b]);
        both.take(D).map(|(x, y)| x - y)
    }

    /// The distance of both points, and with both heights.
    fn fitted(&self, a: usize, b: usize) -> (f32, f32) {
        let (x, y) = (&self.nodes[a], &self.nodes[b]);
        let squared: f32 = self.apart(a, b).map(|apart| apart * apart).sum();
        let length = (squared + 1e-8).sqrt();
        (length, length + x[D].exp() + y[D].exp())
    }
}

impl Predictor for Central {
    fn row(&self, peer: usize) -> Vec<f32> {
        let fitted = |node| self.fitted(peer, node).1 * self.scale;
        (0..self.nodes.len())
            .map(|node| self.samples.get(peer, node).unwrap_or_else(|| fitted(node)))
            .collect()
    }

    fn measured(&self, a: usize, b: usize) -> bool {
        self.samples.get(a, b).is_some()
    }
}

/// The typical time of two nodes' labels and an offset of each, in microseconds.
pub struct Offsets {
    samples: Samples,
    places: Vec<Place>,
    classes: HashMap<[usize; 3], f32>,
    offsets: Vec<f32>,
}

impl Offsets {
    /// `None`: the world has no labels.
    pub fn learn(world: &World, k: usize, seed: u64) -> Option<Self> {
        let places: Option<Vec<Place>> = (0..world.nodes).map(|node| world.place(node)).collect();
        let places = places?;
        let mut random = Random::new(5000 + seed);
        let mates = |node: usize| {
            let mates = (0..places.len()).filter(|b| *b != node);
            mates
                .filter(|b| places[*b].zone == places[node].zone)
                .collect()
        };
        let samples = Samples::new(world, k, &mut random, mates);
        let mut learned = Self {
            offsets: vec![0.0; places.len()],
            classes: HashMap::new(),
            samples,
            places,
        };
        for _ in 0..SWEEPS {
            learned.classes = learned.typical();
            learned.offsets = learned.moved();
        }
        Some(learned)
    }

    /// From the closest class to all pairs.
    fn keys(&self, a: usize, b: usize) -> [[usize; 3]; 4] {
        let (here, there) = (self.places[a], self.places[b]);
        let pair = |kind, a: usize, b: usize| [kind, a.min(b), a.max(b)];
        let zones = pair(1, here.zone, there.zone);
        let closest = match here.rack == there.rack {
            true => pair(0, here.zone, there.zone),
            false => zones,
        };
        [
            closest,
            zones,
            pair(2, here.region, there.region),
            [3, 0, 0],
        ]
    }

    fn typical(&self) -> HashMap<[usize; 3], f32> {
        let mut times: HashMap<[usize; 3], Vec<f32>> = HashMap::new();
        for (a, b, micros) in self.samples.all() {
            let mut keys = self.keys(a, b).to_vec();
            keys.dedup();
            for key in keys {
                let rest = micros - self.offsets[a] - self.offsets[b];
                times.entry(key).or_default().push(rest);
            }
        }
        let times = times.into_iter();
        times
            .map(|(key, mut all)| (key, median(&mut all)))
            .collect()
    }

    fn class(&self, a: usize, b: usize) -> f32 {
        let known = self.keys(a, b).into_iter();
        let mut known = known.filter_map(|key| self.classes.get(&key));
        known.next().copied().unwrap_or_default()
    }

    /// Offsets a step nearer to the mean residual, each by its sample's inverse square.
    fn moved(&self) -> Vec<f32> {
        let mut sums = vec![[0.0f64; 3]; self.offsets.len()];
        for (a, b, micros) in self.samples.all() {
            let off = micros - self.class(a, b) - self.offsets[a] - self.offsets[b];
            let off = off.clamp(-FARTHEST_OFF * micros, FARTHEST_OFF * micros);
            let weight = f64::from(micros).powi(-2);
            for node in [a, b] {
                let whole = f64::from(off + self.offsets[node]);
                sums[node][0] += weight * whole;
                sums[node][1] += weight;
                sums[node][2] = sums[node][2].max(weight);
            }
        }
        let moved = self.offsets.iter().zip(sums);
        moved
            .map(|(offset, [sum, weights, most])| {
                let whole = sum / (weights + f64::from(PRIOR) * most).max(f64::MIN_POSITIVE);
                (offset + whole as f32) / 2.0
            })
            .collect()
    }
}

impl Predictor for Offsets {
    fn row(&self, peer: usize) -> Vec<f32> {
        let fitted = |node| {
            let class = self.class(peer, node);
            (class + self.offsets[peer] + self.offsets[node]).max(1.0)
        };
        (0..self.offsets.len())
            .map(|node| self.samples.get(peer, node).unwrap_or_else(|| fitted(node)))
            .collect()
    }

    fn measured(&self, a: usize, b: usize) -> bool {
        self.samples.get(a, b).is_some()
    }
}
