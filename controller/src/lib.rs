//! Creates the bindings of offers, has rule providers evaluate them, and acts on violations: it
//! reports, requests mitigations from the underlay controller, or evicts pods. Pure state machines
//! make the decisions, and the [`executor`] carries them out.
//!
//! ```text
//! watches, timers, results ──▶ executor ── events ──▶ reconciler, violations, eviction, ...
//! API server, providers    ◀──    │     ◀── actions ──┘
//! ```
//!
//! [`reconciler`], [`violations`], [`eviction`], [`mitigation`] and [`release`] are pure: no client,
//! channel or clock. One replica leads, by a Lease.

#![warn(missing_docs)]

mod app;
mod binding_spec;
mod binding_status;
mod clock;
mod config;
mod decisions;
mod evaluation;
mod eviction;
mod executor;
mod metrics;
mod mitigation;
mod offer_status;
mod open_reports;
mod preview;
mod provider_limiter;
mod question;
mod reconciler;
mod release;
mod schedule;
mod violations;

use prometheus_client::registry::Registry;
use tautline_runtime::{events::Events, other_clusters::OtherClusterMetrics, watch::WatchMetrics};

pub use app::App;
pub use config::{AnnotationError, AnnotationMatch, Config, LEASE};
pub use preview::Preview;

/// Registers all metrics of the process, each with one series, for the generated reference.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    metrics::Metrics::example("", registry.sub_registry_with_prefix(metrics::PREFIX));
    tautline_provider_client::Metrics::example("", registry);
    Events::new().0.register(registry);
    WatchMetrics::example("", registry);
    OtherClusterMetrics::example("", registry);
    tautline_pod_requeue::Metrics::example("", registry);
}
