//! Puts the gate's resource on nodes, for scheduler configurations without
//! `ignoredByScheduler`: there kube-scheduler looks for it on the node as for any other.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_core::{Snapshot, index::Kind, model::Node, names::GATE_RESOURCE};
use tautline_runtime::lease::Term;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::app::Shared;

/// A pod requests one: more than a node ever has pods.
const QUANTITY: u32 = 1_000_000;
/// Between two patches.
const PACE: Duration = Duration::from_millis(50);
/// How long changes of nodes are gathered; what was patched comes back by the watch meanwhile.
const SETTLE: Duration = Duration::from_secs(1);
/// Between two tries after a failure, doubling.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(120);
/// The most that one patch may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Patches nodes while `leader` has a term, until told to stop.
pub(crate) async fn run(
    shared: Arc<Shared>,
    mut leader: watch::Receiver<Option<Term>>,
    stop: CancellationToken,
) {
    let mut changes = shared.feed.changes_except_pods();
    let mut failures = 0;
    loop {
        let seen = *changes.borrow_and_update();
        let term = leader.borrow_and_update().clone();
        let failed = match term {
            Some(term) => {
                tokio::select! {
                    () = stop.cancelled() => return,
                    failed = advertise(&shared, &term) => failed,
                }
            }
            None => false,
        };
        failures = if failed { failures + 1 } else { 0 };
        let rest = if failed {
            retry_after(failures)
        } else {
            SETTLE
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(rest) => {}
        }
        if failed {
            continue;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = leader.changed() => {
                    if changed.is_err() {
                        // The election's error is the process' to report.
                        stop.cancelled().await;
                        return;
                    }
                    break;
                }
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let now = *changes.borrow_and_update();
                    if now.changed(&seen, &[Kind::Node]) {
                        break;
                    }
                }
            }
        }
    }
}

/// Patches every node that lacks the resource; says whether one could not be patched.
async fn advertise(shared: &Shared, term: &Term) -> bool {
    let nodes: Api<ApiNode> = Api::all(shared.client.clone());
    for name in lacking(&shared.feed.snapshot()) {
        if !term.is_active() {
            return false;
        }
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch()));
        let call = nodes.patch_status(&name, &params, &patch);
        let result = match tokio::time::timeout(DEADLINE, call).await {
            Ok(Ok(_)) => Ok(()),
            // It has gone meanwhile.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => continue,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {DEADLINE:?}")),
        };
        shared.metrics.wrote("node-status", result.is_ok());
        if let Err(error) = result {
            tracing::warn!(
                node = %name, %error,
                "the node does not carry {GATE_RESOURCE}; with --advertise-gate the controller needs the \
                 right to patch nodes/status (deploy/with-gate)"
            );
            return true;
        }
        tracing::info!(node = %name, "the node carries {GATE_RESOURCE} now");
        tokio::time::sleep(PACE).await;
    }
    false
}

fn lacking(snapshot: &Snapshot) -> Vec<Arc<str>> {
    let lacks = |node: &&Arc<Node>| node.allocatable.milli(GATE_RESOURCE) <= 0;
    let nodes = snapshot.nodes().filter(lacks);
    nodes.map(|node| Arc::clone(&node.name)).collect()
}

/// Nothing else of the status is named, so nothing else changes.
fn patch() -> Value {
    let amount = json!({GATE_RESOURCE: QUANTITY.to_string()});
    json!({"status": {"capacity": amount, "allocatable": amount}})
}

fn retry_after(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    FIRST_RETRY.saturating_mul(doubled).min(LONGEST_RETRY)
}

#[cfg(test)]
mod tests {
    use tautline_core::{Index, index::Object};

    use super::*;

    #[test]
    fn nodes_without_the_resource_lack_it_and_those_with_it_do_not() {
        let mut index = Index::default();
        for (name, milli) in [("absent", None), ("zero", Some(0)), ("there", Some(1000))] {
            let amounts = milli.map(|milli| (GATE_RESOURCE, milli)).into_iter();
            index.apply(Object::Node(Node {
                name: name.into(),
                allocatable: amounts.chain([("cpu", 4000)]).collect(),
                ..Node::default()
            }));
        }
        let mut names = lacking(&index.snapshot());
        names.sort_unstable();
        assert_eq!(
            names.iter().map(|n| &**n).collect::<Vec<_>>(),
            ["absent", "zero"]
        );
    }

    #[test]
    fn failures_wait_longer_each_time() {
        let waits = [1, 2, 3, 100].map(|n| retry_after(n).as_secs());
        assert_eq!(waits, [5, 10, 20, 120]);
    }
}
