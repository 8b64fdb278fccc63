//! Decides which nodes a pod may use, how well each of them suits, and which bindings an offer has.
//! The crate is pure: callers pass in the cluster's objects and the providers' costs, so there is
//! no I/O and no async code.
//!
//! ```text
//! objects ──▶ Index ──▶ Snapshot ──▶ constraints of a pod ── providers' costs ──▶ Plan ──▶ Answer
//!    one writer, many readers      offers, rules, peers                 nodes, scores
//! ```

#![warn(missing_docs)]

pub mod answer;
pub mod binding;
pub mod binding_quota;
pub mod compliance_state;
pub mod constraints;
mod costs;
pub mod cow_map;
pub mod fair_queue;
pub mod figure;
mod fuzz;
pub mod group;
pub mod host_ports;
pub mod index;
pub mod model;
pub mod names;
mod node_affinity;
pub mod node_filter;
mod normalized_cost;
pub mod pending;
pub mod planning;
pub mod pod_affinity;
pub mod pod_rules;
pub mod providers;
pub mod remote;
mod rule_answer;
pub mod selector;
pub mod topology_spread;
pub mod trust;
pub mod volume_filter;
pub mod volumes;

#[doc(hidden)]
pub use fuzz::fuzz_texts;
pub use index::{Index, Snapshot};
pub use tautline_types::{
    Compliance, ContainerKind, Reference, compliance, dns, duration, nodes, quantity, reference,
    text,
};
pub use trust::TrustedNamespaces;
