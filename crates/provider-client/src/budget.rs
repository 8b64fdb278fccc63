//! Limits kube-scheduler's wait for a namespace's untrusted providers, since all other pods wait
//! too.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use tokio::time::Instant;

/// The waiting time per round that is not charged: about kube-scheduler's own time per pod.
const FREE_WAIT: Duration = Duration::from_millis(10);
/// The period whose share a namespace may use at once.
const BUDGET_WINDOW: Duration = Duration::from_secs(2);
/// The number of budgets from which full ones are removed.
const BUDGETS_BEFORE_PURGE: usize = 1024;

/// The waiting time that a namespace has left. One round may overdraw it; refilling then takes
/// longer.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left_seconds: f64,
    at: Instant,
}

impl Budget {
    fn full(now: Instant, share: f64) -> Self {
        Self {
            left_seconds: BUDGET_WINDOW.as_secs_f64() * share,
            at: now,
        }
    }

    fn refill(&mut self, now: Instant, share: f64) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        let full = BUDGET_WINDOW.as_secs_f64() * share;
        self.left_seconds = (self.left_seconds + since * share).min(full);
        self.at = now;
    }
}

#[derive(Debug)]
pub(crate) struct Budgets {
    share: f64,
    by_namespace: DashMap<Arc<str>, Budget>,
}

impl Budgets {
    pub(crate) fn new(percent: u8) -> Self {
        Self {
            share: f64::from(percent) / 100.0,
            by_namespace: DashMap::new(),
        }
    }

    /// The longest wait for a namespace's providers in one round.
    pub(crate) fn longest_wait(&self) -> Duration {
        BUDGET_WINDOW.mul_f64(self.share)
    }

    pub(crate) fn is_used_up(&self, namespace: &str, now: Instant) -> bool {
        self.by_namespace
            .get_mut(namespace)
            .is_some_and(|mut budget| {
                budget.refill(now, self.share);
                budget.left_seconds <= 0.0
            })
    }

    pub(crate) fn charge(&self, namespace: &str, now: Instant, waited: Duration) {
        let beyond = waited.saturating_sub(FREE_WAIT);
        if beyond.is_zero() {
            return;
        }
        if self.by_namespace.len() >= BUDGETS_BEFORE_PURGE {
            self.by_namespace.retain(|_, budget| {
                budget.refill(now, self.share);
                budget.left_seconds < self.longest_wait().as_secs_f64()
            });
        }
        let entry = self.by_namespace.entry(namespace.into());
        let mut budget = entry.or_insert_with(|| Budget::full(now, self.share));
        budget.refill(now, self.share);
        budget.left_seconds -= beyond.as_secs_f64();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn budget_is_used_up_by_a_slow_provider() {
        let (budgets, start) = (Budgets::new(5), Instant::now());
        assert!(!budgets.is_used_up("shop", start));
        let most = budgets.longest_wait();
        assert_eq!(most, Duration::from_millis(100));
        for _ in 0..2 {
            budgets.charge("shop", start, most);
        }
        assert!(budgets.is_used_up("shop", start));
        assert!(!budgets.is_used_up("other", start));
        // 80 ms are overdrawn; a second refills 50.
        assert!(budgets.is_used_up("shop", start + Duration::from_millis(1500)));
        assert!(!budgets.is_used_up("shop", start + Duration::from_millis(1700)));
    }

    #[test]
    fn budget_does_not_charge_quick_providers() {
        let (budgets, now) = (Budgets::new(1), Instant::now());
        for _ in 0..100_000 {
            budgets.charge("shop", now, FREE_WAIT);
        }
        assert!(!budgets.is_used_up("shop", now));
        assert!(budgets.by_namespace.is_empty());
    }

    #[test]
    fn budgets_drop_full_namespaces() {
        let (budgets, start) = (Budgets::new(5), Instant::now());
        for i in 0..BUDGETS_BEFORE_PURGE {
            budgets.charge(&format!("ns-{i}"), start, Duration::from_millis(20));
        }
        let later = start + Duration::from_secs(60);
        budgets.charge("last", later, Duration::from_millis(20));
        assert_eq!(budgets.by_namespace.len(), 1);
    }

    proptest! {
        /// At most the share, the free time per round, one window, and one overdrawing round.
        #[test]
        fn budget_never_exceeds_the_share(
            percent in 1_u8..=50,
            rounds in prop::collection::vec((0_u64..2000, 0_u64..500), 1..200),
        ) {
            let (budgets, start) = (Budgets::new(percent), Instant::now());
            let (mut now, mut taken) = (start, Duration::ZERO);
            for (pause, wait) in rounds {
                now += Duration::from_millis(pause);
                if !budgets.is_used_up("shop", now) {
                    let waited = Duration::from_millis(wait).min(budgets.longest_wait());
                    now += waited;
                    budgets.charge("shop", now, waited);
                    taken += waited.saturating_sub(FREE_WAIT);
                }
            }
            let share = (now - start).mul_f64(f64::from(percent) / 100.0);
            let most = share + budgets.longest_wait() * 2 + Duration::from_millis(1);
            prop_assert!(taken <= most, "{taken:?} of {:?}", now - start);
        }
    }
}
