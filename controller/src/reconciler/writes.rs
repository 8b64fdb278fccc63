//! Starts writes and applies their results. The number of concurrent writes is limited, an object
//! has one at a time, and namespaces take turns.

use std::{sync::Arc, time::Duration, time::Instant};

use tautline_api::constraint::ConstraintPolicyOfferStatus;
use tautline_core::{Compliance, fair_queue::FairQueue};

use super::{
    messages::{Action, Counts, NewBinding, OfferStatusWrite, Write, WriteError, Written},
    state::{BindingChange, BindingReconciler, QueuedWrite, StatusWrite, WriteQueue},
};
use crate::{
    binding_spec::{BindingSpec, Key, key_of, namespace_of, offer_at},
    clock::Now,
    offer_status::{self, BindingSummary, OfferCondition},
    schedule::Work,
};

/// The maximum number of concurrent writes of bindings and their statuses.
const MAX_WRITES: usize = 16;
/// The maximum number of concurrent writes of offers' statuses. It is separate, so that thousands
/// of bindings do not delay these.
const MAX_OFFER_WRITES: usize = 4;
/// The wait after a failed write of a binding's status.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// The time between two checks of the offers' statuses.
const OFFER_STATUS_PERIOD: Duration = Duration::from_secs(1);

impl WriteQueue {
    /// Queues a binding's status before all creations and deletions: new bindings would only add
    /// work.
    pub(super) fn push_status(&mut self, binding: Key) {
        let namespace = Arc::clone(&binding);
        let write = QueuedWrite::Status(binding);
        self.waiting.push_urgent(namespace_of(&namespace), write);
    }

    pub(super) fn push_change(&mut self, offer: Key) {
        let namespace = Arc::clone(&offer);
        let write = QueuedWrite::Change(offer);
        self.waiting.push(namespace_of(&namespace), write);
    }
}

impl BindingReconciler {
    pub(super) fn start_writes(&mut self) {
        while self.queue.in_flight < MAX_WRITES {
            match self.queue.waiting.pop() {
                Some(QueuedWrite::Status(key)) => self.write_status(&key),
                Some(QueuedWrite::Change(offer)) => self.write_next_change(offer),
                None => return,
            }
        }
    }

    fn write_status(&mut self, key: &Key) {
        let queued = self.bindings.get_mut(key);
        let Some(binding) = queued.filter(|b| b.write == StatusWrite::Queued) else {
            return;
        };
        binding.write = StatusWrite::Writing { changed: false };
        self.queue.in_flight += 1;
        let write = Write::Status(Arc::clone(&binding.spec), Arc::clone(&binding.status));
        self.actions.push(Action::Write(write));
    }

    fn write_next_change(&mut self, offer: Key) {
        let Some(state) = self.offers.get_mut(&offer) else {
            return;
        };
        let Some(change) = state.changes.pop_front() else {
            return;
        };
        state.in_flight += 1;
        if !state.changes.is_empty() {
            self.queue.push_change(offer);
        }
        let (key, write) = match change {
            BindingChange::Create(new) => (new.key(), Write::Create(new)),
            BindingChange::Delete(spec) => (spec.key(), Write::Delete(spec)),
        };
        self.queue.busy.insert(key);
        self.queue.in_flight += 1;
        self.actions.push(Action::Write(write));
    }

    /// Writes the statuses of offers that have changed, once per [`OFFER_STATUS_PERIOD`].
    /// Namespaces take turns, and in each the offer whose status was written longest ago comes
    /// first.
    pub(super) fn flush_offer_statuses(&mut self, now: Now) {
        if self.flush_at.is_some_and(|at| at > now.instant) {
            return;
        }
        self.flush_at = Some(now.instant + OFFER_STATUS_PERIOD);
        self.report_counts();
        let changed = self.offers.iter().filter(|(_, state)| state.changed);
        let mut changed: Vec<_> = changed
            .map(|(key, state)| (state.written_at, Arc::clone(key)))
            .collect();
        changed.sort_unstable();
        let mut turns = FairQueue::default();
        for (_, key) in changed {
            let namespace = Arc::clone(&key);
            turns.push(namespace_of(&namespace), key);
        }
        while let Some(key) = turns.pop() {
            if self.queue.offer_statuses_in_flight >= MAX_OFFER_WRITES {
                self.queue.offer_statuses_wait = true;
                return;
            }
            self.write_offer_status(key, now);
        }
    }

    fn report_counts(&mut self) {
        let mut counts = Counts::default();
        for binding in self.bindings.values() {
            counts.bindings[binding.compliance.compliance as usize] += 1;
            counts.backing_off += usize::from(binding.flapping.backs_off());
        }
        for grant in self.quota.grants() {
            if let Some(bound) = grant.bound {
                let withheld = &mut counts.withheld[bound as usize];
                *withheld = withheld.saturating_add(grant.withheld);
            }
        }
        self.actions.push(Action::ReportCounts(counts));
    }

