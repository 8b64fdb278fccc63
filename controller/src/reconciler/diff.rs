//! Compares an offer's bindings with the desired ones, and handles failures to create or delete
//! them.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_core::{
    binding::{binding_count, desired_bindings, is_countable},
    index::{Member, OfferEntry},
    model::Offer,
    remote::RemoteState,
};

use super::{
    messages::{Action, NewBinding},
    state::{BindingChange, BindingReconciler, OfferState},
};
use crate::{
    binding_spec::{BindingSpec, Key, key, key_of, note, offer_at, reference_to_offer},
    clock::backoff,
    offer_status,
    schedule::Work,
};

/// The wait after a failed write. It doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The number of failures in a row after which the offer's other changes wait, too.
const MAX_FAILURES: u32 = 16;

#[derive(Default)]
struct Diff {
    changes: VecDeque<BindingChange>,
    /// The name of a desired binding that another binding has, which does not belong to the offer.
    foreign: Option<String>,
    /// The number of desired bindings for which an equivalent one without the offer's label exists.
    stand_ins: usize,
}

impl BindingReconciler {
    /// Compares the bindings of an offer with the first `most` that its targets make.
    fn diff(&self, entry: &OfferEntry, state: &OfferState, most: usize) -> Diff {
        let (offer, mut diff) = (&entry.offer, Diff::default());
        let desired = desired_bindings(entry, most);
        // Unknown objects may exist if their kind is not listed, or their cluster is away.
        let listed = offer.targets.iter().map(|t| self.kinds.is_listed(t));
        let current = offer.remote_targets.iter().map(|target| {
            let pods = self.snapshot.remote_pods(&target.cluster, &offer.namespace);
            pods.is_some_and(|pods| pods.state == RemoteState::Current)
        });
        let known: Vec<bool> = listed.chain(current).collect();
        let all_known = known.iter().all(|known| *known);
        let names_gone_object = |binding: &BindingSpec| {
            let has = |role: &Arc<str>| entry.all_members().any(|(target, _)| target == role);
            let mut targets = entry.all_members().zip(&known);
            let is_gone = targets.any(|((target, members), known)| {
                let object = binding.targets.get(target);
                let exists = object.is_some_and(|object| {
                    let member = members.get(&object.name);
                    let same = |m: &&Member| m.reference(&offer.namespace) == *object;
                    member.filter(same).is_some_and(is_countable)
                });
                *known && !exists
            });
            is_gone || !binding.targets.keys().all(has)
        };
        let named = |key: &Key| self.bindings.get(key).map(|b| &b.spec);
        let waits = |key: &Key| self.queue.busy.contains(key) || state.postponed.contains_key(key);
        for spec in state.bindings.iter().filter_map(named) {
            let own = *spec.owner == *offer.uid;
            let delete = match desired.get(&*spec.name) {
                Some(targets) => !own || *targets != spec.targets,
                None => !own || all_known || names_gone_object(spec),
            };
            if delete && spec.labelled && !spec.terminating && !waits(&spec.key()) {
                let change = BindingChange::Delete(Arc::clone(spec));
                diff.changes.push_back(change);
            }
        }
        for (name, targets) in desired {
            let key = key(&offer.namespace, &name);
            match named(&key) {
                None if waits(&key) => {}
                None => {
                    let offer = Arc::clone(offer);
                    let new = NewBinding {
                        offer,
                        name,
                        targets,
                    };
                    let change = BindingChange::Create(Arc::new(new));
                    diff.changes.push_back(change);
                }
                Some(spec) if spec.offer != offer.name || !spec.labelled => {
                    // A binding with the right owner and targets is equivalent, even without the
                    // label.
                    let fits = *spec.owner == *offer.uid && spec.targets == targets;
                    if fits {
                        diff.stand_ins += 1;
                    } else {
                        diff.foreign = Some(name);
                    }
                }
                // A binding with other targets is being deleted, and is created again after that.
                Some(_) => {}
            }
        }
        diff
    }

    pub(super) fn compare_offers(&mut self, now: Instant) {
        if self.changed_offers.is_empty() && !self.quota.is_open() {
            return;
        }
        let snapshot = Arc::clone(&self.snapshot);
        let mut changed = Vec::with_capacity(self.changed_offers.len());
        for offer in std::mem::take(&mut self.changed_offers) {
            // Bindings without an offer are left to the garbage collector: an offer
            // that only became malformed must not lose its bindings.
            match offer_at(&snapshot, &offer) {
                Some(entry) if !entry.offer.terminating => {
                    changed.push((entry.offer.created_unix, offer, entry));
                }
                _ => {
                    self.quota.forget(&offer);
                    if let Some(state) = self.offers.get_mut(&offer) {
                        state.changes.clear();
                    }
                }
            }
        }
        changed.sort_unstable_by(|(t, a, _), (u, b, _)| (t, a).cmp(&(u, b)));
        for (created_unix, offer, entry) in &changed {
            let existing = self.offers.get(offer).map_or(0, |s| s.bindings.len());
            let desired = binding_count(entry);
            self.quota.call_for(offer, *created_unix, desired, existing);
        }
        let mut offers = self.quota.share_out();
        offers.extend(changed.into_iter().map(|(_, offer, _)| offer));
        for offer in offers {
            if let Some(entry) = offer_at(&snapshot, &offer) {
                self.compare_offer(&offer, entry, now);
            }
        }
    }

