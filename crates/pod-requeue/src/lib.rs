//! Makes kube-scheduler retry the pods that Tautline rejected, once they have a usable node. It
//! plans rejected pods again, and sets an annotation on a pod with a usable node, which makes
//! kube-scheduler retry it.
//!
//! ```text
//! rejected pods ──▶ backoff ──▶ plan ── a usable node ──▶ annotation ──▶ kube-scheduler retries
//! ```
//!
//! kube-scheduler by itself retries a pod that an extender rejected when a Node or Pod changes, or
//! after 5 minutes, but not when a provider's costs change.

#![warn(missing_docs)]

mod backoff;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use tautline_api::convert::REQUEUE_ANNOTATION;
use tautline_core::{index::Kind, model, planning::fnv1a_64};
use tautline_provider_client::ProviderClient;
use tautline_runtime::{
    api_call::{ApiCallError, within},
    cluster_store::{ClusterStore, Versions},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backoff::RejectedPods;

/// The interval at which rejected pods are planned again while the cluster does not change: costs
/// may have changed without a notice.
const PLAN_INTERVAL: Duration = Duration::from_secs(2);
/// The wait after a change in the cluster, for related changes.
const CHANGE_DEBOUNCE: Duration = Duration::from_millis(500);
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The kinds of objects whose changes may make a node usable, by cause. Pods are not among them,
/// because they change too often; the next [`PLAN_INTERVAL`] covers their changes.
const CAUSES: [(&str, &[Kind]); 3] = [
    ("provider", &[Kind::Service, Kind::EndpointSlice]),
    ("policy", &[Kind::Policy, Kind::Offer]),
    ("node", &[Kind::Node]),
];

tautline_runtime::metrics! {
    /// The metrics of requeues. Clones share their values.
    pub struct Metrics {
        requeues: Family<Cause, Counter> => "pod_requeues", "Rejected pods requeued, by cause";
        active: Gauge => "pod_requeue_active",
            "1 if this process requeues rejected pods, 0 if another process does";
        rejected_pods: Gauge => "rejected_pods", "Pending pods that Tautline's rules rejected";
    }
    labels Cause { cause: &'static str }
}

/// Plans rejected pods again, and requeues those with a usable node.
pub struct PodRequeue {
    /// The objects of the cluster, with all pods.
    pub store: ClusterStore,
    /// The client that calls the rule providers.
    pub providers: ProviderClient,
    /// The client that annotates pods.
    pub client: Client,
    /// The metrics of requeues.
    pub metrics: Metrics,
}

impl PodRequeue {
    /// Runs until `stop`. Requeues no pods while `is_active` returns false: another process does
    /// it.
    pub async fn run(self, is_active: impl Fn() -> bool, stop: CancellationToken) {
        stop.run_until_cancelled(self.requeue_pods(is_active)).await;
    }

    async fn requeue_pods(&self, is_active: impl Fn() -> bool) {
        let mut changes = self.store.changes_except_pods();
        let mut rejected = RejectedPods::default();
        loop {
            let before = *changes.borrow_and_update();
            let cause = next_cause(&mut changes, before);
            let cause = tokio::time::timeout(PLAN_INTERVAL, cause)
                .await
                .unwrap_or("costs");
            let snapshot = self.store.snapshot();
            let count = i64::try_from(snapshot.rejected_count()).unwrap_or(i64::MAX);
            self.metrics.rejected_pods.set(count);
            let active = is_active();
            self.metrics.active.set(i64::from(active));
            if !active {
                continue;
            }
            let batch = rejected.next_batch(snapshot.rejected());
            // The calls are concurrent, so that no pod waits for the slow provider of another pod.
            let usable_nodes = join_all(batch.iter().map(|pod| self.usable_nodes(pod))).await;
            for (pod, usable) in batch.iter().zip(usable_nodes) {
                match usable {
                    None => rejected.no_usable_node(&pod.uid),
                    Some(usable) if rejected.should_requeue(&pod.uid, usable) => {
                        self.requeue(pod, cause).await;
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// Returns a fingerprint of the pod's usable nodes; `None` if no node is usable.
    async fn usable_nodes(&self, pod: &Arc<model::Pod>) -> Option<u64> {
        let snapshot = self.store.snapshot();
        let round = self.providers.plan_on_fitting_nodes(&snapshot, pod).await;
        round.plan.usable().next()?;
        // The fingerprint is a sum of hashes, because the order of the nodes varies.
        Some(round.plan.usable().fold(0u64, |sum, at| {
            sum.wrapping_add(fnv1a_64(&[round.nodes.name(at)]))
        }))
    }

    async fn requeue(&self, pod: &Arc<model::Pod>, cause: &'static str) {
        let (namespace, name) = (&pod.namespace, &pod.name);
        match wake(&self.client, namespace, name, &pod.uid, cause).await {
            Ok(()) => {
                self.metrics.requeues.get_or_create(&Cause { cause }).inc();
                tracing::debug!(%namespace, pod = %name, cause, "requeued");
            }
            Err(error) => tracing::warn!(%namespace, pod = %name, %error, "pod not requeued"),
        }
    }
}

/// Annotates a pod with the time and the cause, which makes kube-scheduler try it again.
///
/// # Errors
/// The API server refuses the annotation, or does not answer.
pub async fn wake(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    cause: &str,
) -> Result<(), ApiCallError> {
    let now = Timestamp::now();
    let patch = serde_json::json!({
        "metadata": {
            // The UID makes the patch fail for a new pod of the same name.
            "uid": uid,
            "annotations": { REQUEUE_ANNOTATION: format!("{now:.0} {cause}") },
        }
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    within(WRITE_TIMEOUT, pods.patch_metadata(name, &params, &patch)).await?;
    Ok(())
}

/// Sets or clears the pod's nominated node, which kube-scheduler tries before all others, also if it
/// would look at some of the nodes only.
///
/// # Errors
/// The API server refuses the change, or does not answer.
pub async fn nominate(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    node: Option<&str>,
) -> Result<(), ApiCallError> {
    let patch = serde_json::json!({
        "metadata": { "uid": uid },
        "status": { "nominatedNodeName": node },
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    within(WRITE_TIMEOUT, pods.patch_status(name, &params, &patch)).await?;
    Ok(())
}

async fn next_cause(changes: &mut watch::Receiver<Versions>, before: Versions) -> &'static str {
    while changes.changed().await.is_ok() {
        let now = *changes.borrow_and_update();
        let changed = CAUSES.iter().find(|(_, kinds)| now.changed(&before, kinds));
        if let Some((cause, _)) = changed {
            tokio::time::sleep(CHANGE_DEBOUNCE).await;
            return cause;
        }
    }
    std::future::pending().await
}
