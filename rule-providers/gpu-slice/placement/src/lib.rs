//! The GPUs of a cluster: devices and free capacity of a node ([`inventory`], [`node_capacity`],
//! [`mig`], [`dra`]), the distribution of requests ([`request_distribution`]), and the placement
//! ([`policy`], [`cost_cache`]). Pure: no I/O, no Kubernetes API, nothing async.

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
pub use names::Names;
pub use node_capacity::{CardGrant, NodeCapacity, Shortage};
pub use planned_classes::PlannedClasses;
pub use policy::PlacementCost;
pub use request_distribution::{RequestClass, RequestDistribution};
pub use shape::{CARD, CardKind, Shape, SharingMode};
pub use topology::{CardLinks, Topology};
