//! Waking rejected pods. kube-scheduler looks again at a pod that an extender
//! rejected when some Node or Pod changes, or after 5 minutes; not when a rule
//! provider changes its mind. So the rejected are planned again here, and an
//! annotation on the pod wakes it when a node has become usable.
//!
//! Never a loop: a pod whose wake came to nothing waits twice as long for the
//! next, unless other nodes than then have become usable.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use tautline_api::convert::WOKEN_ANNOTATION;
use tautline_core::{fit, index::Kind, model::Node, nodes::NodeSet, planning::fnv1a_64};
use tautline_discovery::Question;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::State;

/// A provider that changes its mind says so to nobody: ask again so often.
const TICK: Duration = Duration::from_secs(2);
/// After a change in the cluster, wait for those that come with it.
const SETTLE: Duration = Duration::from_millis(500);
/// No pod is woken more often, whatever changes.
const SHORTEST: Duration = Duration::from_secs(3);
/// Pods planned again in one tick; the others have their turn in the next.
const A_TICK: usize = 32;
/// The wait after a wake that came to nothing; doubled each time.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);
/// Rejected pods remembered.
const MOST: usize = 10_000;

#[derive(Debug)]
struct Rejected {
    question: Question,
    looked: Option<Instant>,
    /// The usable nodes at the last wake, as a fingerprint.
    woken_for: u64,
    last_wake: Option<Instant>,
    backoff: Duration,
}

/// The pods that wait, by UID.
#[derive(Debug, Default)]
pub(crate) struct Waker(DashMap<String, Rejected>);

impl Waker {
    /// Every node rejected the pod.
    pub(crate) fn rejected(&self, mut question: Question) {
        // They are asked about anew; thousands of names a pod would add up.
        question.nodes = Arc::default();
        if let Some(mut known) = self.0.get_mut(&question.subject.uid) {
            known.question = question;
            return;
        }
        if self.0.len() >= MOST {
            return; // The scheduler's own flush still looks at it.
        }
        let fresh = Rejected {
            looked: None,
            woken_for: 0,
            last_wake: None,
            backoff: FIRST_BACKOFF,
            question: question.clone(),
        };
        self.0.insert(question.subject.uid, fresh);
    }

    /// The pod has nodes to go to, or does not wait for us any more.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.remove(uid);
    }

    /// The pods to look at next: those not looked at for longest.
    fn turn(&self) -> Vec<(String, Question)> {
        let mut list: Vec<_> = self.0.iter().map(|e| (e.looked, e.key().clone())).collect();
        list.sort();
        list.truncate(A_TICK);
        list.into_iter()
            .filter_map(|(_, uid)| {
                let mut entry = self.0.get_mut(&uid)?;
                entry.looked = Some(Instant::now());
                Some((uid.clone(), entry.question.clone()))
            })
            .collect()
    }

    /// Whether to wake a pod for these usable nodes, now.
    fn should_wake(&self, uid: &str, usable: u64) -> bool {
        let Some(mut entry) = self.0.get_mut(uid) else {
            return false;
        };
        let now = Instant::now();
        let news = entry.woken_for != usable;
        let wait = if news { SHORTEST } else { entry.backoff };
        if entry
            .last_wake
            .is_some_and(|at| now.duration_since(at) < wait)
        {
            return false;
        }
        // The wait grows with every wake that came to nothing, news or not.
        if entry.last_wake.is_some() {
            entry.backoff = (entry.backoff * 2).min(LONGEST_BACKOFF);
        }
        entry.woken_for = usable;
        entry.last_wake = Some(now);
        true
    }
}

/// Looks at rejected pods on every change that may matter, and on a tick.
pub(crate) async fn run(state: Arc<State>, client: Client, stop: CancellationToken) {
    let mut changes = state.feed.changes();
    let kinds = [
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Policy,
        Kind::Offer,
        Kind::Node,
    ];
    loop {
        let before = *changes.borrow_and_update();
        let cause = tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(TICK) => "provider",
            () = async {
                while changes.changed().await.is_ok() {
                    if changes.borrow_and_update().changed(&before, &kinds) {
                        tokio::time::sleep(SETTLE).await;
                        return;
                    }
                }
                std::future::pending().await
            } => "cluster",
        };
        for (uid, question) in state.waker.turn() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = look(&state, &client, &uid, question, cause) => {}
            }
        }
        state
            .metrics
            .pending
            .set(i64::try_from(state.waker.0.len()).unwrap_or(i64::MAX));
    }
}

