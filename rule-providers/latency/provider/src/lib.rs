//! Provides the rules `latency` (`{name: latency, request: 5ms, limit: 20ms}`), `jitter` and
//! `bandwidth`. It answers from tables of pairs of nodes and zones, from measurements of agents on
//! the nodes, and from estimates of the other pairs. A node with an unknown pair cannot be used.
//!
//! ```text
//! agents ── reports ──▶ pair store ──▶ fitting ──▶ estimates ──┐
//! ConfigMaps ──▶ tables ───────────────────────────────────────┴──▶ rules ──▶ costs, compliance
//! agents ◀── targets, probes ── network ◀── demanded pairs ───────────┘
//! ```

#![warn(missing_docs)]

mod agents;
mod fitting;
mod format;
mod location;
mod measurement;
mod measuring;
mod network;
#[cfg(test)]
mod network_policy_tests;
mod provider;
pub mod report;
mod rules;
mod run;
mod tables;

use prometheus_client::registry::Registry;
use tautline_runtime::watch::WatchMetrics;

pub use agents::keys::EchoKeys;
pub use fitting::DEFAULT_TARGETS;
pub use location::ZONE;
pub use measuring::{AGENTS_WITHIN, Measuring};
pub use network::{Network, PeerRow, outside::AllowedAddresses};
pub use provider::Latency;
pub use run::{Config, EchoKeySource, run};
pub use tables::{
    Tables,
    sources::{BANDWIDTH_TABLE_LABEL, TABLE_LABEL, tables_of},
    table::{Bandwidth, BandwidthTable, PairTable, RoundTrip, Table},
};
pub use tautline_agent_link::AgentAuth;

/// Registers all metrics of the process, each with one series, for the reference of metrics.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    tautline_sdk::example_metrics(registry);
    network::metrics::NetworkMetrics::example("", registry);
    rules::answer_metrics::AnswerMetrics::example("", registry);
    WatchMetrics::example("", registry);
}
