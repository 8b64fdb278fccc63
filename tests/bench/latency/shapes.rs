//! What the synthetic networks of `made` are: no structure at all, or one oddity each.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    None,
    /// All nodes are on one switch; racks are labelled, but mean nothing.
    Flat,
    /// All nodes of some racks report a third, or three times, of what they measure.
    Lies,
    /// All nodes of some racks have the labels of another zone.
    Moved,
    /// A quarter of the zone pairs, and of the pairs of providers between regions, take detours.
    Detours,
    /// One node in twenty is near to all: each region has an instance.
    Anycast,
    /// All nodes are on one switch, and each sample waits in queues.
    Queues,
    /// One sample in fifty is late, and so are all five of one measurement in thirty.
    Stalls,
}

impl Oddity {
    /// True if all nodes are on one switch.
    pub fn is_flat(self) -> bool {
        matches!(self, Self::Flat | Self::Queues)
    }
}

/// What a network is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub name: &'static str,
    pub nodes: usize,
    pub regions: usize,
    /// Zones of a region, and nodes of a rack.
    pub zones: usize,
    pub rack: usize,
    /// The standard deviation of samples' logarithm.
    pub noise: f64,
    pub oddity: Oddity,
}

pub const fn shape(name: &'static str, nodes: usize, regions: usize, oddity: Oddity) -> Shape {
    Shape {
        name,
        nodes,
        regions,
        zones: 3,
        rack: 20,
        noise: 0.05,
        oddity,
    }
}

pub const SHAPES: [Shape; 10] = [
    Shape {
        noise: 0.35,
        ..shape("lan-queues", 195, 1, Oddity::Queues)
    },
    shape("lan", 300, 1, Oddity::Flat),
    Shape {
        noise: 0.4,
        ..shape("lan-noisy", 300, 1, Oddity::Flat)
    },
    shape("region", 360, 1, Oddity::None),
    Shape {
        noise: 0.004,
        ..shape("sites", 360, 4, Oddity::None)
    },
    shape("lies", 360, 4, Oddity::Lies),
    shape("moved", 360, 4, Oddity::Moved),
    shape("detours", 360, 6, Oddity::Detours),
    shape("anycast", 360, 4, Oddity::Anycast),
    shape("stalls", 360, 4, Oddity::Stalls),
];

/// The network that is cut, or changes: either side of a cut has near regions and far ones.
pub const CHANGING: Shape = Shape {
    noise: 0.02,
    ..shape("changing", 360, 6, Oddity::None)
};
