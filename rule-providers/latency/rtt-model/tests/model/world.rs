//! A small world whose truth is known: sites on a map, nodes around them, a height
//! for each, and samples a few percent off.

use tautline_rtt_model::{Estimate, Fit, Labels, Model, NodeId, Options};

pub const SITES: usize = 10;
/// Rounds of "choose, measure, fit" after which targets are settled.
const ROUNDS: usize = 8;

pub struct World {
    pub nodes: usize,
    pub seed: u64,
}

/// In 0..1, the same for the same numbers.
pub fn hashed(parts: [u64; 3]) -> f32 {
    let mut x = 0x1234_5678_9abc_def0u64;
    for part in parts {
        x = (x ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 32;
    }
    (x >> 40) as f32 / (1u64 << 24) as f32
}

impl World {
    pub fn new(nodes: usize, seed: u64) -> Self {
        Self { nodes, seed }
    }

    pub fn site(&self, node: usize) -> usize {
        node % SITES
    }

    /// Microseconds.
    pub fn truth(&self, a: usize, b: usize) -> f32 {
        let at = |node: usize, axis: u64| {
            let site = 60_000.0 * hashed([self.seed, axis, self.site(node) as u64]);
            site + 1_000.0 * hashed([self.seed, axis + 2, node as u64])
        };
        let height = |node: usize| 100.0 + 400.0 * hashed([self.seed, 9, node as u64]);
        let (x, y) = (at(a, 0) - at(b, 0), at(a, 1) - at(b, 1));
        let path = 0.9 + 0.2 * hashed([self.seed ^ 77, a.min(b) as u64, a.max(b) as u64]);
        path * x.hypot(y) + height(a) + height(b)
    }

    /// One figure as an agent reports it.
    pub fn sample(&self, a: usize, b: usize, round: u64) -> f32 {
        let off = hashed([self.seed ^ round, a as u64, b as u64]) - 0.5;
        self.truth(a, b) * (1.0 + 0.06 * off)
    }
}

pub fn quick(seed: u64) -> Options {
    Options {
        seed,
        cold_rounds: 250,
        warm_rounds: 60,
    }
}

/// How a replay goes: who lies, and where nodes say that they are.
pub struct Replay<'a> {
    pub world: &'a World,
    pub k: usize,
    pub report: &'a dyn Fn(usize, usize, f32) -> f32,
    pub site: &'a dyn Fn(usize) -> Option<usize>,
}

impl<'a> Replay<'a> {
    pub fn new(world: &'a World, k: usize) -> Self {
        Self {
            world,
            k,
            report: &|_, _, micros| micros,
            site: &|_| None,
        }
    }

    pub fn run(&self, options: Options) -> (Model, Fit) {
        let mut model = Model::new(options);
        for node in 0..self.world.nodes {
            insert(&mut model, node, (self.site)(node));
        }
        let mut targets = vec![Vec::new(); self.world.nodes];
        let mut fit = model.fit();
        for round in 0..ROUNDS {
            for (from, targets) in targets.iter_mut().enumerate() {
                let node = NodeId(from as u32);
                model.targets(Some(&fit), node, self.k, &[], targets);
                for to in targets.iter() {
                    let micros = self.world.sample(from, to.0 as usize, round as u64);
                    let reported = (self.report)(from, to.0 as usize, micros);
                    assert!(model.observe(node, *to, reported, None));
                }
            }
            fit = model.fit();
        }
        (model, fit)
    }
}

pub fn insert(model: &mut Model, node: usize, site: Option<usize>) -> NodeId {
    let (region, zone) = site
        .map(|s| (format!("r{}", s / 2), format!("z{s}")))
        .unzip();
    let labels = Labels {
        region: region.as_deref(),
        zone: zone.as_deref(),
        rack: None,
    };
    model.insert(&format!("node-{node}"), labels)
}

/// All estimates of pairs that were not measured: both numbers and the estimate.
pub fn unmeasured(world: &World, fit: &Fit) -> Vec<(usize, usize, Estimate)> {
    let mut all = Vec::new();
    for a in 0..world.nodes {
        let Some(row) = fit.row(NodeId(a as u32)) else {
            continue;
        };
        for b in a + 1..world.nodes {
            let (one, other) = (NodeId(a as u32), NodeId(b as u32));
            if fit.measured(one, other).is_none() {
                all.extend(row.estimate(other).map(|e| (a, b, e)));
            }
        }
    }
    all
}

pub fn quantile(mut values: Vec<f32>, part: f32) -> f32 {
    values.sort_by(f32::total_cmp);
    values[(part * (values.len() - 1) as f32) as usize]
}

/// Relative errors of pairs that were not measured.
pub fn errors(world: &World, fit: &Fit) -> Vec<f32> {
    let off = |(a, b, e): (usize, usize, Estimate)| {
        let truth = world.truth(a, b);
        (e.micros - truth).abs() / truth
    };
    unmeasured(world, fit).into_iter().map(off).collect()
}
