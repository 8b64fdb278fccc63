//! Devices that DRA drivers publish (`resource.k8s.io/v1`), what claims hold of
//! them, and what is left on a node.
//!
//! [`Pools`] keeps ResourceSlices, ResourceClaims and DeviceClasses; [`Pools::free`]
//! gives a node's devices with what is left of each, and [`ask_of`] what a pod's
//! claims want. Rules are those of the scheduler's own allocator in Kubernetes
//! 1.36: KEP-4381 (structured parameters), KEP-4815 (partitionable devices),
//! KEP-5075 (consumable capacity), KEP-5055 (device taints). CEL selectors are
//! not evaluated: see [`Conditions`]. DeviceTaintRules are not read: they are off
//! by default in 1.36.

pub use ask::{Ask, Match, Part, ask_of};
pub use cards::Card;
pub use counters::Counters;
pub use fault::Fault;
pub use model::{
    Access, Allocation, Amounts, Attribute, Capacity, Claim, Class, Count, CounterSet, Device,
    DeviceId, Policy, PoolId, Request, Slice, Wanted,
};
pub use node::{NodeDevices, Offered, Refusal};
pub use pool::Unusable;
pub use selector::{Conditions, Subject};
pub use store::Pools;

mod ask;
mod cards;
mod counters;
mod fault;
mod model;
mod node;
mod pool;
mod selector;
mod store;

#[cfg(test)]
mod fixtures;
