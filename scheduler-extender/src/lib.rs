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
mod sent;
mod server;
mod underlay;
mod waking;
pub mod wire;

pub use app::{App, Config, State};

/// Reads bytes as every kind of request, as far as it goes without a cluster: for
/// the fuzz target, and for the replay of its corpus.
#[doc(hidden)]
pub fn fuzz_request(data: &[u8]) {
    let Ok(json) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(args) = wire::args("fuzz", json) {
        let nodes = args.nodes.names("fuzz", 1000);
        if let (Ok(subject), Ok(nodes)) = (pod::subject("fuzz", args.pod), nodes) {
            _ = pod::question("fuzz", args.pod, subject, nodes);
        }
    }
    _ = wire::preempt_args(json, 100);
    _ = wire::bind_args(json);
}
