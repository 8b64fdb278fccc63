//! Offers become bindings, rule providers evaluate them, and violations are reported, mitigated
//! by the underlay or ended by an eviction. One replica leads, by a Lease.
//!
//! [`reconciler`], [`violations`], [`eviction`], [`mitigation`], [`release`] and [`gate`] are
//! pure: no client, channel or clock. The [`executor`] carries out their decisions.

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
mod flapping;
mod gate;
mod kind_states;
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
mod write_error;

use prometheus_client::registry::Registry;
use tautline_runtime::{events::Events, watch::WatchMetrics};

pub use app::App;
pub use config::{AnnotationMatch, Config, LEASE};
pub use preview::Preview;

/// Registers all metrics of the process, each with one series, for the reference of metrics.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    metrics::Metrics::register(registry).add_examples();
    let calls = tautline_provider_client::Metrics::default();
    calls.register(registry);
    calls.add_examples();
    Events::new().0.register(registry);
    let watches = WatchMetrics::default();
    watches.register(registry);
    watches.add_examples();
    let requeues = tautline_pod_requeue::Metrics::default();
    requeues.register(registry);
    requeues.add_examples();
}
