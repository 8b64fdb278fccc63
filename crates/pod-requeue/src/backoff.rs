//! The order and the back-off of checks of rejected pods.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tautline_core::model::Pod;
use tokio::time::Instant;

const MIN_INTERVAL: Duration = Duration::from_secs(3);
const BATCH: usize = 32;
/// The wait after the first requeue; doubled each time.
const MIN_BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct RejectedPod {
    checked: Instant,
    /// The fingerprint of the usable nodes at the last requeue (`None`: none since), and its time.
    last_requeue: Option<(Option<u64>, Instant)>,
    backoff: Duration,
}

/// By UID.
#[derive(Debug, Default)]
pub(crate) struct RejectedPods(HashMap<Box<str>, RejectedPod>);

impl RejectedPods {
    /// The least recently checked pods. Drops pods missing from `all`.
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
        let batch: Vec<Arc<Pod>> = order.into_values().take(BATCH).cloned().collect();
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

    /// A node usable later counts as new, even if it is that of the last requeue.
    pub(crate) fn no_usable_node(&mut self, uid: &str) {
        let pod = self.0.get_mut(uid);
        if let Some((usable, _)) = pod.and_then(|p| p.last_requeue.as_mut()) {
            *usable = None;
        }
    }

    pub(crate) fn should_requeue(&mut self, uid: &str, usable: u64) -> bool {
        let Some(pod) = self.0.get_mut(uid) else {
            return false;
        };
        let now = Instant::now();
        if let Some((last_usable, at)) = pod.last_requeue {
            let wait = if last_usable == Some(usable) {
                pod.backoff
            } else {
                // Jittering costs change the usable nodes, so this wait grows too.
                MIN_INTERVAL.max(pod.backoff / 4)
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
        tokio::time::advance(MIN_INTERVAL).await;
        assert!(rejected.should_requeue("0", 7));
    }

    #[tokio::test(start_paused = true)]
    async fn turn_gives_every_pod_a_turn() {
        let mut rejected = RejectedPods::default();
        let pods = pods(0..BATCH * 2);
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
        assert_eq!(seen.len(), BATCH * 2);
    }
}
