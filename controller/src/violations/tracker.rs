//! Tracks the violated bindings of each offer, and decides which offers have their turn. An offer
//! has at most one attempt at a time.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use hashbrown::HashSet;

use super::violation::{
    Attempt, AttemptOutcome, AttemptResult, CoolDown, Violation, ViolationEvent,
};
use crate::{binding_spec::Key, clock::Now};

/// The maximum number of concurrent attempts, each for one offer.
const MAX_ATTEMPTS: usize = 8;
/// The maximum number of an offer's bindings that one attempt handles.
const BINDINGS_PER_ATTEMPT: usize = 4;

#[derive(Default)]
struct OfferViolations {
    violations: BTreeMap<Key, Violation>,
    attempted_at: Option<Instant>,
    busy: bool,
    cool_down: CoolDown,
}

impl OfferViolations {
    /// Returns the violations to try next: those not tried for longest, then the oldest. Those that
    /// only an eviction of last resort would end come after all others.
    fn next(&self, now: Instant) -> Vec<Violation> {
        let ready = |v: &&Violation| v.not_before.is_none_or(|at| at <= now);
        let mut next: Vec<&Violation> = self.violations.values().filter(ready).collect();
        let order = |v: &&Violation| {
            let name = Arc::clone(&v.binding.name);
            (v.last_resort, v.tried_at, v.since, name)
        };
        if next.len() > BINDINGS_PER_ATTEMPT {
            next.select_nth_unstable_by_key(BINDINGS_PER_ATTEMPT, order);
            next.truncate(BINDINGS_PER_ATTEMPT);
        }
        next.sort_by_key(order);
        next.into_iter().cloned().collect()
    }

    /// Returns the number of pods in violation, by target.
    fn pods(&self) -> BTreeMap<Arc<str>, usize> {
        let (mut seen, mut counts) = (HashSet::new(), BTreeMap::new());
        for violation in self.violations.values() {
            for (target, object) in &violation.binding.targets {
                if object.kind == "Pod" && seen.insert((target, &object.namespace, &object.name)) {
                    *counts.entry(Arc::clone(target)).or_default() += 1;
                }
            }
        }
        counts
    }
}

#[derive(Default)]
pub(crate) struct ViolationTracker {
    offers: BTreeMap<Key, OfferViolations>,
    attempts: usize,
}

impl ViolationTracker {
    pub(crate) fn apply_event(&mut self, event: ViolationEvent) {
        match event {
            ViolationEvent::Raised {
                binding,
                since,
                reason,
                mitigated,
            } => {
                let offer = self.offers.entry(binding.offer_key()).or_default();
                let violation =
                    offer
                        .violations
                        .entry(binding.key())
                        .or_insert_with(|| Violation {
                            since,
                            ..Violation::default()
                        });
                // An error in between does not start a new violation.
                violation.since = violation.since.min(since);
                violation.mitigated = violation.mitigated.max(mitigated);
                (violation.binding, violation.reason) = (binding, reason);
            }
            ViolationEvent::Cleared(key) => {
                for offer in self.offers.values_mut() {
                    offer.violations.remove(&key);
                }
            }
        }
    }

    /// Returns the attempts to begin now. Offers whose last attempt was longest ago come first.
    pub(crate) fn next_attempts(&mut self, now: Now) -> Vec<Attempt> {
        let cool = |c: &CoolDown| c.row.is_none_or(|row| row.next <= now.unix);
        self.offers
            .retain(|_, o| o.busy || !o.violations.is_empty() || !cool(&o.cool_down));
        let mut idle: Vec<_> = self.offers.iter_mut().filter(|(_, o)| !o.busy).collect();
        idle.sort_by_key(|(_, o)| o.attempted_at);
        let mut attempts = Vec::new();
        for (key, offer) in idle {
            if self.attempts >= MAX_ATTEMPTS {
                break;
            }
            let violations = offer.next(now.instant);
            if violations.is_empty() {
                continue;
            }
            (offer.busy, offer.attempted_at) = (true, Some(now.instant));
            self.attempts += 1;
            attempts.push(Attempt {
                offer: Arc::clone(key),
                violations,
                pods: offer.pods(),
                cool_down: offer.cool_down,
            });
        }
        attempts
    }

    /// Ends an attempt. `result` is `None` if the attempt panicked.
    pub(crate) fn finish(&mut self, offer: &Key, result: Option<AttemptResult>, now: Instant) {
        self.attempts = self.attempts.saturating_sub(1);
        let Some(offer) = self.offers.get_mut(offer) else {
            return;
        };
        offer.busy = false;
        let Some(result) = result else { return };
        offer.cool_down = result.cool_down;
        for (key, outcome) in result.outcomes {
            let Some(violation) = offer.violations.get_mut(&key) else {
                continue;
            };
            violation.tried_at = Some(now);
            match outcome {
                AttemptOutcome::NotBefore(at) => violation.not_before = Some(at),
                AttemptOutcome::Mitigated(at) => {
                    violation.mitigated = Some(at);
                    violation.mitigations += 1;
                }
                AttemptOutcome::LastResort => violation.last_resort = true,
            }
        }
    }

    /// Forgets everything, after the end of the term and of every attempt.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
