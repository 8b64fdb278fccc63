use std::collections::HashMap;

use crate::{
    Labels, NodeId, hash,
    last_fit::LastFit,
    network::{Node, Pair, Report},
};

/// The longest accepted round-trip time: ten seconds, in microseconds.
const MAX_MICROS: f32 = 10e6;
/// The largest number of samples stored for a node.
const MAX_TARGETS_PER_NODE: usize = 1_024;

/// The options of a model; the defaults serve clusters from 3 to some 10,000 nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The seed of all random choices: replicas with the same seed choose the same targets.
    pub seed: u64,
    /// The number of gradient steps of a fit that starts from scratch.
    pub cold_rounds: usize,
    /// The number of gradient steps of a fit that continues from the last one.
    pub warm_rounds: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            cold_rounds: 600,
            warm_rounds: 100,
        }
    }
}

/// The nodes with their labels and samples, and the coordinates of the last fit.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(crate) options: Options,
    pub(crate) nodes: Vec<Node>,
    /// The samples that each node measured, sorted by target.
    pub(crate) samples: Vec<Vec<Report>>,
    by_key: HashMap<u64, u32>,
    /// The numbers that new nodes can take.
    pub(crate) free: Vec<u32>,
    /// The numbers of nodes removed since the last fit.
    pub(crate) resting: Vec<u32>,
    pub(crate) last: Option<LastFit>,
}

impl Model {
    /// Returns a model without nodes.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Adds a node under a unique name (a UID) and returns its number. If the name is known, its
    /// number stays and its labels are replaced.
    pub fn insert(&mut self, name: &str, labels: Labels<'_>) -> NodeId {
        let key = hash::text(0, name);
        let slot = *self.by_key.entry(key).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.nodes.push(Node::default());
                self.samples.push(Vec::new());
                (self.nodes.len() - 1) as u32
            })
        });
        self.nodes[slot as usize] = Node::new(key, labels);
        NodeId(slot)
    }

    /// Keeps a node from being chosen as a target; ignores unknown nodes.
    pub fn exclude(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(node.slot()).filter(|n| n.present()) {
            node.is_excluded = true;
        }
    }

    /// Returns the number of a node by name; `None` if it was never inserted or was removed.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        let slot = self.by_key.get(&hash::text(0, name))?;
        Some(NodeId(*slot))
    }

    /// Returns the node with this number; `None` if it was removed.
    pub(crate) fn present(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(node.slot()).filter(|node| node.present())
    }

    /// Returns the number of nodes, without the removed ones.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns whether the model has no nodes.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Replaces a node's labels; ignores unknown nodes.
    pub fn relabel(&mut self, node: NodeId, labels: Labels<'_>) {
        if let Some(known) = self.present(node) {
            self.nodes[node.slot()] = Node {
                is_excluded: known.is_excluded,
                ..Node::new(known.key, labels)
            };
        }
    }

    /// Removes a node and all samples from it and to it; ignores unknown nodes.
    pub fn remove(&mut self, node: NodeId) {
        let Some(key) = self.present(node).map(|known| known.key) else {
            return;
        };
        self.by_key.remove(&key);
        self.nodes[node.slot()] = Node::default();
        self.samples[node.slot()] = Vec::new();
        for from in 0..self.samples.len() as u32 {
            self.forget(NodeId(from), node);
        }
        if let Some(last) = &mut self.last {
            last.forget(node);
        }
        self.resting.push(node.0);
    }

    /// Replaces the sample from `from` to `to`, a filtered figure; less than a microsecond counts
    /// as one. `spread` is half the range of the logarithm that holds four of five such figures,
    /// `None` if unknown; for a median of five samples, it is half the range that holds the middle
    /// half of the samples.
    ///
    /// Returns false and stores nothing if `micros` is not a number, not above 0, or over ten
    /// seconds; if a node is unknown or both are the same; or if `from` has too many targets.
    pub fn observe(&mut self, from: NodeId, to: NodeId, micros: f32, spread: Option<f32>) -> bool {
        let sane = micros > 0.0 && micros <= MAX_MICROS && from != to;
        if !sane || self.present(from).is_none() || self.present(to).is_none() {
            return false;
        }
        let spread = spread.filter(|spread| spread.is_finite() && *spread >= 0.0);
        let sample = Report {
            to: to.0,
            micros: micros.max(1.0),
            spread: spread.map(|spread| spread.clamp(1e-4, 1.0)),
        };
        let samples = &mut self.samples[from.slot()];
        match samples.binary_search_by_key(&to.0, |s| s.to) {
            Ok(at) => samples[at] = sample,
            Err(_) if samples.len() >= MAX_TARGETS_PER_NODE => return false,
            Err(at) => {
                // Capacity that doubles would leave each node's list up to half empty.
                if samples.len() == samples.capacity() {
                    samples.reserve_exact(8);
                }
                samples.insert(at, sample);
            }
        }
        true
    }

    /// Removes the sample from `from` to `to`, if there is one.
    pub fn forget(&mut self, from: NodeId, to: NodeId) {
        if let Some(samples) = self.samples.get_mut(from.slot())
            && let Ok(at) = samples.binary_search_by_key(&to.0, |s| s.to)
        {
            samples.remove(at);
        }
    }

    /// Returns the last sample from `from` to `to`, in microseconds; `None` without a sample.
    pub fn sample(&self, from: NodeId, to: NodeId) -> Option<f32> {
        let samples = self.samples.get(from.slot())?;
        let at = samples.binary_search_by_key(&to.0, |s| s.to).ok()?;
        Some(samples[at].micros)
    }

    /// Returns the unit of the coordinates, in microseconds: the mean of all samples, each counted
    /// as at most twice the 90th percentile. The median would be tiny if most samples are of near
    /// nodes.
    pub(crate) fn scale(&self) -> f32 {
        let mut all: Vec<f32> = self.samples.iter().flatten().map(|s| s.micros).collect();
        if all.is_empty() {
            return 1.0;
        }
        let at = (all.len() - 1) * 9 / 10;
        let most = 2.0 * *all.select_nth_unstable_by(at, f32::total_cmp).1;
        let sum: f64 = all.iter().map(|micros| f64::from(micros.min(most))).sum();
        (sum / all.len() as f64) as f32
    }

    /// Returns all measured pairs in order, each with the lower number first.
    pub(crate) fn pairs(&self, scale: f32) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = Vec::new();
        for (from, samples) in (0u32..).zip(&self.samples) {
            pairs.extend(samples.iter().map(|sample| Pair {
                a: sample.to.min(from),
                b: sample.to.max(from),
                log: (sample.micros / scale).ln(),
                weight: 1.0,
                // Few figures understate their spread.
                noise: sample.spread.map(|spread| 1.1 * spread),
            }));
        }
        // The sort is stable, so that both directions are always summed in the same order.
        pairs.sort_by_key(|pair| (pair.a, pair.b));
        pairs.dedup_by(|next, first| {
            let same = (next.a, next.b) == (first.a, first.b);
            if same {
                first.log = (first.log + next.log) / 2.0;
                first.weight += next.weight;
                first.noise = match (first.noise, next.noise) {
                    (Some(one), Some(other)) => Some(one.hypot(other) / 2.0),
                    (one, other) => one.or(other).map(|noise| noise / 2.0f32.sqrt()),
                };
            }
            same
        });
        pairs
    }
}
