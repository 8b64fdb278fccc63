//! Each node's offset: the part of its times due to its NIC, hypervisor and load.

use super::classes::PairClasses;
use super::robust::{Weighed, median, spread, weighted_median};
use super::{NodeId, Sample};

/// Residuals of this many standard deviations count half.
const HALF_AT: f32 = 2.0;
const REWEIGHTINGS: usize = 2;
/// The lower bound of one less a sample's leverage.
const LEAST_UNFITTED: f32 = 0.1;
/// The lower bound of the spread of offsets, in microseconds.
const LEAST_SPREAD: f32 = 1.0;

#[derive(Clone, Debug, Default)]
pub(super) struct NodeSamples {
    starts: Vec<u32>,
    samples: Vec<u32>,
}

impl NodeSamples {
    pub fn new(nodes: usize, samples: &[Sample]) -> Self {
        let mut starts = vec![0u32; nodes + 1];
        for s in samples {
            starts[s.from.0 as usize + 1] += 1;
            starts[s.to.0 as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut linked = vec![0; samples.len() * 2];
        for (id, s) in (0u32..).zip(samples) {
            for node in [s.from, s.to].map(|n| n.0 as usize) {
                linked[next[node] as usize] = id;
                next[node] += 1;
            }
        }
        Self {
            starts,
            samples: linked,
        }
    }

    pub fn of(&self, node: usize) -> &[u32] {
        &self.samples[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

/// A node's offset in microseconds, and its variance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offset {
    pub micros: f32,
    pub variance: f32,
}

const UNKNOWN: Offset = Offset {
    micros: 0.0,
    variance: f32::INFINITY,
};

#[derive(Clone, Debug, Default)]
pub(super) struct Offsets {
    nodes: Vec<Offset>,
    spread: f32,
}

impl Offsets {
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes: vec![UNKNOWN; nodes],
            spread: LEAST_SPREAD,
        }
    }

    pub fn of(&self, node: NodeId) -> Offset {
        self.nodes.get(node.0 as usize).copied().unwrap_or_default()
    }

    /// The factor by which a sample's residual is smaller for its own weight in its nodes' offsets:
    /// the root of one less its leverage.
    pub fn unfitted(&self, s: &Sample, precision: f32) -> f32 {
        let drawn = (self.of(s.from).variance + self.of(s.to).variance) * precision;
        if drawn.is_finite() {
            (1.0 - drawn).max(LEAST_UNFITTED).sqrt()
        } else {
            1.0
        }
    }

    /// The standard deviation of offsets, in microseconds.
    pub fn spread(&self) -> f32 {
        self.spread
    }

    /// The next fit finds these nodes' offsets from nothing.
    pub fn forget(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            if let Some(offset) = self.nodes.get_mut(node.0 as usize) {
                *offset = UNKNOWN;
            }
        }
    }

    /// Classes and offsets in turns, ending with the classes.
    pub fn fit(
        &mut self,
        classes: &mut PairClasses,
        samples: &[Sample],
        links: &NodeSamples,
        sweeps: usize,
    ) {
        for _ in 0..sweeps {
            classes.fit(samples, self);
            self.sweep(classes, samples, links);
        }
        classes.fit(samples, self);
    }

    /// Every node's offset given the classes and the others' offsets. From nothing: a median, so
    /// that a slow node is found however slow it is; else by weights that fall with the residual,
    /// drawn towards 0.
    fn sweep(&mut self, classes: &PairClasses, samples: &[Sample], links: &NodeSamples) {
        let mut near: Vec<Weighed> = Vec::new();
        let mut new_nodes: Vec<usize> = Vec::new();
        for node in 0..self.nodes.len() {
            near.clear();
            near.extend(links.of(node).iter().filter_map(|&id| {
                let (s, class) = (&samples[id as usize], classes.leaf(id)?);
                let other = if s.from.0 as usize == node {
                    s.to
                } else {
                    s.from
                };
                let other = self.of(other);
                let unsure = if other.variance.is_finite() {
                    other.variance
                } else {
                    0.0
                };
                let precision = (class.sigma.powi(2) + unsure).recip();
                Some(Weighed {
                    micros: s.micros - class.base - other.micros,
                    precision,
                })
            }));
            let before = self.nodes[node];
            self.nodes[node] = if near.is_empty() {
                Offset {
                    micros: 0.0,
                    variance: self.spread.powi(2),
                }
            } else if before.variance.is_finite() {
                self.reweighed(&near, before)
            } else {
                new_nodes.push(node);
                let precision: f32 = near.iter().map(|w| w.precision).sum();
                Offset {
                    micros: weighted_median(&mut near),
                    variance: precision.recip(),
                }
            };
        }
        self.measure_spread(links);
        let spread = self.spread.powi(2);
        for node in new_nodes {
            let offset = &mut self.nodes[node];
            offset.micros *= spread / (spread + offset.variance);
        }
    }

    fn reweighed(&self, near: &[Weighed], mut offset: Offset) -> Offset {
        for _ in 0..REWEIGHTINGS {
            // A node that is far off is drawn back less than one near 0.
            let mut total = (self.spread.powi(2) + offset.micros.powi(2)).recip();
            let mut sum = 0.0;
            for w in near {
                let off = (w.micros - offset.micros).powi(2) * w.precision / HALF_AT.powi(2);
                let weight = w.precision / (1.0 + off);
                total += weight;
                sum += weight * w.micros;
            }
            offset = Offset {
                micros: sum / total,
                variance: total.recip(),
            };
        }
        offset
    }

    fn measure_spread(&mut self, links: &NodeSamples) {
        let measured = || {
            (0..self.nodes.len())
                .filter(|n| !links.of(*n).is_empty())
                .map(|n| self.nodes[n])
        };
        let mut sizes: Vec<f32> = measured().map(|o| o.micros.abs()).collect();
        let mut variances: Vec<f32> = measured().map(|o| o.variance).collect();
        let variance = spread(&mut sizes).powi(2) + median(&mut variances);
        self.spread = variance.sqrt().max(LEAST_SPREAD);
    }
}
