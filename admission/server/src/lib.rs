//! Serves the admission webhooks, which validate and change objects for Tautline. Each path has a
//! handler, which adapts a crate that does not depend on HTTP.
//!
//! ```text
//! API server ── AdmissionReview ──▶ server ──▶ handler of the path ──▶ crate of the subject
//!            ◀── JSON Patch, refusal or warnings ──┘
//! ```
//!
//! The server manages its certificates ([`tautline_certificates`]) and webhook configurations
//! ([`webhooks`]).

#![warn(missing_docs)]

mod access;
mod app;
pub mod config;
mod constraint_kinds;
mod fuzz;
mod governed;
mod gpu_sharing;
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
use tautline_runtime::{
    events::Events,
    http::{ConnectionMetrics, PortMetrics},
    watch::WatchMetrics,
};

use metrics::PREFIX;

pub use app::App;
pub use config::Config;

/// Registers all metrics of the process, each with one series, for the reference of metrics. The
/// registry must not have a prefix.
#[doc(hidden)]
pub fn example_metrics(root: &mut Registry) {
    gpu_sharing::Counters::example("", root.sub_registry_with_prefix(gpu_sharing::PREFIX));
    let registry = root.sub_registry_with_prefix("tautline");
    metrics::Metrics::example("", registry);
    CertificateMetrics::example(PREFIX, registry);
    ConnectionMetrics::example(PREFIX, registry);
    PortMetrics::example(PREFIX, registry);
    WatchMetrics::example("", registry);
    Events::new().0.register(registry);
    gpu_sharing::Gauges::example("", registry);
    mutations::Counters::example("", registry);
}

/// Runs the fuzz target.
#[doc(hidden)]
pub fn fuzz_review(data: &[u8]) {
    fuzz::review(data);
}
