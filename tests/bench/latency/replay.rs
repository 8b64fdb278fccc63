//! One replay: a model learns a world from the targets that it chooses within the budget.

use std::collections::HashSet;

use tautline_rtt_model::{Fit, Labels, Model, NodeId, Options, Row};

use crate::{
    random::Random,
    worlds::{Place, World},
};

/// Fits before all targets are chosen.
const PHASES: usize = 8;

pub struct Learned {
    pub model: Model,
    /// `None`: there was none yet.
    pub fit: Option<Fit>,
    pub nodes: Vec<NodeId>,
    pub targets: Vec<Vec<NodeId>>,
    /// The nodes that each node lost, until either reaches again one that it had lost.
    pub unreachable: Vec<Vec<NodeId>>,
}

/// A source of predictions, in microseconds.
pub trait Predictor {
    /// From a peer to all nodes; the sample for measured pairs.
    fn row(&self, peer: usize) -> Vec<f32>;
    fn measured(&self, a: usize, b: usize) -> bool;
    /// The error bars; `None`: the predictor has none.
    fn bars(&self, _peer: usize) -> Option<Vec<(f32, f32)>> {
        None
    }
}

/// The labels of nodes in a world with labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labelling {
    Right,
    /// This percentage of nodes has another node's labels.
    Wrong(u32),
    Without,
}

pub fn learn(world: &World, k: usize, seed: u64, labelling: Labelling) -> Learned {
    learn_some(world, k, seed, labelling, &|_, _| true)
}

/// As [`learn`], where some nodes cannot reach each other.
pub fn learn_some(
    world: &World,
    k: usize,
    seed: u64,
    labelling: Labelling,
    reachable: &dyn Fn(usize, usize) -> bool,
) -> Learned {
    let mut random = Random::new(1000 + seed);
    let mut model = Model::new(Options {
        seed,
        ..Options::default()
    });
    let nodes: Vec<NodeId> = (0..world.nodes)
        .map(|node| {
            let misled = match labelling {
                Labelling::Wrong(percent) => random.unit() < f64::from(percent) / 100.0,
                Labelling::Right | Labelling::Without => false,
            };
            let teller = if misled {
                random.below(world.nodes)
            } else {
                node
            };
            let place = world.place(teller);
            let place = place.filter(|_| labelling != Labelling::Without);
            insert(&mut model, node, place)
        })
        .collect();
    let mut learned = Learned {
        fit: None,
        targets: vec![Vec::new(); world.nodes],
        unreachable: vec![Vec::new(); world.nodes],
        nodes,
        model,
    };
    for _ in 0..PHASES {
        learned.visit(world, k, &mut random, reachable);
        learned.fit = Some(learned.model.fit());
    }
    learned
}

fn insert(model: &mut Model, node: usize, place: Option<Place>) -> NodeId {
    let name = format!("node-{node}");
    let Some(place) = place else {
        return model.insert(&name, Labels::default());
    };
    let region = format!("region-{}", place.region);
    let zone = format!("zone-{}", place.zone);
    let rack = format!("rack-{}", place.rack);
    let labels = Labels {
        region: Some(&region),
        zone: Some(&zone),
        rack: Some(&rack),
    };
    model.insert(&name, labels)
}

impl Learned {
    /// Chooses all targets anew, and measures those that were not.
    pub fn visit(
        &mut self,
        world: &World,
        k: usize,
        random: &mut Random,
        reachable: &dyn Fn(usize, usize) -> bool,
    ) {
        let mut nodes: Vec<usize> = (0..world.nodes).collect();
        while !nodes.is_empty() {
            let mut regained = HashSet::new();
            for from in nodes {
                if self.visit_from(from, world, k, random, reachable) {
                    regained.insert(self.nodes[from]);
                }
            }
            nodes = self.forgive(&regained);
        }
    }

    /// Whether the node reached one that it had lost.
    fn visit_from(
        &mut self,
        from: usize,
        world: &World,
        k: usize,
        random: &mut Random,
        reachable: &dyn Fn(usize, usize) -> bool,
    ) -> bool {
        let (node, fit) = (self.nodes[from], self.fit.as_ref());
        let (targets, lost) = (&mut self.targets[from], &mut self.unreachable[from]);
        self.model.targets(fit, node, k, lost, targets);
        let mut regained = false;
        for &to in targets.iter() {
            let known = lost.contains(&to);
            if !reachable(from, to.0 as usize) {
                lost.extend((!known).then_some(to));
                continue;
            }
            regained |= known;
            if self.model.sample(node, to).is_none() {
                let (micros, spread) = world.measure(from, to.0 as usize, random);
                self.model.observe(node, to, micros, spread);
            }
        }
        regained
    }

    /// Returns the nodes that may reach more than they did.
    fn forgive(&mut self, regained: &HashSet<NodeId>) -> Vec<usize> {
        let mut healed = Vec::new();
        for (from, lost) in self.unreachable.iter_mut().enumerate() {
            let before = lost.len();
            let counts = !regained.contains(&self.nodes[from]);
            lost.retain(|to| counts && !regained.contains(to));
            if lost.len() < before {
                healed.push(from);
            }
        }
        healed
    }

    fn estimates<T>(
        &self,
        peer: usize,
        take: impl Fn(tautline_rtt_model::Estimate) -> T,
        none: T,
    ) -> Vec<T>
    where
        T: Clone,
    {
        let fit = self.fit.as_ref();
        let row: Option<Row> = fit.and_then(|fit| fit.row(self.nodes[peer]));
        let estimate = |node: &NodeId| row.as_ref()?.estimate(*node);
        self.nodes
            .iter()
            .map(|node| estimate(node).map_or(none.clone(), &take))
            .collect()
    }
}

impl Predictor for Learned {
    fn row(&self, peer: usize) -> Vec<f32> {
        self.estimates(peer, |e| e.micros, 0.0)
    }

    fn measured(&self, a: usize, b: usize) -> bool {
        let fit = self.fit.as_ref();
        fit.is_some_and(|fit| fit.measured(self.nodes[a], self.nodes[b]).is_some())
    }

    fn bars(&self, peer: usize) -> Option<Vec<(f32, f32)>> {
        Some(self.estimates(peer, |e| (e.low, e.high), (0.0, 0.0)))
    }
}
