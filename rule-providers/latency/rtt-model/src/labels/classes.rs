//! Classes of pairs, from specific to general, and their typical times.

use std::collections::{BTreeSet, HashMap};

use crate::{
    model::Node,
    statistics::{four_of_five, median, spread},
    tuning::TUNING,
};

/// The least ratio of a prediction to its class's typical time, whatever the nodes' offsets.
const MIN_PART_OF_CLASS: f32 = 0.2;
/// The least ratio of a class's spread to its time: samples of few pairs agree by chance.
const MIN_SPREAD: f32 = 0.005;
/// The least number of samples of a class with an error of its own.
const MIN_SAMPLES_OF_ERROR: usize = 30;
/// The least error of a class, in logarithm.
const MIN_ERROR: f32 = 1e-3;
/// The index that stands for no class.
const NO_CLASS: u32 = u32::MAX;

/// The least time of a class, in multiples of the scale: the offsets of slow nodes may exceed all of
/// its samples.
const MIN_TIME: f32 = 1e-6;

/// A node's labels as hashes of their names within their parents; 0 if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    region: u64,
    zone: u64,
    rack: u64,
    /// The index of the node's zone among all nodes' zones.
    pub zone_index: u32,
}

impl Location {
    /// True if both nodes are in one rack that is known.
    pub fn shares_rack(self, other: Self) -> bool {
        self.rack != 0 && self.rack == other.rack
    }
}

/// The locations of nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locations {
    /// The location of each node; `None` if the node has no labels but others have, or if no node
    /// has this number.
    pub nodes: Vec<Option<Location>>,
    /// The zones of all nodes, as locations without a rack, by their index.
    pub(super) zones: Vec<Location>,
}

impl Locations {
    pub fn new(nodes: &[Node]) -> Self {
        let labelled = nodes.iter().any(Node::is_labelled);
        let mut indexes = HashMap::new();
        let mut locations = Self::default();
        for node in nodes {
            let Node {
                region, zone, rack, ..
            } = *node;
            let counts = node.present() && node.is_labelled() == labelled;
            let location = counts.then(|| {
                let zones = &mut locations.zones;
                let zone_index = *indexes.entry((region, zone)).or_insert_with(|| {
                    let zone_index = zones.len() as u32;
                    zones.push(Location {
                        region,
                        zone,
                        rack: 0,
                        zone_index,
                    });
                    zone_index
                });
                Location {
                    region,
                    zone,
                    rack,
                    zone_index,
                }
            });
            locations.nodes.push(location);
        }
        locations
    }
}

/// The kind of a class with the labels that its pairs share. General kinds come first, so that
/// parents are fitted before their children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    /// Pairs between two regions, or within one region across its zones.
    Regions(u64, u64),
    /// Pairs within any one zone, across its racks.
    AnyZone,
    /// Pairs between two zones, or within one zone across its racks.
    Zones(u64, u64),
    /// Pairs within any one rack of this zone.
    AnyRack(u64),
    Rack(u64),
}

/// Returns the classes of a pair, the most specific first.
fn keys(a: Location, b: Location) -> impl Iterator<Item = Key> {
    let ordered = |a: u64, b: u64| (a.min(b), a.max(b));
    let (low, high) = ordered(a.zone, b.zone);
    let (low_region, high_region) = ordered(a.region, b.region);
    let zoned = a.zone != 0 && b.zone != 0;
    let rack = a.shares_rack(b);
    let same = zoned && low == high;
    let all = [
        rack.then_some(Key::Rack(a.rack)),
        rack.then_some(Key::AnyRack(a.zone)),
        zoned.then_some(Key::Zones(low, high)),
        same.then_some(Key::AnyZone),
        Some(Key::Regions(low_region, high_region)),
    ];
    all.into_iter().flatten()
}

/// A class's figures, in multiples of the fit's scale.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Class {
    /// The typical time without the nodes' offsets.
    pub time: f32,
    /// The standard deviation of times around the class's time plus the nodes' offsets.
    pub spread: f32,
    /// The standard deviation of the logarithm of measured over predicted time.
    pub error: f32,
}

