//! Applies changes of bindings, of the cluster and of the leadership.

use std::{sync::Arc, time::Instant};

use hashbrown::{HashMap, HashSet};
use tautline_core::{
    Snapshot,
    binding::is_countable,
    index::{Member, OfferEntry},
    model::TargetKind,
    remote::RemoteTarget,
};

use super::{
    messages::{BindingEvent, ClusterChange, KindStates},
    state::{BindingReconciler, BindingState},
};
use crate::{
    binding_spec::{BindingSpec, BindingStatus, Key, key_of, offer_at},
    binding_status::compliance_state,
    question::Question,
    schedule::Flapping,
};

impl BindingReconciler {
    pub(super) fn apply_binding_event(&mut self, event: BindingEvent, now: Instant) {
        match event {
            BindingEvent::Applied(binding) => self.put(binding.0, binding.1, now),
            BindingEvent::Deleted(key, uid) => self.remove(&key, &uid),
            BindingEvent::All(all) => {
                let mut gone: HashSet<Key> = self.bindings.keys().cloned().collect();
                for (spec, status) in all {
                    gone.remove(&spec.key());
                    self.put(spec, status, now);
                }
                for key in gone {
                    if let Some(uid) = self.bindings.get(&key).map(|b| b.spec.uid.clone()) {
                        self.remove(&key, &uid);
                    }
                }
            }
        }
    }

    pub(super) fn put(&mut self, spec: BindingSpec, status: BindingStatus, now: Instant) {
        let key = spec.key();
        if let Some(binding) = self.bindings.get(&key) {
            let counts_as = |s: &BindingSpec| (s.uid.clone(), Arc::clone(&s.offer), s.labelled);
            if counts_as(&binding.spec) == counts_as(&spec) {
                return self.update(&key, spec, status);
            }
            let uid = binding.spec.uid.clone();
            self.remove(&key, &uid);
        }
        let offer = spec.offer_key();
        let state = self.offers.entry(Arc::clone(&offer)).or_default();
        state.bindings.insert(Arc::clone(&key));
        state.changed = true;
        let binding = BindingState {
            compliance: compliance_state(&status),
            spec: Arc::new(spec),
            status: Arc::new(status),
            ..BindingState::default()
        };
        self.bindings.insert(Arc::clone(&key), binding);
        // A binding that this replica is creating needs no comparison with its offer.
        if !self.queue.busy.contains(&key) {
            self.changed_offers.insert(offer);
        }
        if self.has_term() {
            self.schedule_binding(&key, now);
        }
    }

    /// Updates a known binding. If this replica has evaluated it, only the time of the mitigation
    /// is taken from the status, as this replica writes the rest.
    fn update(&mut self, key: &Key, spec: BindingSpec, status: BindingStatus) {
        let Some(binding) = self.bindings.get_mut(key) else {
            return;
        };
        let offer = spec.offer_key();
        if *binding.spec != spec {
            self.changed_offers.insert(Arc::clone(&offer));
            binding.spec = Arc::new(spec);
        }
        if binding.evaluated_here {
            let mitigated = status.last_mitigated_timestamp;
            if binding.status.last_mitigated_timestamp != mitigated {
                Arc::make_mut(&mut binding.status).last_mitigated_timestamp = mitigated;
            }
        } else {
            // Another replica leads, or led until just now.
            binding.compliance = compliance_state(&status);
            binding.status = Arc::new(status);
            self.mark_changed(offer);
        }
    }

    pub(super) fn remove(&mut self, key: &Key, uid: &str) {
        if self.bindings.get(key).is_none_or(|b| *b.spec.uid != *uid) {
            return;
        }
        let Some(mut binding) = self.bindings.remove(key) else {
            return;
        };
        binding.clear_violation(&mut self.actions);
        let offer = binding.spec.offer_key();
        let exists = offer_at(&self.snapshot, &offer).is_some();
        let Some(state) = self.offers.get_mut(&offer) else {
            return;
        };
        state.bindings.remove(key);
        state.changed = true;
        if exists && !self.queue.busy.contains(key) {
            // The comparison creates the binding again if the offer still calls for it.
            self.changed_offers.insert(offer);
        } else {
            self.forget_offer(&offer);
        }
    }