    fn compare_offer(&mut self, offer_key: &Key, entry: &OfferEntry, now: Instant) {
        let grant = self.quota.grant(offer_key);
        let state = self.offers.entry(Arc::clone(offer_key)).or_default();
        state.postponed.retain(|_, until| *until > now);
        let diff = self.diff(entry, &self.offers[offer_key], grant.count);
        let state = self.offers.entry(Arc::clone(offer_key)).or_default();
        (state.changed, state.stand_ins) = (true, diff.stand_ins);
        // The writes under way may no longer lead to the desired bindings.
        state.compare_again = state.in_flight > 0;
        let idle = state.in_flight == 0 && state.postponed.is_empty();
        let in_step = idle && diff.foreign.is_none() && diff.changes.is_empty();
        if in_step {
            state.write_error = None;
        }
        if !diff.changes.is_empty() && state.changes.is_empty() {
            self.queue.push_change(Arc::clone(offer_key));
        }
        state.changes = diff.changes;
        if let Some(name) = diff.foreign {
            let text = format!(
                "ConstraintPolicyBinding {name} exists and does not belong to this offer; delete it"
            );
            self.fail(offer_key, text, now);
        }
        if let Some((reason, text)) = offer_status::exceeded(&grant, &self.config.limits) {
            self.warn(&entry.offer, reason, text);
        }
    }

    fn warn(&mut self, offer: &Offer, reason: &str, text: String) {
        let note = note(reference_to_offer(offer), true, reason, "Bind", text);
        let warning = Action::OfferWarning(key_of(offer), note);
        self.actions.push(warning);
    }

    /// Reports that a binding of this offer cannot be written, and schedules a comparison.
    fn fail(&mut self, offer: &Key, why: String, now: Instant) {
        let Some(state) = self.offers.get_mut(offer) else {
            return;
        };
        state.changed = true;
        state.write_error = Some(why.clone());
        // Bindings that fail together share one retry.
        if state.retry_at.is_none_or(|at| at <= now) {
            let failures = state.failures.saturating_add(1);
            let at = now + backoff(FIRST_BACKOFF, MAX_BACKOFF, failures);
            state.retry_at = Some(at);
            self.schedule.add(Arc::clone(offer), at, Work::Compare);
        }
        let entry = offer_at(&self.snapshot, offer);
        if let Some(offer) = entry.map(|entry| Arc::clone(&entry.offer)) {
            self.warn(&offer, "WriteRefused", why);
        }
    }

    /// Ends a successful creation or deletion. `compare` is true if the written binding may differ
    /// from the desired one.
    pub(super) fn change_done(&mut self, offer: &Key, compare: bool) {
        if let Some(state) = self.offers.get_mut(offer) {
            state.failures = 0;
            state.compare_again |= compare;
            self.change_ended(offer);
        }
    }

    /// Ends a failed creation or deletion. The binding waits for a retry; after [`MAX_FAILURES`]
    /// failures in a row the offer's other bindings do, too.
    pub(super) fn change_failed(&mut self, offer: &Key, key: &Key, text: String, now: Instant) {
        tracing::warn!(%offer, "{text}");
        self.queue.busy.remove(key);
        self.fail(offer, text, now);
        let Some(state) = self.offers.get_mut(offer) else {
            return;
        };
        state.failures = state.failures.saturating_add(1);
        let postponed = state.retry_at.map(|at| (Arc::clone(key), at));
        state.postponed.extend(postponed);
        if state.failures >= MAX_FAILURES {
            state.changes.clear();
        }
        self.change_ended(offer);
    }

    fn change_ended(&mut self, offer: &Key) {
        let Some(state) = self.offers.get_mut(offer) else {
            return;
        };
        state.in_flight = state.in_flight.saturating_sub(1);
        let last = state.in_flight == 0 && state.changes.is_empty();
        if last && (std::mem::take(&mut state.compare_again) || state.write_error.is_some()) {
            self.changed_offers.insert(Arc::clone(offer));
        }
        self.forget_offer(offer);
    }
}
