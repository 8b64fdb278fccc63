//! Provides the rule `gpu-slice`: ranks nodes by their GPUs, and reserves cards for pods. A node is
//! the cheapest if its remaining GPUs are of most use to later pods.
//!
//! ```text
//! nodes, pods, devices ──▶ inventory ──▶ costs of nodes ──▶ EndpointCost, WatchCosts
//! Reserve, at bind ──▶ grant of cards ──▶ annotation of the pod ──▶ agent on its node
//! ```

#![warn(missing_docs)]

pub mod agents;
mod allocate;
mod answers;
mod assumed;
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
pub mod report;
mod request_learner;
mod state;
mod unfit;
mod use_compliance;
mod use_page;
mod use_store;

use prometheus_client::registry::Registry;
use tautline_runtime::watch::WatchMetrics;

pub use crate::{
    config::{Config, NodeOrder},
    fit::{Fit, Location},
    gpu_request::pod_shape,
    inspection::Inspection,
    process::{ProcessConfig, run},
    provider::GpuSlice,
    unfit::Unfit,
};

pub(crate) const RULE: &str = "gpu-slice";

/// Registers all metrics of the process, each with one series, for the reference of metrics.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    tautline_sdk::example_metrics(registry);
    metrics::Metrics::example("", registry);
    agents::AgentMetrics::example("", registry);
    replicas::Metrics::example("", registry);
    WatchMetrics::example("", registry);
}