    pub(super) fn apply_cluster_change(&mut self, change: ClusterChange, now: Instant) {
        let before = std::mem::replace(&mut self.snapshot, change.snapshot);
        let snapshot = Arc::clone(&self.snapshot);
        let mut evaluate = HashSet::new();
        for (old, new) in snapshot.changed_offers(&before) {
            match (old, new) {
                (Some(old), Some(new)) if Arc::ptr_eq(&old.offer, &new.offer) => {
                    self.apply_members(old, new, &mut evaluate);
                }
                (_, Some(new)) => self.apply_offer(new, &mut evaluate, now),
                (Some(old), None) => {
                    let key = key_of(&old.offer);
                    self.changed_offers.remove(&key);
                    self.quota.forget(&key);
                    if let Some(state) = self.offers.get_mut(&key) {
                        state.changes.clear();
                    }
                    self.forget_offer(&key);
                }
                (None, None) => {}
            }
        }
        if change.providers_changed || change.clusters_changed {
            self.apply_providers(change.providers_changed, &before, &mut evaluate);
        }
        if let Some(rejected) = change.rejected_offers {
            let before = std::mem::replace(&mut self.rejected_offers, rejected);
            let after = self.rejected_offers.keys().cloned();
            let keys: Vec<Key> = before.into_keys().chain(after).collect();
            for key in keys {
                let exists = offer_at(&snapshot, &key).is_some();
                if exists || self.rejected_offers.contains_key(&key) {
                    self.mark_changed(key);
                } else {
                    self.forget_offer(&key);
                }
            }
        }
        if self.has_term() {
            self.evaluate_now(evaluate, now);
        }
    }

    /// Applies an offer that is new or whose spec has changed.
    fn apply_offer(&mut self, entry: &OfferEntry, evaluate: &mut HashSet<Key>, now: Instant) {
        let offer = &entry.offer;
        let (key, has_term) = (key_of(offer), self.has_term());
        let trusted = &self.config.provider_client.trusted;
        let question = Question::new(&self.snapshot, trusted, offer);
        self.changed_offers.insert(Arc::clone(&key));
        let state = self.offers.entry(key).or_default();
        if state.uid != offer.uid {
            // The status of this later offer of the same name was not written yet.
            state.uid = offer.uid.clone();
            (state.written, state.writing) = (None, false);
        }
        (state.question, state.changed) = (Some(Arc::new(question)), true);
        // The cause of a failed write may be gone.
        state.postponed.clear();
        state.failures = 0;
        evaluate.extend(state.bindings.iter().cloned());
        // A new period counts from now.
        if has_term {
            let bindings: Vec<Key> = state.bindings.iter().cloned().collect();
            for key in &bindings {
                self.schedule_binding(key, now);
            }
        }
    }

    /// Adds to `evaluate` the bindings of offers whose rules, providers, providers' addresses or
    /// other clusters have changed, of `all` offers or only of those whose other clusters have
    /// other states than `before`.
    fn apply_providers(&mut self, all: bool, before: &Snapshot, evaluate: &mut HashSet<Key>) {
        let after: &Snapshot = &self.snapshot;
        let trusted = &self.config.provider_client.trusted;
        for entry in after.offers() {
            let offer = &entry.offer;
            let is_same = |target: &RemoteTarget| {
                let pods =
                    [before, after].map(|s| s.remote_pods(&target.cluster, &offer.namespace));
                let [old, new] = pods.map(|pods| pods.map(|pods| pods.state));
                old == new
            };
            if !all && offer.remote_targets.iter().all(is_same) {
                continue;
            }
            let state = self.offers.entry(key_of(offer)).or_default();
            let question = Question::new(after, trusted, offer);
            let known = state.question.as_ref().map(|q| q.fingerprint);
            if known != Some(question.fingerprint) {
                (state.question, state.changed) = (Some(Arc::new(question)), true);
                evaluate.extend(state.bindings.iter().cloned());
                if !offer.remote_targets.is_empty() {
                    // Bindings that were kept while a cluster was away may be deleted now.
                    self.changed_offers.insert(key_of(offer));
                }
            }
        }
    }

