//! Schedules and starts evaluations, and applies their results.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_core::{Compliance, model::ViolationPolicy};

use super::{
    messages::{Action, Evaluate},
    state::{BindingReconciler, BindingState, StatusWrite},
};
use crate::{
    binding_spec::{BindingSpec, Key, note},
    binding_status::{self, Change, from_api_time},
    clock::Now,
    evaluation::Evaluation,
    provider_limiter::Ticket,
    schedule::{Work, jittered, phase},
    violations::ViolationEvent,
};

/// The shortest time between writes of statuses that differ only in reasons, as these may contain
/// figures that change often.
const REASONS_PERIOD: Duration = Duration::from_secs(60);
/// The period of a binding without an offer.
const DEFAULT_PERIOD: Duration = Duration::from_secs(60);

impl BindingReconciler {
    /// Schedules the periodic evaluations of a binding, and one at once if it was never evaluated.
    pub(super) fn schedule_binding(&mut self, key: &Key, now: Instant) {
        let period = self.period(key);
        let Some(binding) = self.bindings.get_mut(key) else {
            return;
        };
        binding.turn += 1;
        if binding.status.last_compliance_change_timestamp.is_none() {
            self.schedule.add(Arc::clone(key), now, Work::Once);
        }
        let first = now + phase(key, period);
        let work = Work::Period(binding.turn);
        self.schedule.add(Arc::clone(key), first, work);
    }

    fn period(&self, key: &Key) -> Duration {
        let spec = self.bindings.get(key).map(|b| &b.spec);
        let offer = spec.and_then(|s| self.snapshot.offer(&s.namespace, &s.offer));
        let period = offer.map_or(DEFAULT_PERIOD, |e| e.offer.period);
        period.max(self.config.shortest_period)
    }

    pub(super) fn start_due_work(&mut self, now: Instant) {
        while let Some((key, due, work)) = self.schedule.pop(now) {
            match work {
                Work::Period(_) | Work::Once => self.evaluate(key, due, work, now),
                Work::WriteStatus => self.queue.push_status(key),
                Work::Compare => _ = self.changed_offers.insert(key),
            }
        }
    }

    fn evaluate(&mut self, key: Key, due: Instant, work: Work, now: Instant) {
        let period = self.period(&key);
        let Some(binding) = self.bindings.get_mut(&key) else {
            return;
        };
        if let Work::Period(turn) = work {
            if binding.turn != turn {
                return;
            }
            binding.turn += 1;
            // Turns that were missed while the process was suspended are skipped.
            let next = (due + jittered(&key, turn, period)).max(now);
            let work = Work::Period(binding.turn);
            self.schedule.add(Arc::clone(&key), next, work);
        }
        if binding.evaluating {
            binding.evaluate_again |= work == Work::Once;
            return;
        }
        if let Some(until) = binding.flapping.waits_until(now) {
            // The next periodic evaluation is on the schedule already.
            if work == Work::Once && !std::mem::replace(&mut binding.held, true) {
                self.schedule.add(key, until, Work::Once);
            }
            return;
        }
        binding.held = false;
        let spec = &binding.spec;
        if self.snapshot.offer(&spec.namespace, &spec.offer).is_none() {
            return;
        }
        let state = self.offers.get(&spec.offer_key());
        let Some(question) = state.and_then(|s| s.question.as_ref()) else {
            return;
        };
        binding.evaluating = true;
        let ticket = Ticket {
            uid: spec.uid.clone(),
            key,
            due,
            providers: question.providers.clone(),
            waits: 0,
        };
        if let Some(ticket) = self.limiter.acquire(ticket) {
            self.start([ticket].into());
        }
    }

    fn start(&mut self, mut tickets: VecDeque<Ticket>) {
        while let Some(ticket) = tickets.pop_front() {
            if let Some(evaluate) = self.evaluation_for(&ticket) {
                self.actions.push(Action::Evaluate(evaluate));
                continue;
            }
            // The binding or its offer was deleted while the ticket waited.
            let binding = self.bindings.get_mut(&ticket.key);
            if let Some(binding) = binding.filter(|b| b.spec.uid == ticket.uid) {
                binding.evaluating = false;
                if std::mem::take(&mut binding.evaluate_again) {
                    self.schedule.add(ticket.key, ticket.due, Work::Once);
                }
            }
            tickets.extend(self.limiter.release(&ticket.providers));
        }
    }

