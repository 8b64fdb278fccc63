use std::{sync::Arc, time::Duration};

use tautline_core::{
    Compliance, Snapshot,
    compliance_state::UnixTime,
    model::{Offer, ViolationPolicy},
};

use super::{calls::Calls, evict::evict, mediate};
use crate::{
    binding_spec::offer_at,
    binding_status::from_api_time,
    mitigation::{MitigationRequest, underlay_for},
    violations::{
        Attempt, AttemptOutcome, AttemptResult, CoolDown, NextStep, Violation, decide_action,
    },
};

/// The wait after an attempt without effect.
const RETRY_AFTER: Duration = Duration::from_secs(10);

pub(super) async fn attempt<C: Calls>(calls: &C, attempt: Attempt) -> AttemptResult {
    let Attempt {
        offer: key,
        violations,
        mut cool_down,
    } = attempt;
    let snapshot = calls.snapshot();
    let mut outcomes = Vec::new();
    let entry = offer_at(&snapshot, &key);
    match entry.map(|e| &e.offer) {
        Some(offer) if load_cool_down(calls, offer, &mut cool_down).await => {
            for violation in violations {
                // The next leader waits until this attempt has ended.
                if !calls.leads() {
                    break;
                }
                let outcome = act(calls, &snapshot, offer, &violation, &mut cool_down).await;
                outcomes.push((violation.binding.key(), outcome));
            }
        }
        _ => {
            let wait = |v: Violation| (v.binding.key(), not_before(calls, RETRY_AFTER));
            outcomes.extend(violations.into_iter().map(wait));
        }
    }
    AttemptResult {
        cool_down,
        outcomes,
    }
}

async fn act<C: Calls>(
    calls: &C,
    snapshot: &Snapshot,
    offer: &Arc<Offer>,
    violation: &Violation,
    cool_down: &mut CoolDown,
) -> AttemptOutcome {
    let request = MitigationRequest::new(snapshot, offer, &violation.binding);
    let trusted = &calls.settings().trusted;
    let underlay = underlay_for(snapshot, trusted, offer, &request).is_some();
    let now = calls.now().unix;
    let policy = offer.violation_policy;
    match decide_action(policy, underlay, offer.grace, violation, now) {
        NextStep::Nothing => not_before(calls, RETRY_AFTER),
        NextStep::NoUnderlay => {
            mediate::report_no_underlay(calls, offer, violation);
            not_before(calls, RETRY_AFTER)
        }
        NextStep::Wait(until) => wait_until(calls, until),
        NextStep::Mitigate => match mitigate_violation(calls, offer, violation).await {
            Some(at) => AttemptOutcome::Mitigated(at),
            None => not_before(calls, RETRY_AFTER),
        },
        NextStep::Evict => match cool_down.until.filter(|until| *until > now) {
            Some(until) => wait_until(calls, until),
            None => {
                let wait = evict_violation(calls, offer, violation, cool_down).await;
                not_before(calls, wait)
            }
        },
    }
}

/// Reads the last eviction, which an earlier leader may have made. Returns false if the
/// cool-down is not known.
async fn load_cool_down<C: Calls>(calls: &C, offer: &Offer, cool_down: &mut CoolDown) -> bool {
    let evicts = offer.violation_policy == ViolationPolicy::Evict;
    if cool_down.loaded || !evicts {
        return true;
    }
    match calls.offer_status(offer).await {
        Ok(status) => {
            let last = status.last_eviction.map(|e| from_api_time(&e.time));
            cool_down.until = last.map(|at| at + calls.settings().eviction_cool_down);
            cool_down.loaded = true;
            true
        }
        Err(error) => {
            let (namespace, name) = (&offer.namespace, &offer.name);
            tracing::warn!(%namespace, offer = %name, %error, "the last eviction is not known");
            false
        }
    }
}

async fn mitigate_violation<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
) -> Option<UnixTime> {
    let compliance = calls.reevaluate(&violation.binding).await;
    if compliance != Compliance::Violation || !calls.leads() {
        return None;
    }
    mediate::mitigate(calls, offer, violation).await
}

/// Tries to evict and returns the time to wait with this violation.
async fn evict_violation<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
    cool_down: &mut CoolDown,
) -> Duration {
    let period = calls.settings().eviction_cool_down;
    let last = cool_down.until.map(|until| until.saturating_sub(period));
    match evict(calls, offer, violation, last).await {
        Ok(at) => {
            cool_down.until = Some(at + period);
            period
        }
        Err(refusal) => refusal.retry_after(),
    }
}

fn not_before<C: Calls>(calls: &C, wait: Duration) -> AttemptOutcome {
    AttemptOutcome::NotBefore(calls.now().instant + wait)
}

fn wait_until<C: Calls>(calls: &C, until: UnixTime) -> AttemptOutcome {
    not_before(calls, until.saturating_sub(calls.now().unix))
}
