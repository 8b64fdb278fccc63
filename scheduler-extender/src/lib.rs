//! kube-scheduler's extender, by `k8s.io/kube-scheduler/extender/v1` of Kubernetes 1.36: the
//! rule providers decide which of a governed pod's nodes are usable, and their scores.
//!
//! Modules depend on those below them only:
//!
//! ```text
//! app  serving                               process: ports, tasks, certificate
//! server  admin  requeue                     HTTP verbs, admin pages, requeue of rejected pods
//! status                                     the JSON of /status
//! filter  prioritize  preempt  bind          verbs
//! planning                                   plans a pod: rules, then underlay
//! in_flight                                  pods with an answer and without a node
//! state                                      data that requests share
//! events  explain                            outputs of plans
//! plans                                      a pod's plan, and their cache
//! shares                                     memory shared out by namespace
//! client                                     who sends a request, and the memory of requests
//! underlay  pod  wire  config  metrics  bind_locks
//! ```

#![warn(missing_docs)]

mod admin;
mod app;
mod bind;
mod bind_locks;
mod client;
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
mod shares;
mod spans;
mod state;
pub mod status;
mod underlay;
mod wire;

use prometheus_client::registry::Registry;
use tautline_certificates::CertificateMetrics;
use tautline_runtime::{
    cluster_store::ClusterStore, events::Events, http::PortMetrics, watch::WatchMetrics,
};

pub use self::{
    app::App,
    config::{Certificate, Config},
};

/// Registers all metrics of the process, each with one series, for the reference of metrics.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    metrics::Metrics::register(registry).add_examples();
    registry.register_collector(Box::new(in_flight::FlightGauge(ClusterStore::default())));
    let port = PortMetrics::default();
    port.register("extender_", registry);
    port.add_examples();
    CertificateMetrics::register("extender_", registry).add_examples();
    let calls = tautline_provider_client::Metrics::default();
    calls.register(registry);
    calls.add_examples();
    Events::new().0.register(registry);
    let watches = WatchMetrics::default();
    watches.register(registry);
    watches.add_examples();
    let requeues = tautline_pod_requeue::Metrics::default();
    requeues.register(registry);
    requeues.add_examples();
}

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
