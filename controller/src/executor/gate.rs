//! The task that adds the gate's resource to the capacity of nodes, for scheduler configurations
//! without `ignoredByScheduler`: kube-scheduler then requires the resource of a node like any other.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1 as corev1;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_core::{Snapshot, index::Kind, model::Node, names::GATE_RESOURCE};
use tautline_runtime::{api_call, lease::Term};

use super::{Context, DEADLINE};
use crate::clock::backoff;

/// The amount of the gate's resource on each node. A pod requests one unit, and no node has as many
/// pods.
const GATE_UNITS_PER_NODE: u32 = 1_000_000;
/// The wait between the patches of two nodes.
const PATCH_INTERVAL: Duration = Duration::from_millis(50);
/// The wait after a pass over all nodes: further changes are collected, and the watch reports the
/// patched nodes.
const SETTLE_DELAY: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY: Duration = Duration::from_secs(120);

pub(crate) async fn run(context: Arc<Context>) {
    let mut changes = context.store.changes_except_pods();
    let mut leader = context.leader.subscribe();
    let mut failures = 0;
    loop {
        let seen = *changes.borrow_and_update();
        let term = leader.borrow_and_update().clone();
        let done = match term {
            Some(term) => advertise(&context, &term).await,
            None => true,
        };
        if !done {
            failures += 1;
            tokio::time::sleep(backoff(FIRST_RETRY, MAX_RETRY, failures)).await;
            continue;
        }
        failures = 0;
        tokio::time::sleep(SETTLE_DELAY).await;
        let node_changed = changes.wait_for(|now| now.changed(&seen, &[Kind::Node]));
        tokio::select! {
            _ = leader.changed() => {}
            _ = node_changed => {}
        }
    }
}

/// Patches every node without the resource. Returns false if a patch failed, which ends the pass.
async fn advertise(context: &Context, term: &Term) -> bool {
    let nodes: Api<corev1::Node> = Api::all(context.client.clone());
    for name in nodes_without_gate(&context.store.snapshot()) {
        if !term.is_active() {
            return true;
        }
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch()));
        let call = nodes.patch_status(&name, &params, &patch);
        let result = api_call::within(DEADLINE, call).await;
        if matches!(&result, Err(error) if error.code() == Some(404)) {
            continue;
        }
        context.metrics.wrote("node-status", result.is_ok());
        if let Err(error) = result {
            tracing::warn!(
                node = %name, %error,
                "the node does not carry {GATE_RESOURCE}; with --advertise-gate the controller needs the \
                 right to patch nodes/status (deploy/with-gate)"
            );
            return false;
        }
        tracing::info!(node = %name, "the node carries {GATE_RESOURCE} now");
        tokio::time::sleep(PATCH_INTERVAL).await;
    }
    true
}

/// Returns the names of the nodes that do not have the gate's resource.
fn nodes_without_gate(snapshot: &Snapshot) -> Vec<Arc<str>> {
    let lacks = |node: &&Arc<Node>| node.allocatable.milli(GATE_RESOURCE) <= 0;
    let nodes = snapshot.nodes().filter(lacks);
    nodes.map(|node| Arc::clone(&node.name)).collect()
}

/// Returns a merge patch that adds the resource to a node's status and changes nothing else.
fn patch() -> Value {
    let amount = json!({GATE_RESOURCE: GATE_UNITS_PER_NODE.to_string()});
    json!({"status": {"capacity": amount, "allocatable": amount}})
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
}
