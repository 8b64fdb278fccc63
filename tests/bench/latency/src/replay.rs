//! One replay: a model learns a world from the targets that it chooses within the budget.

use tautline_rtt_model::{Fit, Labels, Model, NodeId, Options, Row};

use crate::{
    random::Random,
    worlds::{Place, World},
};

/// Fits before all targets are chosen.
const PHASES: usize = 8;

pub struct Learned {
    pub model: Model,
    pub fit: Fit,
    pub nodes: Vec<NodeId>,
    pub targets: Vec<Vec<NodeId>>,
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
    let mut targets: Vec<Vec<NodeId>> = vec![Vec::new(); world.nodes];
    let mut fit = None;
    for _ in 0..PHASES {
        for (from, targets) in targets.iter_mut().enumerate() {
            model.targets(fit.as_ref(), nodes[from], k, targets);
            for to in targets.iter() {
                if model.sample(nodes[from], *to).is_none() {
                    let micros = world.measure(from, to.0 as usize, &mut random);
                    model.observe(nodes[from], *to, micros);
                }
            }
        }
        fit = Some(model.fit());
    }
    let fit = fit.unwrap_or_else(|| model.fit());
    Learned {
        model,
        fit,
        nodes,
        targets,
    }
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
    fn estimates<T>(
        &self,
        peer: usize,
        take: impl Fn(tautline_rtt_model::Estimate) -> T,
        none: T,
    ) -> Vec<T>
    where
        T: Clone,
    {
        let row: Option<Row> = self.fit.row(self.nodes[peer]);
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
        self.fit.measured(self.nodes[a], self.nodes[b]).is_some()
    }

    fn bars(&self, peer: usize) -> Option<Vec<(f32, f32)>> {
        Some(self.estimates(peer, |e| (e.low, e.high), (0.0, 0.0)))
    }
}
