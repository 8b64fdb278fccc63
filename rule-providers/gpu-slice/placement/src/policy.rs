//! The placement policies: Tautline's own, and others to compare it with.

mod baselines;
mod fgd;
mod remainder_values;
mod tautline;
mod usable_table;

use std::{fmt, str::FromStr};

use baselines::{BestFit, Packing, Spread};
use fgd::Fgd;
use tautline::Tautline;

use crate::{node_capacity::NodeCapacity, planned_classes::PlannedClasses, shape::Shape};

/// The best placement of a shape on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacementCost {
    /// Cost of the placement: lower is better. Costs of different policies cannot be compared.
    pub cost: i64,
    /// Part of the cost that comes from the node's position.
    pub position_cost: i64,
    /// Index of the card that gives the share; `None`: the shape has no share.
    pub card: Option<u16>,
}

/// A node's free capacity and position, with the values that the policy has precomputed.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    /// Free capacity; in [`Policy::place`], before the placement.
    pub capacity: &'a NodeCapacity,
    /// Result of [`Policy::precompute`] for the capacity.
    pub precomputed: &'a [f64],
    /// Position in the order in which nodes are filled, from 0 (first) to 1. Only Tautline's policy
    /// uses it.
    pub position: f64,
}

/// A rule for choosing nodes and cards. A policy tracks the state of all nodes itself.
pub trait Policy: Send + Sync + fmt::Debug {
    /// Sets the classes of requests to plan for. [`Policy::node_changed`] follows for every node.
    fn plan_for(&mut self, _types: PlannedClasses) {}

    /// Called when a node's capacity has changed. `before` is `None` for a new node, `after` for a
    /// removed one.
    fn node_changed(&mut self, _before: Option<NodeView<'_>>, _after: Option<NodeView<'_>>) {}

    /// Returns whether all precomputed values are void; then they are computed again, and a call of
    /// [`Policy::node_changed`] follows for every node. Called before each request.
    fn refresh(&mut self) -> bool {
        false
    }

    /// Returns the current epoch: costs of an earlier epoch are void. Called before each request.
    fn epoch(&mut self) -> u32 {
        0
    }

    /// Computes the values that all costs on a node use, from the node's capacity only.
    fn precompute(&self, _room: &NodeCapacity) -> Box<[f64]> {
        Box::default()
    }

    /// The largest cost difference between placements that count as equally good, without the
    /// difference of their position costs.
    fn resolution(&self) -> i64 {
        0
    }

    /// Returns the best placement on a node that fits the shape and has cards of a suitable kind.
    fn place(&self, node: NodeView<'_>, shape: &Shape) -> PlacementCost;
}

/// The names of the policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicyName {
    /// Tautline's own policy.
    #[default]
    Tautline,
    /// Fragmentation gradient descent, exactly as published.
    Fgd,
    /// Prefers the node with the least left.
    BestFit,
    /// Prefers cards in use, then nodes in use.
    Packing,
    /// Prefers the node with the most left.
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

    /// Creates the policy, without nodes and classes.
    pub fn build(self) -> Box<dyn Policy> {
        match self {
            Self::Tautline => Box::<Tautline>::default(),
            Self::Fgd => Box::<Fgd>::default(),
            Self::BestFit => Box::new(BestFit),
            Self::Packing => Box::new(Packing),
            Self::Spread => Box::new(Spread),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a text that is not a [`PolicyName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {0:?}; there are {all}", all = PolicyName::ALL.map(PolicyName::as_str).join(", "))]
pub struct PolicyNameError(String);

impl FromStr for PolicyName {
    type Err = PolicyNameError;

    fn from_str(text: &str) -> Result<Self, PolicyNameError> {
        let found = Self::ALL.into_iter().find(|n| n.as_str() == text);
        found.ok_or_else(|| PolicyNameError(text.to_owned()))
    }
}
