//! Adds the gate's resource to nodes, for scheduler configurations without `ignoredByScheduler`:
//! kube-scheduler then requires the resource of a node like any other.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tautline_core::{Snapshot, model::Node, names::GATE_RESOURCE};

/// The amount of the gate's resource on each node. A pod requests one unit, and no node has as many
/// pods.
const GATE_UNITS_PER_NODE: u32 = 1_000_000;
const FIRST_RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY: Duration = Duration::from_secs(120);

/// Returns the names of the nodes that do not have the gate's resource.
pub(crate) fn nodes_without_gate(snapshot: &Snapshot) -> Vec<Arc<str>> {
    let lacks = |node: &&Arc<Node>| node.allocatable.milli(GATE_RESOURCE) <= 0;
    let nodes = snapshot.nodes().filter(lacks);
    nodes.map(|node| Arc::clone(&node.name)).collect()
}

/// Returns a merge patch that adds the resource to a node's status and changes nothing else.
pub(crate) fn patch() -> Value {
    let amount = json!({GATE_RESOURCE: GATE_UNITS_PER_NODE.to_string()});
    json!({"status": {"capacity": amount, "allocatable": amount}})
}

pub(crate) fn retry_after(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    FIRST_RETRY.saturating_mul(doubled).min(MAX_RETRY)
}

#[cfg(test)]
mod tests {
    use tautline_core::{Index, index::Object};

    use super::*;

    #[test]
    fn gate_is_put_on_nodes_without_the_resource() {
        let mut index = Index::default();
        for (name, milli) in [("absent", None), ("zero", Some(0)), ("there", Some(1000))] {
            let amounts = milli.map(|milli| (GATE_RESOURCE, milli)).into_iter();
            index.apply(Object::Node(Node {
                name: name.into(),
                allocatable: amounts.chain([("cpu", 4000)]).collect(),
                ..Node::default()
            }));
        }
        let mut names = nodes_without_gate(&index.snapshot());
        names.sort_unstable();
        assert_eq!(names, ["absent", "zero"].map(Arc::from));
    }

    #[test]
    fn gate_patch_names_nothing_else_of_the_status() {
        let amount = json!({GATE_RESOURCE: "1000000"});
        let status = json!({"capacity": amount, "allocatable": amount});
        assert_eq!(patch(), json!({"status": status}));
    }

    #[test]
    fn gate_retries_wait_longer_each_time() {
        let waits = [1, 2, 3, 100].map(|n| retry_after(n).as_secs());
        assert_eq!(waits, [5, 10, 20, 120]);
    }
}
