//! Requeues rejected pods. kube-scheduler retries a pod that an extender rejected when some Node
//! or Pod changes, or after 5 minutes, but not when the costs of a rule provider change. So this
//! crate plans rejected pods again, and when a node has become usable it sets an annotation on the
//! pod, which makes kube-scheduler retry it.
//!
//! A pod that is rejected again waits twice as long for its next requeue, unless other nodes have
//! become usable.

#![warn(missing_docs)]

mod backoff;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tautline_api::convert::REQUEUE_ANNOTATION;
use tautline_core::{index::Kind, model, planning::fnv1a_64};
use tautline_provider_client::ProviderClient;
use tautline_runtime::{
    api_call::within,
    cluster_store::{ClusterStore, Versions},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backoff::RejectedPods;

/// Time between two plans: providers do not announce changed costs.
const TICK: Duration = Duration::from_secs(2);
/// Time to collect changes of the cluster.
const SETTLE: Duration = Duration::from_millis(500);
/// Deadline of the write of the annotation.
const DEADLINE: Duration = Duration::from_secs(5);

/// Changes that may make a node usable, by cause. Pods change too often; the tick covers them.
const CAUSES: [(&str, &[Kind]); 3] = [
    ("provider", &[Kind::Service, Kind::EndpointSlice]),
    ("policy", &[Kind::Policy, Kind::Offer]),
    ("node", &[Kind::Node]),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

/// Metrics of requeues. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    requeues: Family<Cause, Counter>,
    waiting: Gauge,
    active: Gauge,
}

impl Metrics {
    /// Registers them.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "pod_requeues",
            "Rejected pods requeued, by cause",
            self.requeues.clone(),
        );
        registry.register(
            "pod_requeue_active",
            "1 while this process requeues rejected pods, 0 while another does",
            self.active.clone(),
        );
        registry.register(
            "rejected_pods",
            "Pods that Tautline's reason codes left without a node",
            self.waiting.clone(),
        );
    }
}

/// Requeues the rejected pods of a cluster.
pub struct PodRequeue {
    /// The cluster's objects.
    pub store: ClusterStore,
    /// The client of the rule providers.
    pub providers: ProviderClient,
    /// The client that writes the annotation.
    pub client: Client,
    /// Its metrics.
    pub metrics: Metrics,
}

impl PodRequeue {
    /// Plans rejected pods again after changes and on a tick, until `stop`. Idle while `active`
    /// is false, because another process does it.
    pub async fn run(self, active: impl Fn() -> bool, stop: CancellationToken) {
        let mut changes = self.store.changes_except_pods();
        let mut rejected = RejectedPods::default();
        loop {
            let before = *changes.borrow_and_update();
            let cause = tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(TICK) => "costs",
                cause = next_cause(&mut changes, before) => cause,
            };
            let snapshot = self.store.snapshot();
            let count = i64::try_from(snapshot.rejected_count()).unwrap_or(i64::MAX);
            self.metrics.waiting.set(count);
            let is_active = active();
            self.metrics.active.set(i64::from(is_active));
            if !is_active {
                continue;
            }
            let turn = rejected.turn(snapshot.rejected());
            // Concurrently: no pod waits for the slow provider of another.
            let planned = join_all(turn.iter().map(|pod| self.usable_nodes(pod)));
            let found = tokio::select! {
                () = stop.cancelled() => return,
                found = planned => found,
            };
            for (pod, usable) in turn.iter().zip(found) {
                match usable {
                    None => rejected.no_usable_node(&pod.uid),
                    Some(usable) if rejected.should_requeue(&pod.uid, usable) => {
                        tokio::select! {
                            () = stop.cancelled() => return,
                            () = self.requeue(pod, cause) => {}
                        }
                    }
                    Some(_) => {}
                }
            }
        }
    }

    /// A hash of the nodes that the pod could use now; `None` without one.
    async fn usable_nodes(&self, pod: &Arc<model::Pod>) -> Option<u64> {
        let snapshot = self.store.snapshot();
        let round = self.providers.plan_on_fitting_nodes(&snapshot, pod).await;
        round.plan.usable().next()?;
        // A sum, because the nodes are unordered.
        Some(round.plan.usable().fold(0u64, |sum, at| {
            sum.wrapping_add(fnv1a_64(&[round.nodes.name(at)]))
        }))
    }

    async fn requeue(&self, pod: &Arc<model::Pod>, cause: &'static str) {
        let now = Timestamp::now();
        let patch = serde_json::json!({
            "metadata": {
                // Leave another pod of the same name unchanged.
                "uid": pod.uid,
                "annotations": { REQUEUE_ANNOTATION: format!("{now:.0} {cause}") },
            }
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = pods.patch_metadata(&pod.name, &params, &patch);
        let (namespace, name) = (&pod.namespace, &pod.name);
        match within(DEADLINE, patched).await {
            Ok(_) => {
                self.metrics.requeues.get_or_create(&Cause { cause }).inc();
                tracing::debug!(%namespace, pod = %name, cause, "pod requeued");
            }
            Err(error) => tracing::warn!(%namespace, pod = %name, %error, "pod not requeued"),
        }
    }
}

async fn next_cause(changes: &mut watch::Receiver<Versions>, before: Versions) -> &'static str {
    while changes.changed().await.is_ok() {
        let now = *changes.borrow_and_update();
        let changed = CAUSES.iter().find(|(_, kinds)| now.changed(&before, kinds));
        if let Some((cause, _)) = changed {
            tokio::time::sleep(SETTLE).await;
            return cause;
        }
    }
    std::future::pending().await
}
