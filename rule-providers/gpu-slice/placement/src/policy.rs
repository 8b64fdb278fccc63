mod best_fit;
mod fgd;
mod packing;
mod remainder_values;
mod spread;
mod tautline;
mod usable_table;

use std::{fmt, str::FromStr};

pub use fgd::Fgd;

use crate::{node_capacity::NodeCapacity, planned_classes::PlannedClasses, shape::Shape};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementCost {
    pub cost: i64,
    /// The part of the cost that comes from the node's position.
    pub position_cost: i64,
    pub card: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    pub capacity: &'a NodeCapacity,
    /// The result of [`Policy::precompute`] for the capacity.
    pub precomputed: &'a [f64],
    pub position: f64,
}

impl<'a> NodeView<'a> {
    pub fn new(capacity: &'a NodeCapacity, base: &'a [f64], position: f64) -> Self {
        Self {
            capacity,
            precomputed: base,
            position,
        }
    }
}

/// A rule for choosing nodes and cards. It tracks the other nodes itself.
pub trait Policy: Send + Sync + fmt::Debug {
    /// The distribution has changed; [`Policy::node_changed`] follows for every node.
    fn plan_for(&mut self, _types: PlannedClasses) {}

    fn node_changed(&mut self, _before: Option<NodeView<'_>>, _after: Option<NodeView<'_>>) {}

    /// Called before each request. Returns whether all precomputed values are void; then they
    /// are computed again, and [`Policy::node_changed`] follows for every node.
    fn refresh(&mut self) -> bool {
        false
    }

    /// Costs of an earlier epoch are void. Called before each request.
    fn epoch(&mut self) -> u32 {
        0
    }

    /// Values for all costs on a node, from its capacity only.
    fn precompute(&self, _room: &NodeCapacity) -> Box<[f64]> {
        Box::default()
    }

    /// The largest cost difference, without the position's, of equally good placements.
    fn resolution(&self) -> i64 {
        0
    }

    /// The best place on a node that fits the shape and has a suitable kind.
    fn place(&self, node: NodeView<'_>, shape: &Shape) -> PlacementCost;
}

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicyName {
    /// Tautline's own.
    #[default]
    Tautline,
    /// Fragmentation gradient descent, exactly as published.
    Fgd,
    /// The node with the least left.
    BestFit,
    /// Cards in use first, then nodes in use.
    Packing,
    /// The node with most left.
    Spread,
}

impl PolicyName {
    pub const ALL: [Self; 5] = [
        Self::Tautline,
        Self::Fgd,
        Self::BestFit,
        Self::Packing,
        Self::Spread,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tautline => "tautline",
            Self::Fgd => "fgd",
            Self::BestFit => "best-fit",
            Self::Packing => "packing",
            Self::Spread => "spread",
        }
    }

    pub fn build(self) -> Box<dyn Policy> {
        match self {
            Self::Tautline => Box::<tautline::Tautline>::default(),
            Self::Fgd => Box::<Fgd>::default(),
            Self::BestFit => Box::new(best_fit::BestFit),
            Self::Packing => Box::new(packing::Packing),
            Self::Spread => Box::new(spread::Spread),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|n| n.as_str() == text);
        found.ok_or_else(|| {
            let all = Self::ALL.map(Self::as_str).join(", ");
            format!("there is no policy {text:?}; there are {all}")
        })
    }
}
