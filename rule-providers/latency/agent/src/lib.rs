//! Measures the network from a node: sends UDP echoes to the targets that the latency provider
//! names, and reports changes on a stream. The targets are few; the provider predicts the
//! round-trip times of all other pairs. Targets outside the cluster get TCP connects instead.
//!
//! ```text
//! provider ── targets ──▶ schedule ──▶ measure ── UDP echo ──▶ agents of other nodes
//! provider ◀── changes ── report ◀──── pairs ◀─── replies ─────┘
//! ```
//!
//! One thread answers requests and times replies (`echo`), one task visits targets (`measure`), one
//! task for each replica of the provider takes commands and reports changes (`stream`).

#![warn(missing_docs)]

mod app;
mod clock;
#[cfg(test)]
mod dashboard_tests;
mod echo;
mod in_flight;
mod limit;
mod measure;
mod metrics;
mod outside;
mod pair;
mod pairs;
mod probe;
mod report;
mod schedule;
mod stream;
mod targets;
mod tcp;
mod throughput;

pub use app::{App, Config, boot_id};
use prometheus_client::registry::Registry;
pub use tautline_agent_link::{Provider, Token};

/// Registers all metrics of the process, for the reference of metrics.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    metrics::Metrics::example("", registry);
}
