//! The placement policies: Tautline's own, and others to compare it with.

mod best_fit;
mod fgd;
mod packing;
mod remainder_values;
mod spread;
mod tautline;
mod usable_table;

use std::{fmt, str::FromStr};

use fgd::Fgd;

use crate::{node_capacity::NodeCapacity, planned_classes::PlannedClasses, shape::Shape};

/// The best placement of a shape on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementCost {
    /// Lower is better. Costs of different policies cannot be compared.
    pub cost: i64,
    /// The part of the cost that comes from the node's position.
    pub position_cost: i64,
    /// Index of the card that gives the share; `None`: the shape has no share.
    pub card: Option<u16>,
}

/// A node's free capacity and position, with what the policy has computed for them.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    /// Free capacity, in [`Policy::place`] before the placement.
    pub capacity: &'a NodeCapacity,
    /// The result of [`Policy::precompute`] for the capacity.
    pub precomputed: &'a [f64],
    /// Order in which nodes are filled, from 0 (first) to 1. Only Tautline's policy uses it.
    pub position: f64,
}

impl<'a> NodeView<'a> {
    pub(crate) fn new(capacity: &'a NodeCapacity, base: &'a [f64], position: f64) -> Self {
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

    /// A node's capacity has changed. `before` is `None` for a new node, `after` for a removed one.
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
    /// All policies, Tautline's first.
    pub const ALL: [Self; 5] = [
        Self::Tautline,
        Self::Fgd,
        Self::BestFit,
        Self::Packing,
        Self::Spread,
    ];

    /// The name in options and reports, such as `best-fit`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tautline => "tautline",
            Self::Fgd => "fgd",
            Self::BestFit => "best-fit",
            Self::Packing => "packing",
            Self::Spread => "spread",
        }
    }

    /// A new policy, which knows no nodes and no classes yet.
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
