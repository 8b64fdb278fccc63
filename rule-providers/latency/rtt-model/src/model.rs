use std::collections::HashMap;

use crate::{
    Labels, NodeId,
    coords::{CLIP, Coords, NOISY_CLIP, Pace, Pair},
    fit::Fit,
    hash,
    labels::{LabelFit, LabelStatus, Place, Sample},
};

/// Round-trip times beyond ten seconds are garbage.
const LONGEST_MICROS: f32 = 10e6;
/// The most samples stored of a node.
const MOST_TARGETS: usize = 1_024;
/// A fit starts from nothing when more than one measured node in so many is new.
const FEW: usize = 5;

/// How a model works; the defaults serve clusters from 3 to some 10,000 nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Replicas with the same seed choose the same targets.
    pub seed: u64,
    /// Gradient steps of a fit that starts from nothing.
    pub cold_rounds: usize,
    /// Gradient steps of a fit that continues from the last one.
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

/// Labels as hashes within their parents' scope; 0: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// The name's hash; 0 where no node has this number.
    pub key: u64,
    pub region: u64,
    pub zone: u64,
    pub rack: u64,
}

impl Node {
    pub fn present(&self) -> bool {
        self.key != 0
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

/// Nodes, their labels and samples, and the coordinates of the last fit.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(crate) options: Options,
    pub(crate) nodes: Vec<Node>,
    /// Per node, what it measured: target and microseconds, by target.
    pub(crate) samples: Vec<Vec<(u32, f32)>>,
    by_key: HashMap<u64, u32>,
    free: Vec<u32>,
    /// Removed since the last fit.
    resting: Vec<u32>,
    pub(crate) places: Option<Places>,
}

#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Microseconds a unit.
    pub scale: f32,
    pub coords: Coords,
    pub placed: Vec<bool>,
    pub noisy: bool,
}

impl Model {
    /// A model without nodes.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// A model without samples; `None` if two nodes have one name.
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

    /// Adds a node under a unique name (a UID); a known name keeps its number and takes the labels.
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

