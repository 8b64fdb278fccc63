//! The agent of the rule provider `gpu-slice`, on each node with GPUs. It reads the cards by NVML,
//! writes them on its node, gives each container exactly the cards that the pod's record names,
//! limits their use, and reports what is used to the provider.

#![warn(missing_docs)]

mod app;
mod assignment;
mod cards;
mod cdi;
mod cgroup;
mod device_plugin;
mod events;
mod giver;
mod injection;
mod inventory;
pub mod limits;
mod metrics;
mod mig;
mod node;
mod nri_plugin;
mod occupancy;
mod pod_resources;
mod pods;
mod reader;
mod stream;
mod usage;

pub use app::{App, Config, example_metrics};
