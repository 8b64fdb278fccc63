//! The order of rejected pods, and the backoff of their requeues.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tautline_core::model::Pod;
use tokio::time::Instant;

/// Minimum time between two requeues of a pod.
const SHORTEST: Duration = Duration::from_secs(3);
/// Pods planned in one turn; others follow in the next.
const A_TURN: usize = 32;
/// The wait after a requeue without effect; doubles each time.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct Waiting {
    planned_at: Instant,
    /// The hash of the usable nodes at the last requeue (`None` if there was no usable node
    /// since), and its time.
    last_requeue: Option<(Option<u64>, Instant)>,
    backoff: Duration,
}

/// The rejected pods, by UID.
#[derive(Debug, Default)]
pub(crate) struct RejectedPods(HashMap<Box<str>, Waiting>);

impl RejectedPods {
    /// The pods to plan next: those not planned for longest. Drops pods that `all` lacks.
    pub(crate) fn turn<'a>(&mut self, all: impl Iterator<Item = &'a Arc<Pod>>) -> Vec<Arc<Pod>> {
        let now = Instant::now();
        let mut order: BTreeMap<(Option<Instant>, &str), &Arc<Pod>> = BTreeMap::new();
        let mut kept = HashMap::new();
        for pod in all {
            let known = self.0.remove(&pod.uid);
            order.insert((known.as_ref().map(|w| w.planned_at), &pod.uid), pod);
            if let Some(known) = known {
                kept.insert(pod.uid.clone(), known);
            }
        }
        self.0 = kept;
        let turn: Vec<Arc<Pod>> = order.into_values().take(A_TURN).cloned().collect();
        for pod in &turn {
            let fresh = Waiting {
                planned_at: now,
                last_requeue: None,
                backoff: FIRST_BACKOFF,
            };
            self.0.entry(pod.uid.clone()).or_insert(fresh).planned_at = now;
        }
        turn
    }

    /// No node was usable: the next usable node counts as new, even that of the last requeue.
    pub(crate) fn no_usable_node(&mut self, uid: &str) {
        if let Some((requeued_for, _)) = self.0.get_mut(uid).and_then(|w| w.last_requeue.as_mut()) {
            *requeued_for = None;
        }
    }

    /// Whether to requeue a pod now, for these usable nodes.
    pub(crate) fn should_requeue(&mut self, uid: &str, usable: u64) -> bool {
        let Some(entry) = self.0.get_mut(uid) else {
            return false;
        };
        let now = Instant::now();
        if let Some((requeued_for, at)) = entry.last_requeue {
            let wait = if requeued_for == Some(usable) {
                entry.backoff
            } else {
                // Unsteady costs give other nodes each time: slow that down too.
                SHORTEST.max(entry.backoff / 4)
            };
            if now.duration_since(at) < wait {
                return false;
            }
            // The wait grows with every requeue.
            entry.backoff = (entry.backoff * 2).min(LONGEST_BACKOFF);
        }
        entry.last_requeue = Some((Some(usable), now));
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
        rejected.turn(pods.iter());
        assert!(rejected.should_requeue("0", 7));
        // Rejected again for another reason: the same nodes do not wake it soon.
        rejected.turn(pods.iter());
        assert!(!rejected.should_requeue("0", 7));
        tokio::time::advance(FIRST_BACKOFF).await;
        assert!(rejected.should_requeue("0", 7));
        tokio::time::advance(FIRST_BACKOFF).await;
        assert!(!rejected.should_requeue("0", 7), "the wait has doubled");
        assert!(rejected.should_requeue("0", 8), "other nodes are news");
        assert!(!rejected.should_requeue("0", 9), "but not every instant");
        let mut requeues = 0;
        for _ in 0..600 {
            tokio::time::advance(Duration::from_secs(1)).await;
            requeues += usize::from(rejected.should_requeue("0", 10 + requeues as u64));
        }
        assert!(
            requeues < 15,
            "{requeues} in ten minutes, with other nodes each time"
        );
        rejected.turn([].iter());
        tokio::time::advance(LONGEST_BACKOFF).await;
        assert!(
            !rejected.should_requeue("0", 9),
            "it does not wait any more"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn should_requeue_for_a_node_that_returned() {
        let mut rejected = RejectedPods::default();
        rejected.turn(pods(0..1).iter());
        assert!(rejected.should_requeue("0", 7));
        rejected.no_usable_node("0");
        assert!(!rejected.should_requeue("0", 7), "but not every instant");
        rejected.no_usable_node("0");
        tokio::time::advance(SHORTEST).await;
        assert!(rejected.should_requeue("0", 7));
    }

    #[tokio::test(start_paused = true)]
    async fn turn_gives_every_pod_a_turn() {
        let mut rejected = RejectedPods::default();
        let pods = pods(0..A_TURN * 2);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            seen.extend(rejected.turn(pods.iter()).iter().map(|p| p.uid.clone()));
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        assert_eq!(seen.len(), A_TURN * 2);
    }
}
