//! Underlay allocations are given back when their pod goes. The finalizer keeps
//! the pod until that is done, so none is lost when a leader is.

use std::{collections::HashMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tautline_api::convert::{UNDERLAY_ANNOTATION, UNDERLAY_FINALIZER};
use tautline_core::{Snapshot, model};
use tautline_runtime::{
    events::{EventNote, reference_to_pod},
    finalizers,
    lease::Term,
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::app::Shared;

const TICK: Duration = Duration::from_millis(500);
const BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);
/// The same is not said of a pod again for so long.
const QUIET: Duration = Duration::from_secs(300);
/// Releases at once.
const AT_ONCE: usize = 8;

/// What is known of an allocation, by pod UID and id.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// It is back; only the finalizer is left.
    released: bool,
    next: Option<Instant>,
    failures: u32,
}

type Known = HashMap<(Box<str>, Box<str>), Progress>;

/// Releases while `leader` has a term, until told to stop.
pub(crate) async fn run(
    shared: Arc<Shared>,
    mut leader: watch::Receiver<Option<Term>>,
    stop: CancellationToken,
) {
    let mut known = Known::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = leader.changed() => if changed.is_err() {
                // The election's error is the process' to report.
                stop.cancelled().await;
                return;
            },
            () = tokio::time::sleep(TICK) => {}
        }
        let Some(term) = leader.borrow_and_update().clone() else {
            continue;
        };
        let snapshot = shared.feed.snapshot();
        let now = Instant::now();
        let mut all = Known::new();
        let mut due = Vec::new();
        for pod in snapshot.with_underlay_allocation() {
            for id in &pod.underlay {
                let key = (pod.uid.clone(), id.clone());
                let progress = known.get(&key).copied().unwrap_or_default();
                let goes = pod.terminating || pod.finished;
                if goes && progress.next.is_none_or(|at| at <= now) {
                    due.push(((Arc::clone(pod), id.clone()), progress));
                }
                all.insert(key, progress);
            }
        }
        known = all;
        let due = longest_due(due);
        let one = async |((pod, id), progress): ((Arc<model::Pod>, Box<str>), Progress)| {
            let progress = if term.is_active() {
                release(&shared, &snapshot, &pod, &id, progress).await
            } else {
                progress
            };
            ((pod.uid.clone(), id), progress)
        };
        let done = futures::future::join_all(due.into_iter().map(one)).await;
        known.extend(done);
    }
}

/// Those that have waited longest: a pod with very many keeps no other waiting for ever.
fn longest_due<T>(mut due: Vec<(T, Progress)>) -> Vec<(T, Progress)> {
    due.sort_by_key(|(_, progress)| progress.next);
    due.truncate(AT_ONCE);
    due
}

async fn release(
    shared: &Shared,
    snapshot: &Snapshot,
    pod: &model::Pod,
    id: &str,
    mut progress: Progress,
) -> Progress {
    if !progress.released {
        progress.released = give_back(shared, snapshot, pod, id).await;
    }
    if progress.released {
        let pods: Api<Pod> = Api::namespaced(shared.client.clone(), &pod.namespace);
        let finalizer = format!("{UNDERLAY_FINALIZER}{id}");
        match finalizers::remove(&pods, &pod.name, &pod.uid, &finalizer).await {
            Ok(()) | Err(finalizers::Error::Gone(_)) => {
                // The watch will say so.
                progress.next = Some(Instant::now() + LONGEST_BACKOFF);
                return progress;
            }
            Err(error) => tracing::warn!(%id, %error, "the finalizer is not removed; trying again"),
        }
    }
    let wait = BACKOFF * 2u32.saturating_pow(progress.failures.min(6));
    progress.failures += 1;
    progress.next = Some(Instant::now() + wait.min(LONGEST_BACKOFF));
    progress
}

async fn give_back(shared: &Shared, snapshot: &Snapshot, pod: &model::Pod, id: &str) -> bool {
    // Who allocated it: another underlay would not know the id, and say so.
    let named = pod.annotations.get(UNDERLAY_ANNOTATION);
    let underlay = match named {
        Some(name) => {
            let namespace = &pod.namespace;
            shared.discovery.underlay_named(snapshot, name, namespace)
        }
        None => shared.discovery.underlay(snapshot, &pod.namespace),
    };
    let Some(underlay) = underlay else {
        shared.metrics.release("NoUnderlay");
        let who = named.unwrap_or("any");
        let text = format!(
            "the underlay allocation {id} cannot be given back: no Service {who} that counts for \
             namespace {} has the label constraint.ciena.com/underlay-controller; bring it back, \
             trust its namespace (--provider-namespaces), or remove the finalizer",
            pod.namespace
        );
        let key = format!("{}/{id}", pod.uid);
        shared.events.publish_once(key, QUIET, || {
            Some(EventNote {
                regarding: reference_to_pod(&pod.namespace, &pod.name, &pod.uid),
                secondary: None,
                warning: true,
                reason: "NoUnderlay".to_owned(),
                action: "Release",
                text,
            })
        });
        return false;
    };
    match shared
        .discovery
        .release_underlay(snapshot, underlay, id)
        .await
    {
        Ok(()) => {
            shared.metrics.release("Released");
            tracing::info!(pod = %pod.name, namespace = %pod.namespace, %id, "underlay released");
            true
        }
        Err(error) => {
            shared.metrics.release("Failed");
            tracing::warn!(pod = %pod.name, %id, %error, "the underlay did not release; trying again");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hundreds that fail, and are due again at once, come after one that waited.
    #[test]
    fn an_allocation_that_waits_gets_its_turn() {
        let now = Instant::now();
        let at = |millis| Progress {
            next: Some(now + Duration::from_millis(millis)),
            ..Progress::default()
        };
        let mut due: Vec<(&str, Progress)> = (100..300).map(|i| ("many", at(i))).collect();
        due.push(("waits", at(50)));
        due.push(("new", Progress::default()));
        let turn: Vec<&str> = longest_due(due).into_iter().map(|(what, _)| what).collect();
        assert_eq!(turn[..3], ["new", "waits", "many"]);
        assert_eq!(turn.len(), AT_ONCE);
    }
}
