//! Writes under way: bounded, each object's one after the other.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};

use tautline_api::constraint::{ConstraintPolicyBinding, ConstraintPolicyOfferStatus};
use tautline_core::{Snapshot, index::OfferEntry, model::key};
use tokio::{
    task::{Id, JoinError},
    time::Instant,
};

use super::{Keeper, Later, OFFER_STATUS_EVERY, Op, WriteState};
use crate::{
    app::Shared,
    known::{Key, Known},
    offers, status,
    write::{self, WriteError},
};

/// Writes at once.
const MOST: usize = 16;
/// Places for offers' statuses, so that thousands of bindings keep none waiting.
const FOR_OFFERS: usize = 4;
/// A status that could not be written is written again after so long.
const RETRY: Duration = Duration::from_secs(2);

/// What a write under way has taken.
pub(super) enum Slot {
    /// Of an offer's binding.
    Op(Key, Key),
    Status(Key),
    Offer(Key),
}

/// A write that has ended.
pub(super) enum Written {
    Created {
        offer: Key,
        key: Key,
        /// It was there already; this is what was found.
        existed: bool,
        result: Result<Box<ConstraintPolicyBinding>, WriteError>,
    },
    Deleted {
        known: Arc<Known>,
        result: Result<(), WriteError>,
    },
    Status {
        key: Key,
        uid: Box<str>,
        result: Result<(), WriteError>,
    },
    Offer {
        key: Key,
        uid: Box<str>,
        result: Result<ConstraintPolicyOfferStatus, WriteError>,
    },
}

