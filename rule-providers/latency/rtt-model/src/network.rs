//! The nodes with their labels, and the measured pairs.

use crate::{Labels, hash};

/// The name and labels of a node. Labels are hashes within their parents' scope; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// The hash of the name; 0 if no node has this number.
    pub key: u64,
    pub location: Location,
    /// True if no node measures this one for the model.
    pub is_excluded: bool,
}

/// A node's labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub region: u64,
    pub zone: u64,
    pub rack: u64,
}

impl Location {
    /// True if both nodes are in one rack that is known.
    pub fn shares_rack(self, other: Self) -> bool {
        self.rack != 0 && self.rack == other.rack
    }
}

impl Node {
    pub fn present(&self) -> bool {
        self.key != 0
    }

    pub fn is_labelled(&self) -> bool {
        self.location != Location::default()
    }

    pub fn new(key: u64, labels: Labels<'_>) -> Self {
        let part = |scope, text: Option<&str>| text.map_or(0, |text| hash::text(scope, text));
        let region = part(1, labels.region);
        let zone = part(region ^ 2, labels.zone);
        let rack = part(zone ^ 3, labels.rack);
        let location = Location { region, zone, rack };
        Self {
            key,
            location,
            is_excluded: false,
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

/// A measured pair of nodes, with both directions combined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub a: u32,
    pub b: u32,
    /// The logarithm of the measured time over the fit's scale.
    pub log: f32,
    /// The number of directions that were measured.
    pub weight: f32,
    /// Half an 80 % error bar of the logarithm, by the samples' own spread; `None` if unknown.
    pub noise: Option<f32>,
}
