//! Devices of DRA drivers (`resource.k8s.io/v1`): watched, converted, and what they cost.

mod convert;
mod devices;
mod watch;

pub use convert::{device_class, resource_claim, resource_slice};

pub(crate) use devices::Devices;
pub(crate) use watch::watch;
