//! The agent that measures the network from a node: UDP echoes to the targets
//! that the latency provider names, told on a stream of changes.
//!
//! ```text
//! echo      one socket and a thread: answers requests, times replies
//!   limit, flight, clock
//! measure   one task: visits targets when due, notes samples and losses
//!   schedule, targets, pairs, pair, tcp, fallback
//! stream    one task for each replica of the provider: orders down, changes up
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