    fn apply_members(&mut self, old: &OfferEntry, new: &OfferEntry, evaluate: &mut HashSet<Key>) {
        let (changed, others) = changed_members(old, new);
        let offer = key_of(&new.offer);
        if others {
            self.changed_offers.insert(Arc::clone(&offer));
        }
        let changed_offers = &self.changed_offers;
        let state = self.offers.entry(Arc::clone(&offer)).or_default();
        state.changed |= changed_offers.contains(&offer);
        if changed.is_empty() {
            return;
        }
        for key in &state.bindings {
            let Some(binding) = self.bindings.get_mut(key) else {
                continue;
            };
            let targets = binding.spec.targets.iter();
            let touched: Vec<bool> = targets
                .filter_map(|(t, r)| changed.get(&(&**t, r.name.as_str())).copied())
                .collect();
            if touched.contains(&true) {
                // A new pod of the same name has its own grace time and its own violation.
                binding.compliance.out_of_range_since = None;
                binding.flapping = Flapping::default();
                binding.clear_violation(&mut self.actions);
            }
            if !touched.is_empty() {
                evaluate.insert(Arc::clone(key));
            }
        }
    }

    pub(super) fn apply_kinds(&mut self, kinds: KindStates, now: Instant) {
        if self.kinds == kinds {
            return;
        }
        self.kinds = kinds;
        let watched = |e: &&OfferEntry| e.offer.targets.iter().any(|t| t.kind != TargetKind::Pod);
        let offers = self.snapshot.offers().filter(watched);
        self.changed_offers.extend(offers.map(|e| key_of(&e.offer)));
        self.check_every_status(now);
    }

    fn check_every_status(&mut self, now: Instant) {
        for entry in self.snapshot.offers() {
            let state = self.offers.entry(key_of(&entry.offer));
            state.or_default().changed = true;
        }
        self.flush_at = Some(now);
    }

    pub(super) fn begin_term(&mut self, now: Instant) {
        let keys: Vec<Key> = self.bindings.keys().cloned().collect();
        for key in keys {
            self.schedule_binding(&key, now);
        }
        let offers = self.snapshot.offers();
        self.changed_offers.extend(offers.map(|e| key_of(&e.offer)));
        self.check_every_status(now);
    }
}

/// Returns the changed members by target and name, each with true if it is another pod of the same
/// name; and whether members were added or removed, or began or ceased to get bindings.
fn changed_members<'a>(
    old: &'a OfferEntry,
    new: &'a OfferEntry,
) -> (HashMap<(&'a str, &'a str), bool>, bool) {
    let (mut changed, mut others) = (HashMap::new(), false);
    for ((_, old), (target, new)) in old.all_members().zip(new.all_members()) {
        for (name, old, new) in new.diff(old) {
            let (Some(old), Some(new)) = (old, new) else {
                others = true;
                continue;
            };
            let replaced = match (old, new) {
                (Member::Pod(a), Member::Pod(b)) if Arc::ptr_eq(a, b) => continue,
                (Member::Pod(a), Member::Pod(b)) => a.uid != b.uid,
                (a, b) if a == b => continue,
                (Member::Remote(a), Member::Remote(b)) => a.uid != b.uid,
                _ => false,
            };
            others |= is_countable(old) != is_countable(new);
            changed.insert((&**target, name), replaced);
        }
    }
    (changed, others)
}
