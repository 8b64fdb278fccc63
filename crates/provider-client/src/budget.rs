//! Limits kube-scheduler's wait for a namespace's untrusted providers, since all other pods wait
//! too.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use tautline_core::model::Service;
use tokio::time::Instant;

use crate::{CallError, ProviderClient};

/// The waiting time per round that is not charged: about kube-scheduler's own time per pod.
const FREE_WAIT: Duration = Duration::from_millis(10);
/// The period whose share a namespace may use at once.
const BUDGET_WINDOW: Duration = Duration::from_secs(2);
/// The number of budgets from which full ones are removed.
const BUDGETS_BEFORE_PURGE: usize = 1024;

/// The waiting time that each namespace has left. One round may overdraw it; refilling then takes
/// longer.
#[derive(Debug)]
pub(crate) struct Budgets {
    share: f64,
    /// The time at which a namespace's budget is full again. It is used up if that takes the whole
    /// window or longer.
    full_at: DashMap<Arc<str>, Instant>,
}

impl Budgets {
    pub(crate) fn new(percent: u8) -> Self {
        Self {
            share: f64::from(percent) / 100.0,
            full_at: DashMap::new(),
        }
    }

    /// The longest wait for a namespace's providers in one round.
    fn longest_wait(&self) -> Duration {
        BUDGET_WINDOW.mul_f64(self.share)
    }

    fn is_used_up(&self, namespace: &str, now: Instant) -> bool {
        let full_at = self.full_at.get(namespace);
        full_at.is_some_and(|at| *at >= now + BUDGET_WINDOW)
    }

    fn charge(&self, namespace: &str, now: Instant, waited: Duration) {
        let beyond = waited.saturating_sub(FREE_WAIT);
        if beyond.is_zero() {
            return;
        }
        if self.full_at.len() >= BUDGETS_BEFORE_PURGE {
            self.full_at.retain(|_, at| *at > now);
        }
        let mut full_at = self.full_at.entry(namespace.into()).or_insert(now);
        *full_at = now.max(*full_at) + beyond.div_f64(self.share);
    }
}

impl ProviderClient {
    /// The longest time that kube-scheduler may wait for pods of a namespace; `None` if it is not
    /// limited. It does not use the share for the namespace's providers, since a wait must not
    /// switch them off.
    pub fn longest_wait(&self, namespace: &str) -> Option<Duration> {
        let budgets = self.limiting(&self.0.wait_budgets, namespace)?;
        let has_some = !budgets.is_used_up(namespace, Instant::now());
        let most = has_some.then(|| budgets.longest_wait());
        Some(most.unwrap_or_default())
    }

    /// Charges a namespace for a wait for its pods.
    pub fn charge_wait(&self, namespace: &str, waited: Duration) {
        if let Some(budgets) = self.limiting(&self.0.wait_budgets, namespace) {
            budgets.charge(namespace, Instant::now(), waited);
        }
    }

    /// Charges a namespace for a wait for its providers.
    pub(crate) fn charge_calls(&self, namespace: &str, waited: Duration) {
        if let Some(budgets) = self.limiting(&self.0.budgets, namespace) {
            budgets.charge(namespace, Instant::now(), waited);
        }
    }

    /// The longest time that a call may take while kube-scheduler waits, at most `deadline`.
    pub(crate) fn longest_call(&self, service: &Service, deadline: Duration) -> Duration {
        let budgets = self.limiting(&self.0.budgets, &service.namespace);
        budgets.map_or(deadline, |budgets| deadline.min(budgets.longest_wait()))
    }

    /// Fails if the Service's namespace has used up its share of kube-scheduler's time.
    pub(crate) fn check_budget(&self, service: &Service) -> Result<(), CallError> {
        let namespace = &service.namespace;
        let budgets = self.limiting(&self.0.budgets, namespace);
        if budgets.is_some_and(|budgets| budgets.is_used_up(namespace, Instant::now())) {
            self.0.metrics.over_budget(namespace);
            return Err(CallError::OverBudget(Arc::clone(namespace)));
        }
        Ok(())
    }

    fn limiting<'a>(&self, budgets: &'a Option<Budgets>, namespace: &str) -> Option<&'a Budgets> {
        let is_trusted = self.0.config.trusted.contains(namespace);
        budgets.as_ref().filter(|_| !is_trusted)
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
        assert!(budgets.full_at.is_empty());
    }

    #[test]
    fn budgets_drop_full_namespaces() {
        let (budgets, start) = (Budgets::new(5), Instant::now());
        for i in 0..BUDGETS_BEFORE_PURGE {
            budgets.charge(&format!("ns-{i}"), start, Duration::from_millis(20));
        }
        let later = start + Duration::from_secs(60);
        budgets.charge("last", later, Duration::from_millis(20));
        assert_eq!(budgets.full_at.len(), 1);
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