    /// The number of a node by name; `None`: it was never inserted, or was removed.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        let slot = self.by_key.get(&hash::text(0, name))?;
        Some(NodeId(*slot))
    }

    /// Number of nodes, without the removed ones.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are no nodes.
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
            if let Ok(at) = samples.binary_search_by_key(&node.0, |s| s.0) {
                samples.remove(at);
            }
        }
        if let Some(places) = &mut self.places
            && let Some(placed) = places.placed.get_mut(node.slot())
        {
            *placed = false;
        }
        self.resting.push(node.0);
    }

    /// Replaces the sample from `from` to `to` (a filtered figure); under a microsecond counts as
    /// one. False if it is no number, not above 0, or over ten seconds; if a node is unknown or
    /// both are the same; or if `from` has too many targets.
    pub fn observe(&mut self, from: NodeId, to: NodeId, micros: f32) -> bool {
        let known = |node: NodeId| self.nodes.get(node.slot()).is_some_and(Node::present);
        let sane = micros > 0.0 && micros <= LONGEST_MICROS;
        if !sane || from == to || !known(from) || !known(to) {
            return false;
        }
        let micros = micros.max(1.0);
        let samples = &mut self.samples[from.slot()];
        match samples.binary_search_by_key(&to.0, |s| s.0) {
            Ok(at) => samples[at].1 = micros,
            Err(_) if samples.len() >= MOST_TARGETS => return false,
            Err(at) => {
                // A doubled list of each node would be half empty.
                if samples.len() == samples.capacity() {
                    samples.reserve_exact(8);
                }
                samples.insert(at, (to.0, micros));
            }
        }
        true
    }

    /// Removes the sample from `from` to `to`, if there is one.
    pub fn forget(&mut self, from: NodeId, to: NodeId) {
        if let Some(samples) = self.samples.get_mut(from.slot())
            && let Ok(at) = samples.binary_search_by_key(&to.0, |s| s.0)
        {
            samples.remove(at);
        }
    }

    /// In microseconds.
    pub fn sample(&self, from: NodeId, to: NodeId) -> Option<f32> {
        let samples = self.samples.get(from.slot())?;
        let at = samples.binary_search_by_key(&to.0, |s| s.0).ok()?;
        samples.get(at).map(|s| s.1)
    }

    /// Fits all samples: from the last fit, or from nothing if there is none or too much is new.
    /// Numbers of removed nodes become free.
    pub fn fit(&mut self) -> Fit {
        self.free.append(&mut self.resting);
        let n = self.nodes.len();
        let mut places = self.places.take();
        let scale = match &places {
            Some(places) => places.scale,
            None => self.scale(),
        };
        let labels = self.label_fit();
        let pairs = self.pairs(scale, labels.as_ref());
        let mut measured = vec![false; n];
        for pair in &pairs {
            measured[pair.a as usize] = true;
            measured[pair.b as usize] = true;
        }
        if let Some(known) = &mut places {
            known.placed.resize(n, false);
            let new = (0..n).filter(|&i| measured[i] && !known.placed[i]).count();
            let all = measured.iter().filter(|&&m| m).count();
            let drift = self.scale() / scale;
            if new * FEW > all || !(0.5..=2.0).contains(&drift) {
                return self.cold();
            }
        }
        let coords = self.placed(places, &pairs);
        let fit = Fit::new(scale, &coords, &pairs, &measured, labels);
        self.places = Some(Places {
            scale,
            coords,
            placed: measured,
            noisy: fit.noisy(),
        });
        fit
    }

    fn placed(&self, places: Option<Places>, pairs: &[Pair]) -> Coords {
        let keys = self.nodes.iter().map(|node| node.key);
        let seed = self.options.seed;
        let Some(known) = places else {
            let mut coords = Coords::scatter(keys, seed);
            // Together from the start, near pairs would hold each other at their random places.
            let far = Pace {
                rounds: self.options.cold_rounds / 2,
                first: 0.3,
                last: 0.003,
                far_first: true,
                clip: CLIP,
            };
            coords.descend(pairs, far);
            let all = Pace {
                rounds: self.options.cold_rounds / 2,
                first: 0.02,
                last: 0.0005,
                far_first: false,
                clip: CLIP,
            };
            coords.descend(pairs, all);
            return coords;
        };
        let mut coords = known.coords;
        for (slot, key) in keys.enumerate() {
            if slot >= coords.points.len() {
                coords.push(key, seed);
            } else if !known.placed[slot] {
                coords.place(slot, key, seed);
            }
        }
        coords.settle(pairs, &known.placed);
        // Larger steps would undo what near pairs have found.
        let pace = Pace {
            rounds: self.options.warm_rounds,
            first: 0.005,
            last: 0.0005,
            far_first: false,
            clip: if known.noisy { NOISY_CLIP } else { CLIP },
        };
        coords.descend(pairs, pace);
        coords
    }

    /// Drops all coordinates, but no samples: the next fit starts from nothing.
    pub fn forget_places(&mut self) {
        self.places = None;
    }

    fn cold(&mut self) -> Fit {
        self.forget_places();
        self.fit()
    }

    fn label_fit(&self) -> Option<LabelFit> {
        let parts = |node: &Node| [node.region, node.zone, node.rack];
        let mut names: Vec<u64> = self.nodes.iter().flat_map(parts).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| *name != 0);
        if names.is_empty() {
            return None;
        }
        let number = |name: u64| Some(names.binary_search(&name).ok()? as u32);
        let place = |node: &Node| Place {
            region: number(node.region),
            zone: number(node.zone),
            rack: number(node.rack),
        };
        let places: Vec<Place> = self.nodes.iter().map(place).collect();
        let samples = (0u32..).zip(&self.samples).flat_map(|(from, targets)| {
            targets.iter().map(move |&(to, micros)| Sample {
                from: NodeId(from),
                to: NodeId(to),
                micros,
            })
        });
        Some(LabelFit::new(&places, samples))
    }

    /// The unit of the coordinates in microseconds: the mean sample, each counted as at most twice
    /// the 90th percentile. The median would be tiny where most samples are of near nodes.
    fn scale(&self) -> f32 {
        let mut all: Vec<f32> = self.samples.iter().flatten().map(|s| s.1).collect();
        if all.is_empty() {
            return 1.0;
        }
        let at = (all.len() - 1) * 9 / 10;
        let most = 2.0 * *all.select_nth_unstable_by(at, f32::total_cmp).1;
        let sum: f64 = all.iter().map(|micros| f64::from(micros.min(most))).sum();
        (sum / all.len() as f64) as f32
    }

    /// All measured pairs, lower number first, in order, without reports that others contradict.
    fn pairs(&self, scale: f32, labels: Option<&LabelFit>) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = Vec::new();
        for (from, samples) in self.samples.iter().enumerate() {
            let standing = labels.map(|fit| fit.status(NodeId(from as u32)));
            if standing == Some(LabelStatus::Misreports) {
                continue;
            }
            pairs.extend(samples.iter().map(|&(to, micros)| Pair {
                a: to.min(from as u32),
                b: to.max(from as u32),
                log: (micros / scale).ln(),
                weight: 1.0,
            }));
        }
        // Stable, so that both directions are always summed in the same order.
        pairs.sort_by_key(|pair| (pair.a, pair.b));
        pairs.dedup_by(|next, first| {
            let same = (next.a, next.b) == (first.a, first.b);
            if same {
                first.log = (first.log + next.log) / 2.0;
                first.weight += next.weight;
            }
            same
        });
        pairs
    }
}
