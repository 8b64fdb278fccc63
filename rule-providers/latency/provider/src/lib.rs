//! The rule provider of `latency` (`{name: latency, request: 5ms, limit: 20ms}`), `jitter` and
//! `bandwidth`.
//!
//! It answers from tables of pairs of nodes and zones, from measurements of agents on the
//! nodes, and from estimates of the pairs that were not measured. A pair without data is
//! unknown, and a node with an unknown pair cannot be used.
//!
//! ```text
//! run           the process: configuration, watches, tasks
//! provider      hands questions to rules
//! rules         costs and evaluations; report: the same for people
//! tables        configured values
//! measuring     background tasks of the measured network
//! agents        the service of agents
//! fitting       the thread that fits the model
//! network       measurements, and orders to agents
//! ```

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

pub use agents::{auth::AgentAuth, keys::EchoKeys};
pub use fitting::{FitSettings, RACK, TARGETS};
pub use location::ZONE;
pub use measurement::{Measurement, RttStats};
pub use measuring::{AGENTS_WITHIN, Measuring};
pub use network::{Network, PeerRow};
pub use provider::Latency;
pub use run::{Config, EchoKeySource, run};
pub use tables::{
    config_maps::ConfigMapTables,
    namespaces::Tables,
    sources::{BANDWIDTH_TABLE_LABEL, TABLE_LABEL, tables_of},
    table::{Bandwidth, BandwidthTable, PairTable, RoundTrip, Table, Unit},
};
