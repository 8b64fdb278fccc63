//! Schedules and starts evaluations, and applies their results.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_core::{Compliance, model::ViolationPolicy};

use super::{
    messages::{Action, Evaluate, EvaluationResult},
    state::{BindingReconciler, BindingState, StatusWrite},
};
use crate::{
    binding_spec::{BindingSpec, Key},
    binding_status::{self, Change, from_api_time},
    clock::Now,
    evaluation::Evaluation,
    flapping::Evaluated,
    provider_limiter::Ticket,
    schedule::{Reason, jittered, phase},
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
            self.schedule.add(Arc::clone(key), now, Reason::Once);
        }
        let first = now + phase(key, period);
        let reason = Reason::Period(binding.turn);
        self.schedule.add(Arc::clone(key), first, reason);
    }

    fn period(&self, key: &Key) -> Duration {
        let spec = self.bindings.get(key).map(|b| &b.spec);
        let offer = spec.and_then(|s| self.snapshot.offer(&s.namespace, &s.offer));
        let period = offer.map_or(DEFAULT_PERIOD, |e| e.offer.period);
        period.max(self.settings.shortest_period)
    }

    pub(super) fn evaluate_due(&mut self, now: Instant) {
        while let Some((key, due, reason)) = self.schedule.pop(now) {
            let period = self.period(&key);
            let Some(binding) = self.bindings.get_mut(&key) else {
                continue;
            };
            if let Reason::Period(turn) = reason {
                if binding.turn != turn {
                    continue;
                }
                binding.turn += 1;
                // Turns that were missed while the process was suspended are skipped.
                let next = (due + jittered(&key, turn, period)).max(now);
                let reason = Reason::Period(binding.turn);
                self.schedule.add(Arc::clone(&key), next, reason);
            }
            if binding.evaluating {
                binding.evaluate_again |= reason == Reason::Once;
                continue;
            }
            if let Some(until) = binding.flapping.waits_until(now) {
                // The next periodic evaluation is on the schedule already.
                if reason == Reason::Once && !std::mem::replace(&mut binding.held, true) {
                    self.schedule.add(key, until, Reason::Once);
                }
                continue;
            }
            binding.held = false;
            let spec = &binding.spec;
            if self.snapshot.offer(&spec.namespace, &spec.offer).is_none() {
                continue;
            }
            let state = self.offers.get(&spec.offer_key());
            let Some(question) = state.and_then(|s| s.question.as_ref()) else {
                continue;
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
                    self.schedule.add(ticket.key, ticket.due, Reason::Once);
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

    pub(super) fn evaluated(&mut self, result: EvaluationResult, now: Now) {
        let next = self.limiter.release(&result.providers);
        self.start(next.into());
        let same = |b: &&mut BindingState| b.spec.uid == result.uid;
        let Some(binding) = self.bindings.get_mut(&result.key).filter(same) else {
            return;
        };
        binding.evaluating = false;
        if std::mem::take(&mut binding.evaluate_again) {
            let key = Arc::clone(&result.key);
            self.schedule.add(key, now.instant, Reason::Once);
        }
        if let Some(evaluation) = result.evaluation {
            self.apply_evaluation(&result.key, evaluation, result.grace, now);
        }
    }

    fn apply_evaluation(&mut self, key: &Key, evaluation: Evaluation, grace: Duration, now: Now) {
        let Some(binding) = self.bindings.get_mut(key) else {
            return;
        };
        let before = binding.compliance;
        let state = before.next(evaluation.compliance, grace, now.unix);
        (binding.compliance, binding.evaluated_here) = (state, true);
        let after = binding_status::next_status(&binding.status, evaluation, &state, now.unix);
        let reasons_due = |at| now.instant.saturating_duration_since(at) >= REASONS_PERIOD;
        let change = binding_status::compare(&binding.status, &after);
        let first = binding.status.last_compliance_change_timestamp.is_none();
        let evaluated = match change {
            Change::State if !first => Evaluated::Changed,
            _ => Evaluated::Unchanged,
        };
        binding.flapping.apply(evaluated, now.instant);
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
                    self.queue.push_status(Arc::clone(key));
                }
            }
        }
        if let Some(ends) = state.grace_ends(grace)
            && binding.grace_ends != Some(ends)
        {
            // Evaluate when the grace ends, not a period later.
            binding.grace_ends = Some(ends);
            let at = now.instant + ends.saturating_sub(now.unix);
            self.schedule.add(Arc::clone(key), at, Reason::Once);
        }
        let spec = Arc::clone(&binding.spec);
        let reason = binding.status.first_reason.clone();
        let (before, after) = (before.compliance, state.compliance);
        if before != after {
            let offer = spec.offer_key();
            self.count(&offer, spec.labelled, Some(before), Some(after));
            self.note_transition(&spec, before, after, &reason);
        }
        self.report_violation(key, &spec, reason);
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
                self.schedule.add(key, now, Reason::Once);
            }
        }
    }

    /// Adds a Kubernetes event about a transition. A new binding that is compliant gets no event.
    fn note_transition(
        &mut self,
        spec: &Arc<BindingSpec>,
        from: Compliance,
        to: Compliance,
        reason: &str,
    ) {
        if to == Compliance::Pending || (from, to) == (Compliance::Pending, Compliance::Compliant) {
            return;
        }
        self.actions.push(Action::BindingNote {
            spec: Arc::clone(spec),
            warning: matches!(to, Compliance::Violation | Compliance::Error),
            reason: to.as_str(),
            text: format!("{from} became {to}: {reason}"),
        });
    }
}
