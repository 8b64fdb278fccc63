//! Which rejected pod is looked at next, and when it may be woken again.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tautline_core::model::Pod;
use tokio::time::Instant;

/// No pod is woken more often, whatever changes.
const SHORTEST: Duration = Duration::from_secs(3);
/// Pods planned again in one turn; the others have theirs in the next.
const A_TURN: usize = 32;
/// The wait after a wake that came to nothing; doubled each time.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct Waiting {
    looked: Instant,
    /// The usable nodes at the last wake, as a fingerprint (`None`: none were since),
    /// and when that was.
    woken: Option<(Option<u64>, Instant)>,
    backoff: Duration,
}

/// The pods that wait, by UID.
#[derive(Debug, Default)]
pub(crate) struct RejectedPods(HashMap<Box<str>, Waiting>);

impl RejectedPods {
    /// The pods to look at next: those not looked at for longest. A pod that is
    /// not among `all` any more is forgotten.
    pub(crate) fn turn<'a>(&mut self, all: impl Iterator<Item = &'a Arc<Pod>>) -> Vec<Arc<Pod>> {
        let now = Instant::now();
        let mut order: BTreeMap<(Option<Instant>, &str), &Arc<Pod>> = BTreeMap::new();
        let mut kept = HashMap::new();
        for pod in all {
            let known = self.0.remove(&pod.uid);
            order.insert((known.as_ref().map(|w| w.looked), &pod.uid), pod);
            if let Some(known) = known {
                kept.insert(pod.uid.clone(), known);
            }
        }
        self.0 = kept;
        let turn: Vec<Arc<Pod>> = order.into_values().take(A_TURN).cloned().collect();
        for pod in &turn {
            let fresh = Waiting {
                looked: now,
                woken: None,
                backoff: FIRST_BACKOFF,
            };
            self.0.entry(pod.uid.clone()).or_insert(fresh).looked = now;
        }
        turn
    }

    /// No node was usable in between: the next one is news, also the one that the
    /// pod was woken for last.
    pub(crate) fn no_usable_node(&mut self, uid: &str) {
        if let Some((woken_for, _)) = self.0.get_mut(uid).and_then(|w| w.woken.as_mut()) {
            *woken_for = None;
        }
    }

    /// Whether to wake a pod for these usable nodes, now.
    pub(crate) fn should_requeue(&mut self, uid: &str, usable: u64) -> bool {
        let Some(entry) = self.0.get_mut(uid) else {
            return false;
        };
        let now = Instant::now();
        if let Some((woken_for, at)) = entry.woken {
            let wait = if woken_for == Some(usable) {
                entry.backoff
            } else {
                // Costs that jitter bring other nodes each time: that ends, too.
                SHORTEST.max(entry.backoff / 4)
            };
            if now.duration_since(at) < wait {
                return false;
            }
            // The wait grows with every wake that came to nothing, news or not.
            entry.backoff = (entry.backoff * 2).min(LONGEST_BACKOFF);
        }
        entry.woken = Some((Some(usable), now));
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
    async fn no_loop_and_news_at_once() {
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
        let mut wakes = 0;
        for _ in 0..600 {
            tokio::time::advance(Duration::from_secs(1)).await;
            wakes += usize::from(rejected.should_requeue("0", 10 + wakes as u64));
        }
        assert!(
            wakes < 15,
            "{wakes} in ten minutes, with other nodes each time"
        );
        rejected.turn([].iter());
        tokio::time::advance(LONGEST_BACKOFF).await;
        assert!(
            !rejected.should_requeue("0", 9),
            "it does not wait any more"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_was_gone_in_between_is_news() {
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
    async fn everyone_has_a_turn() {
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
