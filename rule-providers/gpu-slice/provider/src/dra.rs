mod convert;
mod devices;

pub use convert::{device_class, resource_claim, resource_slice};

pub(crate) use devices::Devices;