    fn evaluation_for(&self, ticket: &Ticket) -> Option<Evaluate> {
        let spec = &self.bindings.get(&ticket.key)?.spec;
        if spec.uid != ticket.uid {
            return None;
        }
        let entry = self.snapshot.offer(&spec.namespace, &spec.offer)?;
        Some(Evaluate {
            spec: Arc::clone(spec),
            due: ticket.due,
            question: self.offers.get(&spec.offer_key())?.question.clone()?,
            providers: ticket.providers.clone(),
            snapshot: Arc::clone(&self.snapshot),
            grace: entry.offer.grace,
        })
    }

    pub(super) fn evaluated(
        &mut self,
        evaluate: &Evaluate,
        evaluation: Option<Evaluation>,
        now: Now,
    ) {
        let next = self.limiter.release(&evaluate.providers);
        self.start(next.into());
        let key = evaluate.spec.key();
        let same = |b: &&mut BindingState| b.spec.uid == evaluate.spec.uid;
        let Some(binding) = self.bindings.get_mut(&key).filter(same) else {
            return;
        };
        binding.evaluating = false;
        if std::mem::take(&mut binding.evaluate_again) {
            self.schedule.add(Arc::clone(&key), now.instant, Work::Once);
        }
        let Some(evaluation) = evaluation else { return };
        let (before, grace) = (binding.compliance, evaluate.grace);
        let state = before.next(evaluation.compliance, grace, now.unix);
        (binding.compliance, binding.evaluated_here) = (state, true);
        let after = binding_status::next_status(&binding.status, evaluation, &state, now.unix);
        let reasons_due = |at| now.instant.saturating_duration_since(at) >= REASONS_PERIOD;
        let change = binding_status::compare(&binding.status, &after);
        let first = binding.status.last_compliance_change_timestamp.is_none();
        let flaps = change == Change::State && !first;
        binding.flapping.evaluated(flaps, now.instant);
        let write = match change {
            Change::None => false,
            Change::State => true,
            Change::Reasons => binding.reasons_at.is_none_or(reasons_due),
        };
        if write {
            binding.status = Arc::new(after);
            binding.reasons_at = Some(now.instant);
            match &mut binding.write {
                StatusWrite::Writing { changed } => *changed = true,
                StatusWrite::Queued => {}
                idle => {
                    *idle = StatusWrite::Queued;
                    self.queue.push_status(Arc::clone(&key));
                }
            }
        }
        if let Some(ends) = state.grace_ends(grace)
            && binding.grace_ends != Some(ends)
        {
            // Evaluate when the grace ends, not a period later.
            binding.grace_ends = Some(ends);
            let at = now.instant + ends.saturating_sub(now.unix);
            self.schedule.add(Arc::clone(&key), at, Work::Once);
        }
        let spec = Arc::clone(&binding.spec);
        let reason = binding.status.first_reason.clone();
        let (before, after) = (before.compliance, state.compliance);
        if before != after {
            self.mark_changed(spec.offer_key());
            self.note_transition(&spec, before, after, &reason);
        }
        self.report_violation(&key, &spec, reason);
    }

    fn report_violation(&mut self, key: &Key, spec: &Arc<BindingSpec>, reason: String) {
        let entry = self.snapshot.offer(&spec.namespace, &spec.offer);
        let policy = entry.map_or(ViolationPolicy::Ignore, |e| e.offer.violation_policy);
        let Some(binding) = self.bindings.get_mut(key) else {
            return;
        };
        let compliance = binding.compliance.compliance;
        if compliance == Compliance::Violation && policy != ViolationPolicy::Ignore {
            binding.violation_raised = true;
            let mitigated = &binding.status.last_mitigated_timestamp;
            self.actions.push(Action::Violation(ViolationEvent::Raised {
                binding: Arc::clone(spec),
                since: binding.compliance.out_of_range_since.unwrap_or_default(),
                reason,
                mitigated: mitigated.as_ref().map(from_api_time),
            }));
        } else if compliance != Compliance::Error {
            // An error does not end a violation, but no step is taken while the error lasts.
            binding.clear_violation(&mut self.actions);
        }
    }

    pub(super) fn evaluate_now(&mut self, keys: impl IntoIterator<Item = Key>, now: Instant) {
        for key in keys {
            if self.bindings.contains_key(&key) {
                self.schedule.add(key, now, Work::Once);
            }
        }
    }

    /// Adds a Kubernetes event about a transition. A new binding that is compliant gets no event.
    fn note_transition(
        &mut self,
        spec: &BindingSpec,
        from: Compliance,
        to: Compliance,
        reason: &str,
    ) {
        if to == Compliance::Pending || (from, to) == (Compliance::Pending, Compliance::Compliant) {
            return;
        }
        let warning = matches!(to, Compliance::Violation | Compliance::Error);
        let text = format!("{from} became {to}: {reason}");
        let note = note(spec.reference(), warning, to.name(), "Evaluate", text);
        self.actions.push(Action::Note(note));
    }
}
