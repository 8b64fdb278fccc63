//! kube-scheduler's extender. The scheduler posts a pod and node names; a pod
//! that no offer governs goes straight back; for another, one round of questions
//! to the rule providers decides which nodes are usable and how good each is.
//!
//! The protocol is `k8s.io/kube-scheduler/extender/v1` as Kubernetes 1.36
//! speaks it.

mod app;
mod bind;
mod events;
pub mod explain;
mod filter;
mod metrics;
mod plans;
mod pod;
mod preempt;
mod prioritize;
mod server;
mod wake;
pub mod wire;

pub use app::{App, Config, State};
