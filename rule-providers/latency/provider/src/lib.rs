//! The rule provider of `latency` (`{name: latency, request: 5ms, limit: 20ms}`), `jitter` and
//! `bandwidth`. It answers from tables of pairs of nodes and zones, from measurements of agents on
//! the nodes, and from estimates of the other pairs. A node with an unknown pair cannot be used.

#![warn(missing_docs)]

mod agents;
mod cluster_access;
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

pub use agents::keys::EchoKeys;
pub use fitting::{FitSettings, RACK, TARGETS};
pub use location::ZONE;
pub use measuring::{AGENTS_WITHIN, Measuring};
pub use network::{Network, PeerRow};
pub use provider::Latency;
pub use run::{Config, EchoKeySource, run};
pub use tables::{
    namespaces::Tables,
    sources::{BANDWIDTH_TABLE_LABEL, TABLE_LABEL, tables_of},
    table::{Bandwidth, BandwidthTable, PairTable, RoundTrip, Table},
};
pub use tautline_agent_link::AgentAuth;
