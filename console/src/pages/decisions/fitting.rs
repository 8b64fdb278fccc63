//! Finds the nodes that Kubernetes' own rules exclude for a pod.

use std::{collections::HashSet, sync::Arc};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1 as corev1;
use tautline_api::convert;
use tautline_core::{Snapshot, model::Pod, node_filter::NodeFilter};

/// A node that was not in a round.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Excluded {
    pub node: String,
    /// The reason in kube-scheduler's words; `None` if no rule that is checked here excludes the
    /// node now.
    pub reason: Option<String>,
}

/// Converts a pod as if it had no node, so that all its constraints count.
pub(super) fn unbound(mut pod: corev1::Pod) -> Pod {
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    convert::pod(&pod)
}

/// Returns the cluster's nodes that are not in `asked`, sorted by name. Without a pod their reasons
/// are not known.
pub(super) async fn excluded(
    snapshot: &Arc<Snapshot>,
    pod: Option<Pod>,
    asked: HashSet<String>,
) -> Result<Vec<Excluded>> {
    let snapshot = Arc::clone(snapshot);
    let checked = tokio::task::spawn_blocking(move || check(&snapshot, pod.as_ref(), &asked));
    checked
        .await
        .context("Kubernetes' rules could not be checked")
}

fn check(snapshot: &Snapshot, pod: Option<&Pod>, asked: &HashSet<String>) -> Vec<Excluded> {
    let filter = pod.map(|pod| NodeFilter::new(snapshot, pod));
    let rest = snapshot.nodes().filter(|n| !asked.contains(&*n.name));
    let rest = rest.map(|node| Excluded {
        node: node.name.to_string(),
        reason: filter
            .as_ref()
            .and_then(|f| Some(f.reason(node)?.to_string())),
    });
    let mut all: Vec<Excluded> = rest.collect();
    all.sort_unstable();
    all
}