impl Keeper {
    pub(super) fn write_more(&mut self, now: Instant) {
        while self.later.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            match self.later.pop() {
                Some(Reverse((_, Later::Status(key)))) => self.statuses.push_back(key),
                Some(Reverse((_, Later::Offer(key)))) => _ = self.dirty.insert(key),
                None => {}
            }
        }
        while self.writing < MOST {
            // Statuses first: they are news, and what makes new work waits.
            if let Some(key) = self.statuses.pop_front() {
                self.write_status(&key);
            } else if let Some((offer, op)) = self.next_op() {
                self.do_op(offer, op);
            } else {
                return;
            }
        }
    }

    fn write_status(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if entry.write != WriteState::Queued {
            return;
        }
        entry.write = WriteState::Writing { again: false };
        let (known, status) = (Arc::clone(&entry.known), Arc::clone(&entry.status));
        let (client, key) = (self.shared.client.clone(), Arc::clone(key));
        self.writing += 1;
        let slot = Slot::Status(Arc::clone(&key));
        let write = self.writes.spawn(async move {
            let result = write::binding_status(client, &known, &status).await;
            let uid = known.uid.clone();
            Written::Status { key, uid, result }
        });
        self.slots.insert(write.id(), slot);
    }

    fn do_op(&mut self, offer_key: Key, op: Op) {
        let client = self.shared.client.clone();
        let key = op.key();
        if let Some(state) = self.offers.get_mut(&offer_key) {
            state.in_flight += 1;
        }
        self.busy.insert(Arc::clone(&key));
        self.writing += 1;
        let slot = Slot::Op(Arc::clone(&offer_key), Arc::clone(&key));
        let write = self.writes.spawn(async move {
            match op {
                Op::Create {
                    offer,
                    name,
                    targets,
                } => {
                    let mut result = write::create(client.clone(), &offer, &name, &targets).await;
                    let existed = matches!(result, Err(WriteError::Exists));
                    if existed {
                        // The watch is behind, or it is somebody else's: look.
                        result = write::get_binding(client, &offer.namespace, &name).await;
                    }
                    Written::Created {
                        offer: offer_key,
                        key,
                        existed,
                        result: result.map(Box::new),
                    }
                }
                Op::Delete(known) => {
                    let result = write::delete(client, &known).await;
                    Written::Deleted { known, result }
                }
            }
        });
        self.slots.insert(write.id(), slot);
    }

    /// Writes the status of every offer whose own has changed.
    pub(super) fn write_offers(&mut self) {
        self.shared.metrics.bindings(&self.counts);
        let snapshot = Arc::clone(&self.snapshot);
        let entries = snapshot.offers().filter(|e| !e.offer.terminating);
        let mut all: BTreeMap<Key, Option<&OfferEntry>> = entries
            .map(|e| (key(&e.offer.namespace, &e.offer.name).into(), Some(e)))
            .collect();
        // One that was never good is in no snapshot.
        for refused in self.refused.keys() {
            all.entry(Arc::clone(refused)).or_default();
        }
        for (key, entry) in all {
            self.write_offer(key, entry, &snapshot);
        }
    }

    fn write_offer(&mut self, key: Key, entry: Option<&OfferEntry>, snapshot: &Snapshot) {
        let (Some(state), Some((namespace, name))) =
            (self.offers.get_mut(&key), key.split_once('/'))
        else {
            return;
        };
        let now = Instant::now();
        let soon = |at: Instant| now.duration_since(at) < OFFER_STATUS_EVERY / 2;
        if !state.changed || state.writing || state.written_at.is_some_and(soon) {
            return;
        }
        // What does not fit comes when these are done.
        if self.writing_offers >= FOR_OFFERS {
            self.offers_wait = true;
            return;
        }
        state.changed = false;
        let cap = self.shared.config.max_bindings;
        let verdict = match (self.refused.get(&key), entry) {
            (Some(why), _) => offers::invalid(why),
            (None, Some(entry)) => offers::verdict(entry, state, snapshot, &self.shared.kinds, cap),
            (None, None) => return,
        };
        let before = state.written.clone();
        let known = before.clone().unwrap_or_default();
        let after = offers::status(name, state, verdict, &known, status::now());
        if before.as_ref() == Some(&after) {
            return;
        }
        (state.writing, state.written_at) = (true, Some(now));
        let shared = Arc::clone(&self.shared);
        let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), state.uid.clone());
        self.writing_offers += 1;
        let slot = Slot::Offer(Arc::clone(&key));
        let write = self.writes.spawn(async move {
            let result = write_offer(&shared, &namespace, &name, &uid, before, after).await;
            Written::Offer { key, uid, result }
        });
        self.slots.insert(write.id(), slot);
    }

    pub(super) fn written(&mut self, written: Result<(Id, Written), JoinError>) {
        let (slot, written) = match written {
            Ok((id, written)) => (self.slots.remove(&id), Ok(written)),
            Err(error) => (self.slots.remove(&error.id()), Err(error)),
        };
        match &slot {
            Some(Slot::Offer(_)) => self.writing_offers = self.writing_offers.saturating_sub(1),
            _ => self.writing = self.writing.saturating_sub(1),
        }
        let written = match (written, slot) {
            (Ok(written), _) => written,
            (Err(error), slot) => {
                tracing::error!(%error, "a write panicked");
                self.unwritten(slot, &error.to_string());
                return;
            }
        };
        let metrics = &self.shared.metrics;
        match written {
            Written::Created {
                offer,
                key,
                existed,
                result,
            } => {
                metrics.wrote("create", result.is_ok());
                match result {
                    Ok(binding) => {
                        let status = binding.status.clone().unwrap_or_default();
                        self.put(Known::of(&binding), status);
                        self.busy.remove(&key);
                        self.op_done(&offer, existed);
                    }
                    Err(error) => {
                        self.busy.remove(&key);
                        let (_, name) = key.split_once('/').unwrap_or_default();
                        let error = match error {
                            WriteError::Gone => "its namespace or its offer is gone".to_owned(),
                            error => error.to_string(),
                        };
                        let text =
                            format!("ConstraintPolicyBinding {name} cannot be made: {error}");
                        self.op_failed(&offer, &key, text);
                    }
                }
            }
            Written::Deleted { known, result } => {
                let (key, offer) = (known.key(), known.offer_key());
                metrics.wrote("delete", result.is_ok());
                match result {
                    Ok(()) | Err(WriteError::Gone) => {
                        self.remove(&key, &known.uid);
                        self.busy.remove(&key);
                        // One that did not fit may be wanted in its right form.
                        self.op_done(&offer, true);
                    }
                    Err(error) => {
                        self.busy.remove(&key);
                        let name = &known.name;
                        let text =
                            format!("ConstraintPolicyBinding {name} cannot be deleted: {error}");
                        self.op_failed(&offer, &key, text);
                    }
                }
            }
            Written::Status { key, uid, result } => {
                metrics.wrote("status", result.is_ok());
                self.status_written(key, &uid, result);
            }
            Written::Offer { key, uid, result } => {
                metrics.wrote("offer-status", result.is_ok());
                if std::mem::take(&mut self.offers_wait) {
                    self.flush_at = Instant::now();
                }
                let Some(state) = self.offers.get_mut(&key) else {
                    return;
                };
                state.writing = false;
                if state.uid != uid {
                    // It was of an offer that is gone.
                    state.changed = true;
                    return;
                }
                match result {
                    Ok(status) => state.written = Some(status),
                    Err(WriteError::Gone) => {}
                    Err(error) => {
                        tracing::warn!(offer = %key, %error, "the offer's status is not written");
                        state.changed = true;
                    }
                }
            }
        }
    }

    /// What a write that panicked had taken is free again, and tried again.
    fn unwritten(&mut self, slot: Option<Slot>, why: &str) {
        match slot {
            Some(Slot::Op(offer, key)) => {
                self.busy.remove(&key);
                self.op_failed(&offer, &key, why.to_owned());
            }
            Some(Slot::Status(key)) => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.write = WriteState::Queued;
                    let at = Instant::now() + RETRY;
                    self.later.push(Reverse((at, Later::Status(key))));
                }
            }
            Some(Slot::Offer(key)) => {
                if let Some(state) = self.offers.get_mut(&key) {
                    (state.writing, state.changed) = (false, true);
                }
            }
            None => {}
        }
    }

    fn status_written(&mut self, key: Key, uid: &str, result: Result<(), WriteError>) {
        if matches!(result, Err(WriteError::Gone)) {
            // It went before the watch said so.
            self.remove(&key, uid);
            return;
        }
        let Some(entry) = self.entries.get_mut(&key).filter(|e| *e.known.uid == *uid) else {
            return;
        };
        let again = entry.write == WriteState::Writing { again: true };
        match result {
            Ok(()) if !again => entry.write = WriteState::Idle,
            Ok(()) => {
                entry.write = WriteState::Queued;
                self.statuses.push_back(key);
            }
            Err(error) => {
                tracing::warn!(binding = %key, %error, "the status is not written; trying again");
                entry.write = WriteState::Queued;
                self.later
                    .push(Reverse((Instant::now() + RETRY, Later::Status(key))));
            }
        }
    }
}

async fn write_offer(
    shared: &Shared,
    namespace: &str,
    name: &str,
    uid: &str,
    before: Option<ConstraintPolicyOfferStatus>,
    mut after: ConstraintPolicyOfferStatus,
) -> Result<ConstraintPolicyOfferStatus, WriteError> {
    if before.is_none() {
        // Another replica wrote it last: a condition that still holds keeps its time.
        let there = write::get_offer_status(shared.client.clone(), namespace, name).await?;
        for condition in &mut after.conditions {
            let same = there
                .conditions
                .iter()
                .find(|c| c.type_ == condition.type_ && c.status == condition.status);
            if let Some(same) = same {
                condition.last_transition_time = same.last_transition_time.clone();
            }
        }
    }
    write::offer_status(shared.client.clone(), namespace, name, uid, &after).await?;
    Ok(after)
}
