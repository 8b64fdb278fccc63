//! Models the devices of DRA drivers (`resource.k8s.io/v1`) and the claims on them, to find the
//! devices that are free on a node.
//!
//! The rules are those of the scheduler's allocator in Kubernetes 1.36: KEP-4381 (structured
//! parameters), KEP-4815 (partitionable devices), KEP-5075 (consumable capacity), KEP-5055
//! (device taints). CEL selectors are read in part only: see [`PendingRequest::matches`]. DeviceTaintRules, which are off
//! by default in 1.36, are not supported.

pub use agent::{AGENT_DRIVER, FAULT_TAINT};
pub use cards::DeviceCard;
pub use model::{
    Access, Allocation, Amounts, Capacity, Claim, Class, Count, CounterSet, Device, DeviceId,
    ExactRequest, PoolId, RequestPolicy, Slice, own_name,
};
pub use node::{NodeDevice, NodeDevices};
pub use pool::PoolError;
pub use request::{PendingRequest, pending_requests, requests};
pub use search::DeviceShortage;
pub use selector::is_readable;
pub use store::{DeviceFault, DeviceStore};

mod agent;
mod cards;
mod model;
mod node;
mod pool;
mod request;
mod search;
mod selector;
mod store;

#[cfg(test)]
#[path = "dra/tests/fixtures.rs"]
mod fixtures;
