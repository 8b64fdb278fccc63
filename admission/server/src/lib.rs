//! Admission webhooks. Each path has a handler, an adapter to a crate that knows no HTTP.
//! The server manages its certificates ([`tautline_certificates`]) and configurations ([`webhooks`]).

#![warn(missing_docs)]

mod access;
mod app;
pub mod config;
mod constraint_kinds;
mod fuzz;
mod governed;
mod gpu_sharing;
mod handler;
mod metrics;
mod model_registry;
mod mutations;
mod response;
mod review;
mod server;
mod watches;
mod webhook_writer;
pub mod webhooks;

use prometheus_client::registry::Registry;
use tautline_certificates::CertificateMetrics;
use tautline_runtime::{events::Events, http::PortMetrics, watch::WatchMetrics};

pub use app::App;
pub use config::Config;

/// Registers all metrics of the process, each with one series, for the reference of metrics. The
/// registry has no prefix.
#[doc(hidden)]
pub fn example_metrics(root: &mut Registry) {
    gpu_sharing::Counters::register(root);
    let registry = root.sub_registry_with_prefix("tautline");
    metrics::Metrics::register(registry).add_examples();
    CertificateMetrics::register("admission_", registry).add_examples();
    let port = PortMetrics::default();
    port.register("admission_", registry);
    port.add_examples();
    let watches = WatchMetrics::default();
    watches.register(registry);
    watches.add_examples();
    Events::new().0.register(registry);
    gpu_sharing::Gauges::register(registry);
    mutations::Counters::register(registry).add_examples();
}

/// For the fuzz target.
#[doc(hidden)]
pub fn fuzz_review(data: &[u8]) {
    fuzz::review(data);
}
