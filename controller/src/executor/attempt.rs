//! An attempt to act on the violations of one offer: mitigates, evicts, or waits.

use std::{sync::Arc, time::Duration};

use tautline_core::{
    Compliance, Snapshot,
    compliance_state::UnixTime,
    model::{Offer, ViolationPolicy},
};

use super::{
    calls::Calls,
    evict::{Evicted, Turn, evict},
    mediate,
};
use crate::{
    binding_spec::offer_at,
    binding_status::to_api_time,
    eviction::EvictionRow,
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
        pods,
        mut cool_down,
    } = attempt;
    let snapshot = calls.snapshot();
    let mut outcomes = Vec::new();
    let entry = offer_at(&snapshot, &key);
    match entry.map(|e| &e.offer) {
        Some(offer) if load_cool_down(calls, offer, &mut cool_down).await => {
            let pods = offer
                .evict
                .iter()
                .filter_map(|target| pods.get(target))
                .sum();
            for violation in violations {
                // The next leader waits for the end of this attempt, which holds the Lease.
                if !calls.leads() {
                    break;
                }
                let row = &mut cool_down.row;
                let outcome = act(calls, &snapshot, offer, &violation, (row, pods)).await;
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
    (row, pods): (&mut Option<EvictionRow>, usize),
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
        NextStep::Evict => match row.map(|row| row.next).filter(|next| *next > now) {
            Some(next) => {
                report_cool_down(calls, violation, next);
                wait_until(calls, next)
            }
            None => evict_violation(calls, offer, violation, (row, pods)).await,
        },
    }
}

/// Reads the offer's last eviction, which an earlier leader may have made. Returns false if it
/// could not be read, so that the cool-down is unknown.
async fn load_cool_down<C: Calls>(calls: &C, offer: &Offer, cool_down: &mut CoolDown) -> bool {
    let evicts = offer.violation_policy == ViolationPolicy::Evict;
    if cool_down.loaded || !evicts {
        return true;
    }
    match calls.offer_status(offer).await {
        Ok(status) => {
            let period = calls.settings().eviction_cool_down;
            let last = status.last_eviction;
            cool_down.row = last.map(|last| EvictionRow::recorded(&last, period));
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

/// Evicts a pod of the violated binding. `pods` is the number of the pods in violation that the
/// offer may evict.
async fn evict_violation<C: Calls>(
    calls: &C,
    offer: &Offer,
    violation: &Violation,
    (row, pods): (&mut Option<EvictionRow>, usize),
) -> AttemptOutcome {
    let period = calls.settings().eviction_cool_down;
    match evict(calls, offer, violation, &Turn { row: *row, pods }).await {
        Ok(Evicted::Now(later)) => {
            *row = Some(later);
            wait_until(calls, later.next)
        }
        Ok(Evicted::AsLastResort) => {
            let text = "only a pod of last resort would be evicted: the only one of its owner, or a \
                        group; the offer's other violations come first";
            calls.report_wait(violation, "LastResort", text);
            AttemptOutcome::LastResort
        }
        Err(refusal) => {
            if refusal.code == "CameBack" {
                *row = row.map(|row| row.slowed(period));
            }
            not_before(calls, refusal.retry_after())
        }
    }
}

fn report_cool_down<C: Calls>(calls: &C, violation: &Violation, next: UnixTime) {
    let wait = next.saturating_sub(calls.now().unix);
    let text = format!(
        "next eviction in {} s, at {}: the offer's cool-down",
        wait.as_secs() + u64::from(wait.subsec_nanos() > 0),
        to_api_time(next).0
    );
    calls.report_wait(violation, "CoolDown", &text);
}

fn not_before<C: Calls>(calls: &C, wait: Duration) -> AttemptOutcome {
    AttemptOutcome::NotBefore(calls.now().instant + wait)
}

fn wait_until<C: Calls>(calls: &C, until: UnixTime) -> AttemptOutcome {
    not_before(calls, until.saturating_sub(calls.now().unix))
}
