//! Places GPU requests on the nodes and cards of a cluster: computes what a placement on each node
//! costs and which cards it takes. By Tautline's policy it costs what it takes from future pods,
//! whose distribution is learned from earlier requests. The crate is pure: no I/O, no Kubernetes
//! API, nothing async.
//!
//! ```text
//! inventory, mig, dra ──▶ node_capacity ──┐
//! request_distribution ───────────────────┴──▶ policy, cost_cache ──▶ a node's cost and cards
//! ```

#![warn(missing_docs)]

pub mod containers;
pub mod cost_cache;
pub mod device_annotation;
pub mod dra;
pub mod inventory;
pub mod mig;
pub mod names;
pub mod node_capacity;
pub mod node_inventory;
pub mod planned_classes;
pub mod policy;
pub mod request_distribution;
pub mod shape;
pub mod topology;

pub use cost_cache::{CostCache, PlacementError};
pub use inventory::Inventory;
pub use node_capacity::{CardGrant, NodeCapacity, Shortage};
pub use planned_classes::PlannedClasses;
pub use policy::PlacementCost;
pub use request_distribution::{RequestClass, RequestDistribution};
pub use shape::{CARD_MILLI, CardKind, Shape, SharingMode};
pub use topology::{CardLinks, Topology};