impl Class {
    /// Returns the time of a pair whose nodes have these offsets.
    pub fn predicted(self, offsets: [f32; 2]) -> f32 {
        (self.time + offsets[0] + offsets[1]).max(self.time * MIN_PART_OF_CLASS)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    /// The keys of all classes in rising order, so general classes come first.
    keys: Vec<Key>,
    classes: Vec<Class>,
    /// The index of each class's next more general class.
    parents: Vec<u32>,
    /// The pairs of each class: it is their most specific or second most specific class.
    members: Vec<Vec<u32>>,
    /// The index of each pair's most specific class.
    of_pairs: Vec<u32>,
}

impl Classes {
    /// Finds the classes of measured pairs from the locations of each pair's two nodes.
    pub fn new(pairs: impl Iterator<Item = [Location; 2]> + Clone) -> Self {
        let chain = |[a, b]: [Location; 2]| {
            let mut keys = keys(a, b);
            let [own, parent] = [keys.next(), keys.next()];
            // Times within a zone say nothing about times between zones.
            let last = keys.next().filter(|_| parent != Some(Key::AnyZone));
            [own, parent, last]
        };
        // Each chain is computed twice rather than stored: there are many pairs.
        let with_members = pairs
            .clone()
            .flat_map(|pair| chain(pair).into_iter().take(2));
        let keys: BTreeSet<Key> = with_members.flatten().collect();
        let keys: Vec<Key> = keys.into_iter().collect();
        let index = |key: Option<Key>| {
            let at = key.and_then(|key| keys.binary_search(&key).ok());
            at.map_or(NO_CLASS, |at| at as u32)
        };
        let mut classes = Self {
            classes: vec![Class::default(); keys.len()],
            parents: vec![NO_CLASS; keys.len()],
            members: vec![Vec::new(); keys.len()],
            ..Self::default()
        };
        for (pair, chain) in (0u32..).zip(pairs.map(chain)) {
            let [own, parent, grandparent] = chain.map(index);
            classes.of_pairs.push(own);
            for class in [own, parent].into_iter().filter(|class| *class != NO_CLASS) {
                classes.members[class as usize].push(pair);
            }
            for (class, parent) in [(own, parent), (parent, grandparent)] {
                if let Some(known) = classes.parents.get_mut(class as usize) {
                    *known = parent;
                }
            }
        }
        classes.keys = keys;
        classes
    }

    /// Returns the most specific class with samples for two nodes at these locations.
    pub fn find(&self, a: Location, b: Location) -> Option<Class> {
        let mut known = keys(a, b).filter_map(|key| self.keys.binary_search(&key).ok());
        known.next().map(|at| self.classes[at])
    }

    /// Returns the class of a measured pair.
    pub fn of_pair(&self, pair: u32) -> Class {
        self.classes[self.of_pairs[pair as usize] as usize]
    }

    /// Fits the classes' times and spreads to `rest`, the pairs' times without the nodes' offsets.
    pub fn fit(&mut self, rest: &[f32]) {
        let mut values: Vec<f32> = Vec::new();
        for at in 0..self.classes.len() {
            let parent = self.classes.get(self.parents[at] as usize).copied();
            let members = &self.members[at];
            let count = members.len() as f32;
            values.clear();
            values.extend(members.iter().map(|pair| rest[*pair as usize]));
            if let Some(parent) = parent {
                // Each sample counts twice, the parent's time three times.
                let own = values.len();
                values.extend_from_within(..own);
                values.extend([parent.time; 3]);
            }
            let mut time = median(&mut values);
            if let (Some(parent), Key::Rack(_)) = (parent, self.keys[at]) {
                let prior = TUNING.rack_prior;
                time = (count * time + prior * parent.time) / (count + prior);
            }
            time = time.max(MIN_TIME);
            values.clear();
            values.extend(
                members
                    .iter()
                    .map(|pair| (rest[*pair as usize] - time).abs()),
            );
            let own = match parent {
                Some(parent) if members.len() < TUNING.min_samples_of_spread => parent.spread,
                _ => spread(&mut values),
            };
            let spread = own.max(MIN_SPREAD * time);
            self.classes[at] = Class {
                time,
                spread,
                ..Class::default()
            };
        }
    }

    /// Fits the classes' errors to the absolute residuals of the pairs. A class with few samples
    /// has its parent's error.
    pub fn fit_errors(&mut self, residuals: &[f32]) {
        let usual = four_of_five(&mut residuals.to_vec());
        for at in 0..self.classes.len() {
            let parent = self.classes.get(self.parents[at] as usize);
            let parent_error = parent.map_or(usual, |class| class.error);
            let members = self.members[at].iter();
            let mut own: Vec<f32> = members.map(|pair| residuals[*pair as usize]).collect();
            let error = if own.len() < MIN_SAMPLES_OF_ERROR {
                parent_error
            } else {
                four_of_five(&mut own)
            };
            self.classes[at].error = error.max(MIN_ERROR);
        }
    }

    /// Frees the lists that only fitting needs.
    pub fn forget_pairs(&mut self) {
        self.members = Vec::new();
        self.of_pairs = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_below_the_offsets_of_its_nodes_keeps_a_time_and_a_spread() {
        let location = Location {
            region: 1,
            zone: 1,
            rack: 0,
            zone_index: 0,
        };
        let mut classes = Classes::new(std::iter::repeat_n([location; 2], 3));
        for rest in [[-1.0; 3], [0.0; 3], [MIN_TIME; 3]] {
            classes.fit(&rest);
            let class = classes.of_pair(0);
            assert!(class.time >= MIN_TIME, "{class:?}");
            assert!(class.spread.powi(-2).is_finite(), "{class:?}");
            assert!(class.predicted([-1.0, 0.0]) > 0.0, "{class:?}");
        }
    }
}
