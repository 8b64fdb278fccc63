//! Extends kube-scheduler by HTTP, as `k8s.io/kube-scheduler/extender/v1` of Kubernetes 1.36
//! defines it: rule providers decide which nodes a governed pod may use, and their scores. Filter
//! plans a pod once, and prioritize and bind use that plan.
//!
//! Modules depend on those below them only:
//!
//! ```text
//! app  serving                               process: ports, tasks, certificate
//! server  admin  requeue                     HTTP verbs, admin pages, requeue of rejected pods
//! status                                     the JSON of /status
//! filter  prioritize  preempt  bind  what_if verbs
//! groups                                     pods that are placed together
//! planning                                   plans a pod: rules, then underlay
//! in_flight                                  pods with an answer and without a node
//! state                                      data that requests share
//! events  explain                            outputs of plans
//! plans                                      a pod's plan, and their cache
//! shares                                     memory shared out by namespace
//! client                                     the sender of a request, and its memory
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
mod groups;
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
mod what_if;
mod wire;

use prometheus_client::registry::Registry;
use tautline_certificates::CertificateMetrics;
use tautline_runtime::{
    cluster_store::ClusterStore,
    events::Events,
    http::{ConnectionMetrics, PortMetrics},
    other_clusters::OtherClusterMetrics,
    watch::WatchMetrics,
};

use self::metrics::PREFIX;
pub use self::{
    app::App,
    config::{Certificate, Config},
    groups::GroupRecord,
    what_if::WhatIf,
};

/// Registers all metrics of the process, each with one series, for the reference of metrics.
#[doc(hidden)]
pub fn example_metrics(registry: &mut Registry) {
    metrics::Metrics::example("", registry);
    registry.register_collector(Box::new(in_flight::FlightGauge(ClusterStore::default())));
    ConnectionMetrics::example(PREFIX, registry);
    PortMetrics::example(PREFIX, registry);
    CertificateMetrics::example(PREFIX, registry);
    tautline_provider_client::Metrics::example("", registry);
    Events::new().0.register(registry);
    WatchMetrics::example("", registry);
    OtherClusterMetrics::example("", registry);
    tautline_pod_requeue::Metrics::example("", registry);
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
    _ = wire::what_if_args("fuzz", json);
}
