//! The GPUs of a cluster: what a node's devices are and what is left of them
//! ([`inventory`], [`room`], [`mig`], [`dra`]), which requests come ([`popularity`]), and where
//! the next one does least harm ([`policy`], [`board`]).
//!
//! Pure: nothing here knows a cluster's API or waits.

pub mod cost_cache;
pub mod device_annotation;
pub mod dra;
pub mod inventory;
pub mod mig;
pub mod names;
pub mod node_capacity;
pub mod planned_classes;
pub mod policy;
pub mod request_distribution;
pub mod shape;

pub use cost_cache::{CostCache, PlacementError};
pub use inventory::Inventory;
pub use names::Names;
pub use node_capacity::{CardGrant, NodeCapacity, Shortage};
pub use planned_classes::PlannedClasses;
pub use policy::PlacementCost;
pub use request_distribution::{RequestClass, RequestDistribution};
pub use shape::{CARD, CardKind, Shape, SharingMode};
