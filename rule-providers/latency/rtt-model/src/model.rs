use std::collections::HashMap;

use crate::{Labels, NodeId, coords::Coords, hash, recovery::History};

/// The longest accepted round-trip time: ten seconds, in microseconds.
const MAX_MICROS: f32 = 10e6;
/// The lower bound of a sample's own spread, in logarithm.
const MIN_SPREAD: f32 = 1e-4;
/// The upper bound of a sample's own spread, in logarithm.
const MAX_SPREAD: f32 = 1.0;
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

/// The name and labels of a node. Labels are hashes within their parents' scope; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// The hash of the name; 0 if no node has this number.
    pub key: u64,
    pub region: u64,
    pub zone: u64,
    pub rack: u64,
}

impl Node {
    pub fn present(&self) -> bool {
        self.key != 0
    }

    pub fn is_labelled(&self) -> bool {
        [self.region, self.zone, self.rack] != [0; 3]
    }

    fn new(key: u64, labels: Labels<'_>) -> Self {
        let part = |scope, text: Option<&str>| text.map_or(0, |text| hash::text(scope, text));
        let region = part(1, labels.region);
        let zone = part(region ^ 2, labels.zone);
        let rack = part(zone ^ 3, labels.rack);
        Self {
            key,
            region,
            zone,
            rack,
        }
    }
}

/// A sample: the round-trip time that a node measured to another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub to: u32,
    pub micros: f32,
    /// Half an 80 % error bar of the logarithm; `None` if unknown.
    pub spread: Option<f32>,
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
    pub(crate) places: Option<Places>,
    /// The coordinates of fits without the held-out pairs, one for each fold.
    pub(crate) unseen: Vec<Places>,
    pub(crate) history: History,
}

#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The unit of the coordinates, in microseconds.
    pub scale: f32,
    pub coords: Coords,
    /// True for each node whose coordinates come from samples.
    pub placed: Vec<bool>,
    /// True if the usual corrections of these places did harm, because samples are noisy.
    pub noisy: bool,
    /// The component of each node: nodes that samples connect have the same number. Empty if
    /// unknown.
    pub components: Vec<u32>,
}

impl Model {
    /// Returns a model without nodes.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Returns a model of these nodes without samples; `None` if two nodes have the same name.
    pub(crate) fn rebuild(options: Options, nodes: Vec<Node>) -> Option<Self> {
        let mut model = Self::new(options);
        model.samples = vec![Vec::new(); nodes.len()];
        for (slot, node) in nodes.iter().enumerate() {
            if !node.present() {
                model.free.push(slot as u32);
            } else if model.by_key.insert(node.key, slot as u32).is_some() {
                return None;
            }
        }
        model.nodes = nodes;
        Some(model)
    }

    /// Adds a node under a unique name (a UID) and returns its number. If the name is known, its
    /// number stays and its labels are replaced.
    pub fn insert(&mut self, name: &str, labels: Labels<'_>) -> NodeId {
        let key = hash::text(0, name);
        let node = Node::new(key, labels);
        if let Some(&slot) = self.by_key.get(&key) {
            self.nodes[slot as usize] = node;
            return NodeId(slot);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            self.samples.push(Vec::new());
            (self.nodes.len() - 1) as u32
        });
        self.nodes[slot as usize] = node;
        self.by_key.insert(key, slot);
        NodeId(slot)
    }

    /// Returns the number of a node by name; `None` if it was never inserted or was removed.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        let slot = self.by_key.get(&hash::text(0, name))?;
        Some(NodeId(*slot))
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
        if let Some(known) = self.nodes.get_mut(node.slot()).filter(|n| n.present()) {
            *known = Node::new(known.key, labels);
        }
    }

    /// Removes a node and all samples from it and to it; ignores unknown nodes.
    pub fn remove(&mut self, node: NodeId) {
        let Some(known) = self.nodes.get_mut(node.slot()).filter(|n| n.present()) else {
            return;
        };
        self.by_key.remove(&known.key);
        *known = Node::default();
        self.samples[node.slot()] = Vec::new();
        for samples in &mut self.samples {
            if let Ok(at) = samples.binary_search_by_key(&node.0, |s| s.to) {
                samples.remove(at);
            }
        }
        for places in self.places.iter_mut().chain(&mut self.unseen) {
            if let Some(placed) = places.placed.get_mut(node.slot()) {
                *placed = false;
            }
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
        let known = |node: NodeId| self.nodes.get(node.slot()).is_some_and(Node::present);
        let sane = micros > 0.0 && micros <= MAX_MICROS;
        if !sane || from == to || !known(from) || !known(to) {
            return false;
        }
        let spread = spread.filter(|spread| spread.is_finite() && *spread >= 0.0);
        let sample = Report {
            to: to.0,
            micros: micros.max(1.0),
            spread: spread.map(|spread| spread.clamp(MIN_SPREAD, MAX_SPREAD)),
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
        samples.get(at).map(|s| s.micros)
    }
}
