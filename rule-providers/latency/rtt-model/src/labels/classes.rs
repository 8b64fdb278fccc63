//! Classes of pairs, from specific to general, and their typical times.

use std::collections::BTreeSet;

use crate::{
    network::Location,
    statistics::{four_of_five, median, spread},
    tuning,
};

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
    let rack = a.shares_rack(b);
    let zoned = a.zone != 0 && b.zone != 0;
    let all = [
        rack.then_some(Key::Rack(a.rack)),
        rack.then_some(Key::AnyRack(a.zone)),
        zoned.then(|| Key::Zones(a.zone.min(b.zone), a.zone.max(b.zone))),
        (zoned && a.zone == b.zone).then_some(Key::AnyZone),
        Some(Key::Regions(a.region.min(b.region), a.region.max(b.region))),
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
    /// Returns the time of a pair whose nodes have these offsets: at least a fifth of the class's.
    pub fn predicted(self, offsets: [f32; 2]) -> f32 {
        (self.time + offsets[0] + offsets[1]).max(self.time * 0.2)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Classes {
    /// The keys of all classes in rising order, so general classes come first.
    keys: Vec<Key>,
    classes: Vec<Class>,
    /// The index of each class's next more general class.
    parents: Vec<Option<usize>>,
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
        let chains = pairs.map(chain);
        let with_members = chains.clone().flat_map(|chain| chain.into_iter().take(2));
        let keys: BTreeSet<Key> = with_members.flatten().collect();
        let keys: Vec<Key> = keys.into_iter().collect();
        let mut classes = Self {
            classes: vec![Class::default(); keys.len()],
            parents: vec![None; keys.len()],
            members: vec![Vec::new(); keys.len()],
            of_pairs: Vec::new(),
            keys,
        };
        for (pair, chain) in (0u32..).zip(chains) {
            let [own, parent, last] = chain.map(|key| classes.keys.binary_search(&key?).ok());
            classes.of_pairs.extend(own.map(|own| own as u32));
            for (class, parent) in [(own, parent), (parent, last)] {
                if let Some(class) = class {
                    classes.members[class].push(pair);
                    classes.parents[class] = parent;
                }
            }
        }
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
        for at in 0..self.classes.len() {
            let parent = self.parents[at].map(|parent| self.classes[parent]);
            let count = self.members[at].len();
            let own = self.members[at].iter().map(|pair| rest[*pair as usize]);
            let mut values: Vec<f32> = own.clone().collect();
            if let Some(parent) = parent {
                // Each sample counts twice, the parent's time three times.
                values.extend(own.clone().chain([parent.time; 3]));
            }
            let mut time = median(&mut values);
            if let (Some(parent), Key::Rack(_)) = (parent, self.keys[at]) {
                let prior = tuning::RACK_PRIOR;
                time = (count as f32 * time + prior * parent.time) / (count as f32 + prior);
            }
            // The offsets of slow nodes may exceed all of its samples.
            time = time.max(1e-6);
            let spread = match parent {
                Some(parent) if count < tuning::MIN_SAMPLES_OF_SPREAD => parent.spread,
                _ => spread(&mut own.map(|rest| (rest - time).abs()).collect::<Vec<f32>>()),
            };
            self.classes[at] = Class {
                time,
                // Samples of few pairs agree by chance.
                spread: spread.max(0.005 * time),
                error: 0.0,
            };
        }
    }

    /// Fits the classes' errors to the absolute residuals of the pairs. A class with fewer than
    /// 30 samples has its parent's error.
    pub fn fit_errors(&mut self, residuals: &[f32]) {
        let usual = four_of_five(&mut residuals.to_vec());
        for at in 0..self.classes.len() {
            let members = self.members[at].iter();
            let mut own: Vec<f32> = members.map(|pair| residuals[*pair as usize]).collect();
            let error = if own.len() < 30 {
                self.parents[at].map_or(usual, |parent| self.classes[parent].error)
            } else {
                four_of_five(&mut own)
            };
            self.classes[at].error = error.max(1e-3);
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
        };
        let mut classes = Classes::new(std::iter::repeat_n([location; 2], 3));
        for rest in [[-1.0; 3], [0.0; 3], [1e-6; 3]] {
            classes.fit(&rest);
            let class = classes.of_pair(0);
            assert!(class.time >= 1e-6, "{class:?}");
            assert!(class.spread.powi(-2).is_finite(), "{class:?}");
            assert!(class.predicted([-1.0, 0.0]) > 0.0, "{class:?}");
        }
    }
}
