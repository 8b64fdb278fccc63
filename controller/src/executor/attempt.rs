//! An attempt to act on the violations of one offer: mitigates, evicts, or waits.

use std::{sync::Arc, time::Duration};

use tautline_core::{
    Compliance, Snapshot,
    compliance_state::UnixTime,
    model::{Offer, Pod, Service, ViolationPolicy, key},
};

use super::calls::{Calls, Level};
use crate::{
    binding_spec::offer_at,
    binding_status::{from_api_time, to_api_time},
    eviction::EvictionRow,
    mitigation::{Mitigation, underlay_for},
    reconciler::WriteError,
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
            let pods = offer.evict.iter().filter_map(|target| pods.get(target));
            let pods = pods.sum();
            for violation in &violations {
                // The next leader waits for the end of this attempt, which holds the Lease.
                if !calls.leads() {
                    break;
                }
                let mut turn = Turn {
                    calls,
                    offer,
                    violation,
                    row: cool_down.row,
                    pods,
                };
                outcomes.push((violation.binding.key(), turn.act(&snapshot).await));
                cool_down.row = turn.row;
            }
        }
        _ => {
            let wait = AttemptOutcome::NotBefore(calls.now().instant + RETRY_AFTER);
            outcomes.extend(violations.iter().map(|v| (v.binding.key(), wait)));
        }
    }
    AttemptResult {
        cool_down,
        outcomes,
    }
}

/// Reads the offer's last eviction, which an earlier leader may have made. Returns false if it
/// could not be read, so that the cool-down is unknown.
async fn load_cool_down<C: Calls>(calls: &C, offer: &Offer, cool_down: &mut CoolDown) -> bool {
    if cool_down.loaded || offer.violation_policy != ViolationPolicy::Evict {
        return true;
    }
    match calls.offer_status(offer).await {
        Ok(status) => {
            let period = calls.config().eviction_cool_down;
            let last = status.last_eviction.as_ref();
            cool_down.row = last.map(|last| EvictionRow::recorded(last, period));
            cool_down.loaded = true;
        }
        Err(error) => {
            let (namespace, name) = (&offer.namespace, &offer.name);
            tracing::warn!(%namespace, offer = %name, %error, "the last eviction is not known");
        }
    }
    cool_down.loaded
}

/// The turn of one violation of an offer.
pub(super) struct Turn<'a, C> {
    pub calls: &'a C,
    pub offer: &'a Offer,
    pub violation: &'a Violation,
    /// The last row of the offer's evictions.
    pub row: Option<EvictionRow>,
    /// The number of pods in violation that the offer may evict.
    pub pods: usize,
}

impl<C: Calls> Turn<'_, C> {
    async fn act(&mut self, snapshot: &Snapshot) -> AttemptOutcome {
        let (offer, now) = (self.offer, self.calls.now().unix);
        let has_underlay = self.mitigation(snapshot).1.is_some();
        let policy = offer.violation_policy;
        match decide_action(policy, has_underlay, offer.grace, self.violation, now) {
            NextStep::Nothing => self.not_before(RETRY_AFTER),
            NextStep::NoUnderlay => {
                self.calls.report_no_underlay(offer, self.violation);
                self.not_before(RETRY_AFTER)
            }
            NextStep::Wait(until) => self.wait_until(until),
            NextStep::Mitigate => match self.mitigate().await {
                Some(at) => AttemptOutcome::Mitigated(at),
                None => self.not_before(RETRY_AFTER),
            },
            NextStep::Evict => match self.row.map(|row| row.next).filter(|next| *next > now) {
                Some(next) => {
                    let wait = next.saturating_sub(now);
                    let text = format!(
                        "next eviction in {} s, at {}: the offer's cool-down",
                        wait.as_secs() + u64::from(wait.subsec_nanos() > 0),
                        to_api_time(next).0
                    );
                    self.report("Evict", "CoolDown", Level::Quiet, text);
                    self.wait_until(next)
                }
                None => self.evict().await,
            },
        }
    }

    /// Returns the mitigation to request, and the underlay controller that would receive it.
    fn mitigation<'s>(&self, snapshot: &'s Snapshot) -> (Mitigation, Option<&'s Arc<Service>>) {
        let mitigation = Mitigation::new(snapshot, self.offer, &self.violation.binding);
        let trusted = &self.calls.config().provider_client.trusted;
        let underlay = underlay_for(snapshot, trusted, self.offer, &mitigation);
        (mitigation, underlay)
    }

    /// Requests a mitigation if the violation still holds, and returns the time that was recorded
    /// for it. The time is recorded before the request: if this leader ends in between, the next
    /// one does not repeat the request at once.
    async fn mitigate(&self) -> Option<UnixTime> {
        let (calls, binding) = (self.calls, &self.violation.binding);
        let compliance = calls.reevaluate(binding).await;
        if compliance != Compliance::Violation || !calls.leads() {
            return None;
        }
        let snapshot = calls.snapshot();
        let (request, underlay) = self.mitigation(&snapshot);
        let Some(underlay) = underlay else {
            calls.report_no_underlay(self.offer, self.violation);
            return None;
        };
        let name = key(&underlay.namespace, &underlay.name);
        let report = |code, level, text| self.report("Mediate", code, level, text);
        if calls.config().dry_run {
            let text = format!("would ask {name} to mitigate");
            report("WouldMediate", Level::Normal, text);
            return Some(calls.now().unix);
        }
        let at = to_api_time(calls.now().unix);
        if let Err(error) = calls.note_mitigation(binding, &at).await {
            let text = format!(
                "the mitigation could not be recorded, so the underlay was not called: {error}"
            );
            report("Failed", Level::Warning, text);
            return None;
        }
        if !calls.leads() {
            return None;
        }
        match calls.mitigate(underlay, &request).await {
            Err(error) => {
                let text = format!("{name} did not mitigate: {error}");
                report("MitigationFailed", Level::Warning, text);
            }
            Ok(id) => {
                let text = match id.as_str() {
                    "" => format!("{name} was asked to mitigate"),
                    id => format!("{name} mitigated by {id}"),
                };
                report("Mitigated", Level::Normal, text);
                if !id.is_empty() && !request.request.ids.contains(&id) {
                    self.hold(underlay, request.holder.as_deref(), &id).await;
                }
            }
        }
        Some(from_api_time(&at))
    }

    /// Adds the finalizer of a new allocation to the pod, or releases the allocation if that fails.
    async fn hold(&self, underlay: &Service, pod: Option<&Pod>, id: &str) {
        let added = match pod {
            None => Err(WriteError::Refused("the binding has no pod".to_owned())),
            Some(pod) => self.calls.hold_allocation(pod, underlay, id).await,
        };
        let Err(error) = added else { return };
        let text = match self.calls.release_allocation(underlay, id).await {
            Ok(()) => format!("{id} was released again, no pod could hold it: {error}"),
            Err(e) => format!("no pod holds {id} ({error}), and it could not be released: {e}"),
        };
        self.report("Mediate", "MitigationNotKept", Level::Warning, text);
    }

    pub(super) fn report(
        &self,
        action: &'static str,
        code: &'static str,
        level: Level,
        text: String,
    ) {
        self.calls.report(self.violation, action, code, level, text);
    }

    pub(super) fn not_before(&self, wait: Duration) -> AttemptOutcome {
        AttemptOutcome::NotBefore(self.calls.now().instant + wait)
    }

    pub(super) fn wait_until(&self, until: UnixTime) -> AttemptOutcome {
        self.not_before(until.saturating_sub(self.calls.now().unix))
    }
}
