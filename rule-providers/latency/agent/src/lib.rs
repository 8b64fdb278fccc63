//! The agent measures the network from a node: it sends UDP echoes to the targets that the
//! latency provider names, and reports changes on a stream.
//!
//! ```text
//! echo      one socket and a thread: answers requests, times replies
//!   limit, in_flight, clock
//! measure   one task: visits targets when due, records samples and losses
//!   schedule, targets, pairs, pair, tcp, fallback
//! stream    one task for each replica of the provider: commands down, changes up
//!   replicas, dial, report, probe, throughput
//! ```

mod app;
mod clock;
#[cfg(test)]
mod dashboard_tests;
mod dial;
mod echo;
mod fallback;
pub mod identity;
mod in_flight;
mod limit;
mod measure;
mod metrics;
mod pair;
mod pairs;
mod probe;
mod replicas;
mod report;
mod schedule;
mod stream;
mod targets;
mod tcp;
mod throughput;

pub use app::{App, Config};
pub use dial::{Provider, Token};
