//! The state machine of violations: it orders the attempts to act on them, and decides the next
//! step of each.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use hashbrown::HashSet;
use tautline_core::{compliance_state::UnixTime, model::ViolationPolicy};

use crate::{
    binding_spec::{BindingSpec, Key},
    clock::{Now, backoff},
    eviction::EvictionRow,
};

/// The maximum number of concurrent attempts, each for one offer.
const MAX_ATTEMPTS: usize = 8;
/// The wait of a pod of last resort, in which the offer's other violations have several turns: they
/// may be refused for a moment.
const LAST_RESORT_WAIT: Duration = Duration::from_secs(30);
/// The maximum number of an offer's bindings that one attempt handles.
const BINDINGS_PER_ATTEMPT: usize = 4;
/// The shortest wait between two mitigations of one violation.
const MIN_WAIT: Duration = Duration::from_secs(10);
/// The longest wait between two mitigations of one violation, unless the grace time is longer.
const MAX_WAIT: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ViolationEvent {
    Raised {
        binding: Arc<BindingSpec>,
        since: UnixTime,
        reason: String,
        /// The time of the last mitigation in the binding's status.
        mitigated: Option<UnixTime>,
    },
    Cleared(Arc<BindingSpec>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Violation {
    pub binding: Arc<BindingSpec>,
    pub since: UnixTime,
    pub reason: String,
    /// The time of the last mitigation.
    pub mitigated: Option<UnixTime>,
    /// The number of mitigations for this violation.
    pub mitigations: u32,
    pub tried_at: Option<Instant>,
    pub not_before: Option<Instant>,
    /// True if only an eviction of last resort would end the violation, so that others come first.
    pub last_resort: bool,
}

/// An attempt to act on violations of one offer.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub offer: Key,
    pub violations: Vec<Violation>,
    /// The number of pods in violation of the offer, by target.
    pub pods: BTreeMap<Arc<str>, usize>,
    pub cool_down: CoolDown,
}

/// An offer's cool-down after its evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CoolDown {
    /// True if the last eviction, which an earlier leader may have made, has been read.
    pub loaded: bool,
    /// The last row of the offer's evictions.
    pub row: Option<EvictionRow>,
}

#[derive(Debug)]
pub(crate) struct AttemptResult {
    pub cool_down: CoolDown,
    pub outcomes: Vec<(Key, AttemptOutcome)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AttemptOutcome {
    /// The next attempt waits until this time.
    NotBefore(Instant),
    /// A mitigation was requested at this time.
    Mitigated(UnixTime),
    /// The attempt did nothing, as only an eviction of last resort would end the violation.
    LastResort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    Nothing,
    /// The policy is to mediate, and there is no underlay controller.
    NoUnderlay,
    Wait(UnixTime),
    Mitigate,
    Evict,
}

/// Returns the next step for a violation, without regard to cool-downs: a mitigation comes before
/// an eviction. `underlay` is true if there is an underlay controller.
pub(crate) fn decide_action(
    policy: ViolationPolicy,
    underlay: bool,
    grace: Duration,
    violation: &Violation,
    now: UnixTime,
) -> NextStep {
    // Times in statuses are whole seconds, rounded up.
    let mitigated = violation
        .mitigated
        .filter(|at| *at + Duration::from_secs(1) >= violation.since);
    match (policy, mitigated) {
        (ViolationPolicy::Ignore, _) => NextStep::Nothing,
        (ViolationPolicy::Mediate, _) if !underlay => NextStep::NoUnderlay,
        (_, None) if underlay => NextStep::Mitigate,
        (ViolationPolicy::Mediate, None) => NextStep::Nothing,
        (ViolationPolicy::Mediate, Some(at)) => {
            let (first, longest) = (grace.max(MIN_WAIT), grace.max(MAX_WAIT));
            let until = at + backoff(first, longest, violation.mitigations);
            if now < until {
                NextStep::Wait(until)
            } else {
                NextStep::Mitigate
            }
        }
        (ViolationPolicy::Evict, Some(at)) if now < at + grace => NextStep::Wait(at + grace),
        (ViolationPolicy::Evict, _) => NextStep::Evict,
    }
}

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
        next.sort_by_cached_key(order);
        next.truncate(BINDINGS_PER_ATTEMPT);
        next.into_iter().cloned().collect()
    }

    /// Returns the number of pods in violation, by target.
    fn pods(&self) -> BTreeMap<Arc<str>, usize> {
        let (mut seen, mut counts) = (HashSet::new(), BTreeMap::new());
        for violation in self.violations.values() {
            for (target, object) in &violation.binding.targets {
                if object.is_local_pod() && seen.insert((target, &object.namespace, &object.name)) {
                    *counts.entry(Arc::clone(target)).or_default() += 1;
                }
            }
        }
        counts
    }
}

/// Tracks the violated bindings of each offer, and decides which offers have their turn. An offer
/// has at most one attempt at a time.
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
                let violation = offer.violations.entry(binding.key());
                let violation = violation.or_insert_with(|| Violation {
                    since,
                    ..Violation::default()
                });
                // An error in between does not start a new violation.
                violation.since = violation.since.min(since);
                violation.mitigated = violation.mitigated.max(mitigated);
                (violation.binding, violation.reason) = (binding, reason);
            }
            ViolationEvent::Cleared(binding) => {
                if let Some(offer) = self.offers.get_mut(&binding.offer_key()) {
                    offer.violations.remove(&binding.key());
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
        let has_others = offer.violations.len() > 1;
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
                AttemptOutcome::LastResort => {
                    violation.last_resort = true;
                    violation.not_before = has_others.then(|| now + LAST_RESORT_WAIT);
                }
            }
        }
    }
}