async fn look(
    state: &State,
    client: &Client,
    uid: &str,
    mut question: Question,
    cause: &'static str,
) {
    let snapshot = state.feed.snapshot();
    let (namespace, name) = (
        question.subject.namespace.clone(),
        question.subject.name.clone(),
    );
    let waits = snapshot
        .pod(&namespace, &name)
        .is_some_and(|p| *p.uid == *uid && p.node.is_none() && !p.finished);
    if !waits {
        state.waker.forget(uid);
        return;
    }
    // A node that is full, tainted or not selected would only reject it again.
    let nodes: NodeSet = {
        let Some(pod) = snapshot.pod(&namespace, &name) else {
            return;
        };
        let fits = |n: &&Arc<Node>| fit::misfit(&snapshot, pod, n).is_none();
        snapshot.nodes().filter(fits).map(|n| &*n.name).collect()
    };
    question.nodes = Arc::new(nodes);
    let round = state.discovery.round(&snapshot, question).await;
    // The nodes' order is a map's: sum their hashes, so that it does not matter.
    let usable = round.plan.usable().fold(0u64, |sum, at| {
        sum.wrapping_add(fnv1a_64(&[round.nodes.name(at)]))
    });
    if round.plan.usable().next().is_none() || !state.waker.should_wake(uid, usable) {
        return;
    }
    let now = k8s_openapi::jiff::Timestamp::now();
    let patch = serde_json::json!({
        "metadata": {
            // A pod of the same name that is another by now stays as it is.
            "uid": uid,
            "annotations": { WOKEN_ANNOTATION: format!("{now:.0} {cause}") },
        }
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let params = PatchParams::default();
    let patch = Patch::Merge(patch);
    let patched = pods.patch_metadata(&name, &params, &patch);
    match tokio::time::timeout(state.config.deadline, patched).await {
        Ok(Ok(_)) => {
            state.metrics.wake(cause);
            tracing::debug!(%namespace, pod = %name, cause, "woken");
        }
        Ok(Err(error)) => tracing::warn!(%namespace, pod = %name, %error, "not woken"),
        Err(_) => tracing::warn!(%namespace, pod = %name, "not woken: no answer in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(uid: &str) -> Question {
        let mut q = Question::default();
        q.subject.uid = uid.into();
        q
    }

    #[tokio::test(start_paused = true)]
    async fn no_loop_and_news_at_once() {
        let waker = Waker::default();
        waker.rejected(question("u"));
        assert!(waker.should_wake("u", 7));
        // Rejected again for another reason: the same nodes do not wake it soon.
        waker.rejected(question("u"));
        assert!(!waker.should_wake("u", 7));
        tokio::time::advance(FIRST_BACKOFF).await;
        assert!(waker.should_wake("u", 7));
        tokio::time::advance(FIRST_BACKOFF).await;
        assert!(!waker.should_wake("u", 7), "the wait has doubled");
        assert!(waker.should_wake("u", 8), "other nodes are news");
        assert!(!waker.should_wake("u", 9), "but not every instant");
        waker.forget("u");
        tokio::time::advance(LONGEST_BACKOFF).await;
        assert!(!waker.should_wake("u", 9));
    }

    #[tokio::test(start_paused = true)]
    async fn everyone_has_a_turn() {
        let waker = Waker::default();
        for i in 0..A_TICK * 2 {
            waker.rejected(question(&i.to_string()));
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            seen.extend(waker.turn().into_iter().map(|(uid, _)| uid));
            tokio::time::advance(TICK).await;
        }
        assert_eq!(seen.len(), A_TICK * 2);
    }
}
