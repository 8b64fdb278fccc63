//! Decides which rejected pods are checked next, and when a pod may be requeued again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tautline_core::model::Pod;
use tokio::time::Instant;

/// The shortest time between two requeues of a pod.
const MIN_REQUEUE_INTERVAL: Duration = Duration::from_secs(3);
/// The number of pods that are checked at a time.
const BATCH_PODS: usize = 32;
/// The wait after the first requeue of a pod whose usable nodes stay the same. It doubles with each
/// requeue.
const MIN_BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct RejectedPod {
    checked: Instant,
    /// The fingerprint of the usable nodes at the last requeue, and the time of that requeue. The
    /// fingerprint is `None` if the pod had no usable node at some time since.
    last_requeue: Option<(Option<u64>, Instant)>,
    backoff: Duration,
}

/// The rejected pods that were checked before, by UID.
#[derive(Debug, Default)]
pub(crate) struct RejectedPods(HashMap<Box<str>, RejectedPod>);

impl RejectedPods {
    /// Returns the next pods to check: new pods, then the least recently checked ones. Forgets the
    /// pods that are missing in `all`.
    pub(crate) fn next_batch<'a>(
        &mut self,
        all: impl Iterator<Item = &'a Arc<Pod>>,
    ) -> Vec<Arc<Pod>> {
        let now = Instant::now();
        let mut order: BTreeMap<(Option<Instant>, &str), &Arc<Pod>> = BTreeMap::new();
        let mut current = HashMap::new();
        for pod in all {
            let known = self.0.remove(&pod.uid);
            order.insert((known.as_ref().map(|p| p.checked), &pod.uid), pod);
            if let Some(known) = known {
                current.insert(pod.uid.clone(), known);
            }
        }
        self.0 = current;
        let batch: Vec<Arc<Pod>> = order.into_values().take(BATCH_PODS).cloned().collect();
        for pod in &batch {
            let new = RejectedPod {
                checked: now,
                last_requeue: None,
                backoff: MIN_BACKOFF,
            };
            self.0.entry(pod.uid.clone()).or_insert(new).checked = now;
        }
        batch
    }

    /// Records that a pod has no usable node. A node that becomes usable later counts as new, even
    /// if it was usable at the last requeue.
    pub(crate) fn no_usable_node(&mut self, uid: &str) {
        let pod = self.0.get_mut(uid);
        if let Some((usable, _)) = pod.and_then(|p| p.last_requeue.as_mut()) {
            *usable = None;
        }
    }

    /// Returns whether a pod with the fingerprint `usable` of its usable nodes is to be requeued
    /// now. If so, records the requeue.
    pub(crate) fn should_requeue(&mut self, uid: &str, usable: u64) -> bool {
        let Some(pod) = self.0.get_mut(uid) else {
            return false;
        };
        let now = Instant::now();
        if let Some((last_usable, at)) = pod.last_requeue {
            let wait = if last_usable == Some(usable) {
                pod.backoff
            } else {
                // Costs that vary change the usable nodes again and again, so this wait grows too.
                MIN_REQUEUE_INTERVAL.max(pod.backoff / 4)
            };
            if now.duration_since(at) < wait {
                return false;
            }
            pod.backoff = (pod.backoff * 2).min(MAX_BACKOFF);
        }
        pod.last_requeue = Some((Some(usable), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(uids: std::ops::Range<usize>) -> Vec<Arc<Pod>> {
        uids.map(|i| {
            Arc::new(Pod {
                uid: i.to_string().into(),
                ..Pod::default()
            })
        })
        .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn should_requeue_backs_off_and_allows_new_nodes() {
        let mut rejected = RejectedPods::default();
        let pods = pods(0..1);
        rejected.next_batch(pods.iter());
        assert!(rejected.should_requeue("0", 7));
        rejected.next_batch(pods.iter());
        assert!(!rejected.should_requeue("0", 7));
        tokio::time::advance(MIN_BACKOFF).await;
        assert!(rejected.should_requeue("0", 7));
        tokio::time::advance(MIN_BACKOFF).await;
        assert!(!rejected.should_requeue("0", 7), "the wait has doubled");
        assert!(
            rejected.should_requeue("0", 8),
            "other nodes shorten the wait"
        );
        assert!(
            !rejected.should_requeue("0", 9),
            "but not below the minimum interval"
        );
        let mut requeues = 0;
        for _ in 0..600 {
            tokio::time::advance(Duration::from_secs(1)).await;
            requeues += usize::from(rejected.should_requeue("0", 10 + requeues as u64));
        }
        assert!(
            requeues < 15,
            "{requeues} in ten minutes, with other nodes each time"
        );
        rejected.next_batch([].iter());
        tokio::time::advance(MAX_BACKOFF).await;
        assert!(
            !rejected.should_requeue("0", 9),
            "a dropped pod is not requeued"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn should_requeue_for_a_node_that_returned() {
        let mut rejected = RejectedPods::default();
        rejected.next_batch(pods(0..1).iter());
        assert!(rejected.should_requeue("0", 7));
        rejected.no_usable_node("0");
        assert!(
            !rejected.should_requeue("0", 7),
            "but not below the minimum interval"
        );
        rejected.no_usable_node("0");
        tokio::time::advance(MIN_REQUEUE_INTERVAL).await;
        assert!(rejected.should_requeue("0", 7));
    }

    #[tokio::test(start_paused = true)]
    async fn turn_gives_every_pod_a_turn() {
        let mut rejected = RejectedPods::default();
        let pods = pods(0..BATCH_PODS * 2);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            seen.extend(
                rejected
                    .next_batch(pods.iter())
                    .iter()
                    .map(|p| p.uid.clone()),
            );
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        assert_eq!(seen.len(), BATCH_PODS * 2);
    }
}
