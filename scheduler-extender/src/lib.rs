//! kube-scheduler's extender, by `k8s.io/kube-scheduler/extender/v1` of Kubernetes 1.36: the
//! rule providers decide which of a governed pod's nodes are usable, and their scores.
//!
//! Modules depend on those below them only:
//!
//! ```text
//! app  serving                               process: ports, tasks, certificate
//! server  admin  requeue                     HTTP verbs, /explain, requeue of rejected pods
//! filter  prioritize  preempt  bind          verbs
//! planning                                   plans a pod: rules, then underlay
//! in_flight                                  pods with an answer and without a node
//! state                                      data that requests share
//! events  explain                            outputs of plans
//! plans                                      a pod's plan, and their cache
//! underlay  pod  wire  config  metrics  bind_locks
//! ```

#![warn(missing_docs)]

mod admin;
mod app;
mod bind;
mod bind_locks;
mod config;
mod events;
pub mod explain;
mod filter;
mod in_flight;
mod metrics;
mod planning;
mod plans;
mod pod;
mod preempt;
mod prioritize;
mod requeue;
mod server;
mod serving;
mod state;
mod underlay;
mod wire;

pub use self::{
    app::App,
    config::{Certificate, Config},
};

/// Parses bytes as every kind of request, for the fuzz target and the replay of its corpus.
#[doc(hidden)]
pub fn fuzz_request(data: &[u8]) {
    let Ok(json) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(args) = wire::args("fuzz", json) {
        let nodes = args.nodes.names("fuzz", 1000);
        if let (Ok(identity), Ok(nodes)) = (pod::identity("fuzz", args.pod), nodes) {
            _ = pod::parse_question("fuzz", args.pod, identity, nodes);
        }
    }
    _ = wire::preempt_args(json, 100);
    _ = wire::bind_args(json);
}
