//! Converts the objects of `resource.k8s.io/v1`, and computes costs for the devices of DRA drivers.

mod convert;
mod devices;
mod extended;

pub use convert::{device_class, device_store, resource_claim, resource_slice};

pub(crate) use convert::{changed_claims, usable};
pub(crate) use devices::{Devices, PodClaims};
pub(crate) use extended::ExtendedResources;