    fn write_offer_status(&mut self, key: Key, now: Now) {
        let entry = offer_at(&self.snapshot, &key).filter(|e| !e.offer.terminating);
        let (Some(state), Some((_, name))) = (self.offers.get_mut(&key), key.split_once('/'))
        else {
            return;
        };
        let recent = |at| now.instant.saturating_duration_since(at) < OFFER_STATUS_PERIOD / 2;
        if state.writing || state.written_at.is_some_and(recent) {
            return;
        }
        state.changed = false;
        let (snapshot, limits) = (&self.snapshot, &self.config.limits);
        let bindings = state
            .bindings
            .iter()
            .filter_map(|key| self.bindings.get(key));
        let (mut existing, mut compliant) = (0, 0);
        for binding in bindings.filter(|b| b.spec.labelled) {
            existing += 1;
            compliant += usize::from(binding.compliance.compliance == Compliance::Compliant);
        }
        let summary = BindingSummary {
            grant: self.quota.grant(&key),
            existing,
            stand_ins: state.stand_ins,
            compliant,
            write_error: state.write_error.as_deref(),
        };
        let condition = match (self.rejected_offers.get(&key), entry) {
            (Some(why), _) => OfferCondition {
                ready: false,
                reason: "Invalid",
                message: why.clone(),
            },
            (None, Some(e)) => offer_status::condition(e, &summary, snapshot, &self.kinds, limits),
            (None, None) => return,
        };
        let default = ConstraintPolicyOfferStatus::default();
        let before = state.written.as_ref().unwrap_or(&default);
        // Of an offer that cannot be read, this is the generation of its last readable version.
        let generation = entry.map_or(0, |e| e.offer.generation);
        let status = offer_status::status(name, generation, &summary, condition, before, now.unix);
        if state.written.as_ref() == Some(&status) {
            return;
        }
        (state.writing, state.written_at) = (true, Some(now.instant));
        self.queue.offer_statuses_in_flight += 1;
        let write = OfferStatusWrite {
            uid: state.uid.clone(),
            first: state.written.is_none(),
            key,
            status,
        };
        self.actions
            .push(Action::Write(Write::OfferStatus(Arc::new(write))));
    }

    pub(super) fn written(
        &mut self,
        write: Write,
        result: Result<Written, WriteError>,
        now: Instant,
    ) {
        let in_flight = match &write {
            Write::OfferStatus(_) => &mut self.queue.offer_statuses_in_flight,
            _ => &mut self.queue.in_flight,
        };
        *in_flight = in_flight.saturating_sub(1);
        match write {
            Write::Create(new) => self.created(&new, result, now),
            Write::Delete(spec) => self.deleted(&spec, result.err(), now),
            Write::Status(spec, _) => self.status_written(&spec, result.err(), now),
            Write::OfferStatus(write) => self.offer_status_written(&write, result, now),
        }
    }

    fn created(&mut self, new: &NewBinding, result: Result<Written, WriteError>, now: Instant) {
        let (offer, key) = (key_of(&new.offer), new.key());
        let existed = match result {
            Ok(Written::Binding(binding, existed)) => {
                self.put(binding.0, binding.1, now);
                existed
            }
            Ok(_) => false,
            Err(error) => {
                let error = match error {
                    WriteError::Gone => "its namespace or its offer is gone".to_owned(),
                    error => error.to_string(),
                };
                let name = &new.name;
                let text = format!("ConstraintPolicyBinding {name} cannot be made: {error}");
                return self.change_failed(&offer, &key, text, now);
            }
        };
        self.queue.busy.remove(&key);
        self.change_done(&offer, existed);
    }

    fn deleted(&mut self, spec: &BindingSpec, error: Option<WriteError>, now: Instant) {
        let (key, offer) = (spec.key(), spec.offer_key());
        if let Some(error) = error.filter(|error| *error != WriteError::Gone) {
            let name = &spec.name;
            let text = format!("ConstraintPolicyBinding {name} cannot be deleted: {error}");
            return self.change_failed(&offer, &key, text, now);
        }
        self.remove(&key, &spec.uid);
        self.queue.busy.remove(&key);
        // A binding with wrong targets may have to be created again with the right ones.
        self.change_done(&offer, true);
    }

    fn status_written(&mut self, spec: &BindingSpec, error: Option<WriteError>, now: Instant) {
        let key = spec.key();
        if error == Some(WriteError::Gone) {
            // The watch has not reported the deletion yet.
            self.remove(&key, &spec.uid);
            return;
        }
        let binding = self.bindings.get_mut(&key);
        let Some(binding) = binding.filter(|b| b.spec.uid == spec.uid) else {
            return;
        };
        let changed = binding.write == (StatusWrite::Writing { changed: true });
        binding.write = StatusWrite::Queued;
        match error {
            Some(error) => {
                tracing::warn!(binding = %key, %error, "the status is not written; trying again");
                self.schedule.add(key, now + RETRY_AFTER, Work::WriteStatus);
            }
            None if changed => self.queue.push_status(key),
            None => binding.write = StatusWrite::Idle,
        }
    }

    fn offer_status_written(
        &mut self,
        write: &OfferStatusWrite,
        result: Result<Written, WriteError>,
        now: Instant,
    ) {
        if std::mem::take(&mut self.queue.offer_statuses_wait) {
            self.flush_at = Some(now);
        }
        // The offer may be gone, and a later offer of the same name may exist.
        let state = self.offers.get_mut(&write.key);
        let Some(state) = state.filter(|s| s.uid == write.uid) else {
            return;
        };
        state.writing = false;
        match result {
            Ok(Written::OfferStatus(status)) => state.written = Some(*status),
            Ok(_) | Err(WriteError::Gone) => {}
            Err(error) => {
                tracing::warn!(offer = %write.key, %error, "the offer's status is not written");
                state.changed = true;
            }
        }
    }
}
