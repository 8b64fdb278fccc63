//! The task that adds the gate's resource to the capacity of nodes.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use tautline_core::{index::Kind, names::GATE_RESOURCE};
use tautline_runtime::{api_call, lease::Term};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::context::Context;
use crate::gate::{nodes_without_gate, patch, retry_after};

/// The wait between the patches of two nodes.
const PATCH_INTERVAL: Duration = Duration::from_millis(50);
/// The wait after a pass over all nodes: further changes are collected, and the watch reports the
/// patched nodes.
const SETTLE_DELAY: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) async fn run(
    context: Arc<Context>,
    mut leader: watch::Receiver<Option<Term>>,
    stop: CancellationToken,
) {
    let mut changes = context.store.changes_except_pods();
    let mut failures = 0;
    loop {
        let seen = *changes.borrow_and_update();
        let term = leader.borrow_and_update().clone();
        let failed = match term {
            Some(term) => {
                tokio::select! {
                    () = stop.cancelled() => return,
                    failed = advertise(&context, &term) => failed,
                }
            }
            None => false,
        };
        failures = if failed { failures + 1 } else { 0 };
        let wait = if failed {
            retry_after(failures)
        } else {
            SETTLE_DELAY
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        if failed {
            continue;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = leader.changed() => {
                    if changed.is_err() {
                        // The process itself reports an error of the leader election.
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

/// Patches every node without the resource. Returns true if a patch failed, which ends the pass.
async fn advertise(context: &Context, term: &Term) -> bool {
    let nodes: Api<Node> = Api::all(context.client.clone());
    for name in nodes_without_gate(&context.store.snapshot()) {
        if !term.is_active() {
            return false;
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
            return true;
        }
        tracing::info!(node = %name, "the node carries {GATE_RESOURCE} now");
        tokio::time::sleep(PATCH_INTERVAL).await;
    }
    false
}
