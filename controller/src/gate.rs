//! The gate's resource on nodes, for scheduler configurations without
//! `ignoredByScheduler`: kube-scheduler then looks for it on the node as for any other
//! resource.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tautline_core::{Snapshot, model::Node, node_filter::GATE};

/// A pod requests one: more than a node ever has pods.
const QUANTITY: u32 = 1_000_000;
/// The wait after a failure, which doubles with each.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY: Duration = Duration::from_secs(120);

pub(crate) fn nodes_without_gate(snapshot: &Snapshot) -> Vec<Arc<str>> {
    let lacks = |node: &&Arc<Node>| node.allocatable.milli(GATE) <= 0;
    let nodes = snapshot.nodes().filter(lacks);
    nodes.map(|node| Arc::clone(&node.name)).collect()
}

/// A merge patch of a node's status that changes nothing else.
pub(crate) fn patch() -> Value {
    let amount = json!({GATE: QUANTITY.to_string()});
    json!({"status": {"capacity": amount, "allocatable": amount}})
}

pub(crate) fn retry_after(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    FIRST_RETRY.saturating_mul(doubled).min(MAX_RETRY)
}
