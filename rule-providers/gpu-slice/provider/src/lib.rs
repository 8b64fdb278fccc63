//! Provides the rule `gpu-slice`: ranks nodes by their GPUs, and reserves cards for pods. A node is
//! the cheapest if its remaining GPUs are of most use to later pods.
//!
//! ```text
//! nodes, pods, devices ──▶ inventory ──▶ costs of nodes ──▶ EndpointCost, WatchCosts
//! Reserve, at bind ──▶ grant of cards ──▶ annotation of the pod ──▶ agent on its node
//! ```

#![warn(missing_docs)]

#[cfg(test)]
mod agent_claims_tests;
pub mod agents;
mod allocate;
mod answers;
mod assumed;
mod cluster_inventory;
mod compliance;
mod cost;
pub mod dra;
mod fit;
mod gpu_request;
pub mod inspection;
mod pool_shape;
mod process;
mod provider;
pub mod replicas;
pub mod report;
mod request_learner;
mod state;
mod use_compliance;
mod use_store;
mod uses;

use prometheus_client::registry::Registry;
use tautline_runtime::watch::WatchMetrics;

pub use crate::{
    cluster_inventory::{Config, NodeOrder},
    fit::{Fit, Location, Unfit},
    gpu_request::pod_shape,
    inspection::Inspection,
    process::{ProcessConfig, run},
    provider::GpuSlice,
};

pub(crate) const RULE: &str = "gpu-slice";

/// Registers all metrics of the process, each with one series, for the reference of metrics.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    tautline_sdk::example_metrics(registry);
    provider::Metrics::example("", registry);
    use_store::AgentMetrics::example("", registry);
    replicas::Metrics::example("", registry);
    WatchMetrics::example("", registry);
}
