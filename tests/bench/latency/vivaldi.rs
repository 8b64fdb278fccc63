//! The coordinates of a serf or Consul cluster: Vivaldi in eight dimensions with height,
//! adjustment and gravity, computed by each node from random targets (constants as in serf's
//! `coordinate` package).

use crate::{random::Random, replay::Predictor, worlds::World};

const D: usize = 8;
/// One probe a second for 25 minutes.
const ROUNDS: usize = 1_500;
const FILTER: usize = 3;
const WINDOW: usize = 20;
const ERROR_MOST: f32 = 1.5;
const PULL: f32 = 0.25;
const HEIGHT_LEAST: f32 = 10.0;
/// Microseconds.
const GRAVITY: f32 = 150e6;

#[derive(Clone)]
struct Member {
    point: [f32; D],
    height: f32,
    error: f32,
    adjustment: f32,
    window: [f32; WINDOW],
    targets: Vec<(usize, Vec<f32>)>,
}

pub struct Serf {
    members: Vec<Member>,
    measured: Vec<Vec<(usize, f32)>>,
}

impl Member {
    fn raw(&self, other: &Self) -> f32 {
        apart(&self.point, &other.point).1 + self.height + other.height
    }

    fn distance(&self, other: &Self) -> f32 {
        let raw = self.raw(other);
        let adjusted = raw + self.adjustment + other.adjustment;
        if adjusted > 0.0 { adjusted } else { raw }
    }

    /// A step towards the position that fits the sample.
    fn update(&mut self, other: &Self, sample: f32, round: usize, random: &mut Random) {
        let distance = self.distance(other);
        let wrong = (distance - sample).abs() / sample;
        let weight = self.error / (self.error + other.error).max(1e-6);
        let step = PULL * weight;
        self.error = (step * wrong + self.error * (1.0 - step)).min(ERROR_MOST);
        let force = step * (sample - distance);
        let (mut way, length) = apart(&self.point, &other.point);
        if length > 1.0 {
            way = way.map(|x| x / length);
            let height = (self.height + other.height) * force / length + self.height;
            self.height = height.max(HEIGHT_LEAST);
        } else {
            way.fill_with(|| random.unit() as f32 - 0.5);
            let length = way.iter().map(|x| x * x).sum::<f32>().sqrt();
            way = way.map(|x| x / length);
        }
        for (x, way) in self.point.iter_mut().zip(way) {
            *x += force * way;
        }
        self.window[round % WINDOW] = sample - self.raw(other);
        self.adjustment = self.window.iter().sum::<f32>() / (2 * WINDOW) as f32;
        let length = self.point.iter().map(|x| x * x).sum::<f32>().sqrt();
        if length > 1.0 {
            let pull = ((length + self.height + HEIGHT_LEAST) / GRAVITY).powi(2) * 1e6;
            self.point = self.point.map(|x| x - pull * x / length);
        }
    }
}

fn apart(a: &[f32; D], b: &[f32; D]) -> ([f32; D], f32) {
    let mut way = *a;
    for (x, y) in way.iter_mut().zip(b) {
        *x -= y;
    }
    let length = way.iter().map(|x| x * x).sum::<f32>().sqrt();
    (way, length)
}

/// The median of the last few samples.
fn filtered(last: &mut Vec<f32>, sample: f32) -> f32 {
    last.push(sample);
    if last.len() > FILTER {
        last.remove(0);
    }
    let mut sorted = last.clone();
    sorted.sort_by(f32::total_cmp);
    sorted[sorted.len() / 2].max(1.0)
}

/// The members after all rounds, from `k` targets each.
fn members(world: &World, k: usize, random: &mut Random) -> Vec<Member> {
    let mut members: Vec<Member> = (0..world.nodes)
        .map(|node| {
            let mut targets = random.choose(world.nodes, k + 1);
            targets.retain(|t| *t != node);
            targets.truncate(k);
            Member {
                point: [0.0; D],
                height: HEIGHT_LEAST,
                error: ERROR_MOST,
                adjustment: 0.0,
                window: [0.0; WINDOW],
                targets: targets.into_iter().map(|t| (t, Vec::new())).collect(),
            }
        })
        .collect();
    for round in 0..ROUNDS {
        for node in 0..world.nodes {
            let at = round % members[node].targets.len();
            let to = members[node].targets[at].0;
            let sample = world.probe(node, to, random);
            let sample = filtered(&mut members[node].targets[at].1, sample);
            let other = members[to].clone_place();
            members[node].update(&other, sample, round, random);
        }
    }
    members
}

impl Serf {
    /// As serf is: all others in turn, from random places on, and no answer but coordinates'.
    pub fn gossip(world: &World, seed: u64) -> Self {
        let mut random = Random::new(3000 + seed);
        Self {
            members: members(world, world.nodes - 1, &mut random),
            measured: vec![Vec::new(); world.nodes],
        }
    }

    /// From `k` fixed targets, whose pairs are answered by their samples.
    pub fn learn(world: &World, k: usize, seed: u64) -> Self {
        let mut random = Random::new(3000 + seed);
        let members = members(world, k, &mut random);
        let measured = members
            .iter()
            .enumerate()
            .map(|(node, m)| {
                let targets = m.targets.iter();
                targets
                    .map(|(to, _)| (*to, world.measure(node, *to, &mut random).0))
                    .collect()
            })
            .collect();
        Self { members, measured }
    }

    fn sample(&self, a: usize, b: usize) -> Option<f32> {
        let of = |a: usize, b: usize| self.measured[a].iter().find(|s| s.0 == b).map(|s| s.1);
        of(a, b).or_else(|| of(b, a))
    }
}

impl Member {
    fn clone_place(&self) -> Self {
        Self {
            targets: Vec::new(),
            ..*self
        }
    }
}

impl Predictor for Serf {
    fn row(&self, peer: usize) -> Vec<f32> {
        let all = self.members.iter().enumerate();
        all.map(|(node, member)| match self.sample(peer, node) {
            Some(sample) => sample,
            None => self.members[peer].distance(member),
        })
        .collect()
    }

    fn measured(&self, a: usize, b: usize) -> bool {
        self.sample(a, b).is_some()
    }
}
