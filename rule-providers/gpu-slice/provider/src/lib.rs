//! The rule provider of `gpu-slice`: nodes that can give a pod its GPUs, cheapest where the GPUs
//! left are of most use to the pods to come.
//!
//! The request comes from the pod itself (`nvidia.com/gpu`, `nvidia.com/gpu-shared`,
//! `nvidia.com/mig-<profile>`) or from the rule ([`gpu_request`]). [`cluster_inventory`] keeps
//! what is left of every card, and a placement policy gives the cost of a node
//! ([`tautline_gpu_placement::policy`]).

mod allocate;
mod answer_cache;
mod answers;
mod cluster_inventory;
mod compliance;
mod config;
mod cost;
mod counted_units;
pub mod dra;
mod dra_watch;
mod fit;
mod gpu_request;
mod grant;
pub mod inspection;
mod metrics;
mod pod_holdings;
mod pool_shape;
mod process;
mod provider;
pub mod replicas;
mod request_learner;
mod state;
mod unfit;

pub use crate::{
    config::{Config, NodeOrder},
    fit::{Fit, Location},
    gpu_request::pod_shape,
    inspection::Inspection,
    process::{ProcessConfig, run},
    provider::GpuSlice,
    unfit::Unfit,
};

/// The rule that this provider answers for.
pub const RULE: &str = "gpu-slice";
