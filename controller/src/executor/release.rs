//! The task that releases the underlay allocations of pods that terminate or have finished.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tautline_api::convert::UNDERLAY_FINALIZER;
use tautline_core::Snapshot;
use tautline_runtime::{events::reference_to_pod, finalizers};
use tokio_util::sync::CancellationToken;

use super::{Context, WARNING_PERIOD};
use crate::{
    binding_spec::note,
    mitigation::{allocator, named_or_chosen},
    release::{Release, ReleaseOutcome, ReleaseQueue},
};

/// The interval at which allocations are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let mut queue = ReleaseQueue::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
        let Some(term) = context.leader.borrow().clone() else {
            continue;
        };
        let snapshot = context.store.snapshot();
        let due = queue.due(&snapshot, Instant::now());
        let outcomes = due.iter().map(async |one| {
            if !term.is_active() {
                return None;
            }
            Some(release(&context, &snapshot, one).await)
        });
        for (one, outcome) in due.iter().zip(join_all(outcomes).await) {
            if let Some(outcome) = outcome {
                queue.finish(one, outcome, Instant::now());
            }
        }
    }
}

async fn release(context: &Context, snapshot: &Snapshot, release: &Release) -> ReleaseOutcome {
    let (pod, id) = (&release.pod, &release.id);
    if !release.released && !give_back(context, snapshot, release).await {
        return ReleaseOutcome::Failed;
    }
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace);
    let finalizer = format!("{UNDERLAY_FINALIZER}{id}");
    match finalizers::remove(&pods, &pod.name, &pod.uid, &finalizer).await {
        Ok(()) | Err(finalizers::Error::Gone(_)) => ReleaseOutcome::Done,
        Err(error) => {
            tracing::warn!(%id, %error, "the finalizer is not removed; trying again");
            ReleaseOutcome::FinalizerLeft
        }
    }
}

/// Releases an allocation at the underlay controller that made it, as others do not know its id.
/// Returns whether that succeeded.
async fn give_back(context: &Context, snapshot: &Snapshot, release: &Release) -> bool {
    let (pod, id) = (&release.pod, &release.id);
    let named = allocator(pod);
    let underlay = named_or_chosen(snapshot, context.trusted(), &pod.namespace, named);
    let Some(underlay) = underlay else {
        context.metrics.release("NoUnderlay");
        report_no_underlay(context, release, named);
        return false;
    };
    let providers = &context.provider_client;
    match providers.release_underlay(snapshot, underlay, id).await {
        Ok(()) => {
            context.metrics.release("Released");
            tracing::info!(pod = %pod.name, namespace = %pod.namespace, %id, "underlay released");
            true
        }
        Err(error) => {
            context.metrics.release("Failed");
            tracing::warn!(pod = %pod.name, %id, %error, "the underlay did not release; trying again");
            false
        }
    }
}

fn report_no_underlay(context: &Context, release: &Release, named: Option<&str>) {
    let (pod, id) = (&release.pod, &release.id);
    let text = format!(
        "the underlay allocation {id} cannot be given back: no Service {} that counts for \
         namespace {} has the label constraint.ciena.com/underlay-controller; bring it back, \
         trust its namespace (--provider-namespaces), or remove the finalizer",
        named.unwrap_or("any"),
        pod.namespace
    );
    let key = format!("{}/{id}", pod.uid);
    context.events.publish_once(key, WARNING_PERIOD, || {
        let pod = reference_to_pod(&pod.namespace, &pod.name, &pod.uid);
        Some(note(pod, true, "NoUnderlay", "Release", text))
    });
}
