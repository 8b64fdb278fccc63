//! What the watches bring: bindings, and what changed of the cluster.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::Arc,
};

use hashbrown::{HashMap, HashSet};
use tautline_core::{
    Compliance, Snapshot,
    binding::is_countable,
    index::{Kind, Member, OfferEntry},
    model::{Offer, TargetKind, key},
    providers::{self, PROVIDER_PORT},
};
use tautline_runtime::cluster_store::Versions;
use tokio::time::Instant;

use super::{Entry, Keeper, WriteState};
use crate::{
    known::{Key, Known, Status},
    status,
    store::BindingEvent,
    violations::Fresh,
};

/// What readiness waits for: all bindings are here.
pub(crate) const BINDINGS: &str = "constraintpolicybindings";

impl Keeper {
    pub(super) fn observe(&mut self, event: BindingEvent) {
        match event {
            BindingEvent::Applied(binding) => self.put(binding.0, binding.1),
            BindingEvent::Deleted(key, uid) => self.remove(&key, &uid),
            BindingEvent::All(all) => {
                let mut gone: HashSet<Key> = self.entries.keys().cloned().collect();
                for (known, status) in all {
                    gone.remove(&known.key());
                    self.put(known, status);
                }
                for key in gone {
                    if let Some(uid) = self.entries.get(&key).map(|e| e.known.uid.clone()) {
                        self.remove(&key, &uid);
                    }
                }
                self.shared.readiness.done(BINDINGS);
            }
        }
    }

    /// A binding as it is. Of one that was evaluated here only the mitigation is
    /// taken over: the rest of its status is written here and nowhere else.
    pub(super) fn put(&mut self, known: Known, status: Status) {
        let key = known.key();
        let same = |e: &Entry| e.known.uid == known.uid && e.known.offer == known.offer;
        if self.entries.get(&key).is_some_and(same) {
            self.update(&key, known, status);
            return;
        }
        if let Some(uid) = self.entries.get(&key).map(|e| e.known.uid.clone()) {
            self.remove(&key, &uid);
        }
        let standing = status::standing(&status);
        let offer = known.offer_key();
        let state = self.offers.entry(offer.clone()).or_default();
        state.bindings.insert(Arc::clone(&key));
        state.count(standing.compliance, true);
        self.counts[standing.compliance as usize] += 1;
        let entry = Entry {
            known: Arc::new(known),
            status: Arc::new(status),
            standing,
            turn: 0,
            running: false,
            again: false,
            write: WriteState::Idle,
            words_at: None,
            grace_ends: None,
            evaluated: false,
            reported: false,
        };
        self.entries.insert(Arc::clone(&key), entry);
        // What was just made here is what was called for.
        if !self.busy.contains(&key) {
            self.dirty.insert(offer);
        }
        if self.term.is_some() {
            self.schedule_anew(&key);
        }
    }

    fn update(&mut self, key: &Key, known: Known, status: Status) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if entry.evaluated {
            let mitigated = status.last_mitigated_timestamp;
            if entry.status.last_mitigated_timestamp != mitigated {
                Arc::make_mut(&mut entry.status).last_mitigated_timestamp = mitigated;
            }
        } else {
            // Another replica leads, or led until just now.
            let (before, after) = (entry.standing, status::standing(&status));
            entry.standing = after;
            entry.status = Arc::new(status);
            self.counted(&known.offer_key(), before.compliance, after.compliance);
        }
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if *entry.known != known {
            self.dirty.insert(known.offer_key());
            entry.known = Arc::new(known);
        }
    }

    /// A binding stands otherwise now.
    pub(super) fn counted(&mut self, offer: &Key, before: Compliance, after: Compliance) {
        if before == after {
            return;
        }
        let count = &mut self.counts[before as usize];
        *count = count.saturating_sub(1);
        self.counts[after as usize] += 1;
        let state = self.offers.entry(Arc::clone(offer)).or_default();
        state.count(before, false);
        state.count(after, true);
    }

    pub(super) fn remove(&mut self, key: &Key, uid: &str) {
        if self.entries.get(key).is_none_or(|e| *e.known.uid != *uid) {
            return;
        }
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        let offer = entry.known.offer_key();
        let counted = entry.standing.compliance;
        self.counts[counted as usize] = self.counts[counted as usize].saturating_sub(1);
        self.no_violation(key, &entry);
        let Some(state) = self.offers.get_mut(&offer) else {
            return;
        };
        state.bindings.remove(key);
        state.count(counted, false);
        let exists = offer
            .split_once('/')
            .is_some_and(|(namespace, name)| self.snapshot.offer(namespace, name).is_some());
        if !exists && state.bindings.is_empty() && !self.refused.contains_key(&offer) {
            self.offers.remove(&offer);
        } else if !self.busy.contains(key) {
            // If it is still called for, it is made anew.
            self.dirty.insert(offer);
        }
    }

    /// Looks at what has changed in the cluster since the last look.
    pub(super) fn look(&mut self, versions: Versions) {
        let before = std::mem::replace(&mut self.snapshot, self.shared.feed.snapshot());
        let now = Arc::clone(&self.snapshot);
        let mut poke = HashSet::new();
        for (old, new) in now.changed_offers(&before) {
            let Some(offer) = new.or(old).map(|e| &e.offer) else {
                continue;
            };
            let offer_key: Key = key(&offer.namespace, &offer.name).into();
            let same_spec = match (old, new) {
                (Some(old), Some(new)) => Arc::ptr_eq(&old.offer, &new.offer),
                _ => false,
            };
            match (old, new) {
                (Some(old), Some(new)) if same_spec => {
                    self.members_changed(&offer_key, old, new, &mut poke);
                }
                (_, Some(new)) => {
                    let offer = &new.offer;
                    let asked = asked(&now, offer, &self.shared.discovery);
                    self.dirty.insert(Arc::clone(&offer_key));
                    let state = self.offers.entry(Arc::clone(&offer_key)).or_default();
                    if state.uid != offer.uid {
                        // Another of this name: what was written was not of it.
                        state.uid = offer.uid.clone();
                        state.written = None;
                    }
                    (state.asked, state.changed) = (asked, true);
                    // What was refused may be mended.
                    state.held.clear();
                    state.refusals = 0;
                    // A new period counts from now.
                    if self.term.is_some() {
                        let bindings: Vec<Key> = state.bindings.iter().cloned().collect();
                        for key in &bindings {
                            self.schedule_anew(key);
                        }
                    }
                    self.poke_offer(&offer_key, &mut poke);
                }
                _ => {
                    self.dirty.remove(&offer_key);
                    if let Some(state) = self.offers.get_mut(&offer_key) {
                        state.ops.clear();
                        if state.bindings.is_empty() {
                            self.offers.remove(&offer_key);
                        }
                    }
                }
            }
        }
        let kinds = [Kind::Policy, Kind::Service, Kind::EndpointSlice];
        if versions.changed(&self.versions, &kinds) {
            for entry in now.offers() {
                let asked = asked(&now, &entry.offer, &self.shared.discovery);
                let key: Key = key(&entry.offer.namespace, &entry.offer.name).into();
                let state = self.offers.entry(Arc::clone(&key)).or_default();
                if state.asked != asked {
                    state.asked = asked;
                    state.changed = true;
                    self.poke_offer(&key, &mut poke);
                }
            }
        }
        if versions.changed(&self.versions, &[Kind::Offer]) {
            let refused = self.shared.feed.rejected(Kind::Offer);
            let refused = refused
                .into_iter()
                .map(|(k, why)| (k.into(), why))
                .collect();
            let before = std::mem::replace(&mut self.refused, refused);
            for key in before.into_keys().chain(self.refused.keys().cloned()) {
                let exists = key
                    .split_once('/')
                    .is_some_and(|(namespace, name)| now.offer(namespace, name).is_some());
                if exists || self.refused.contains_key(&key) {
                    self.offers.entry(key).or_default().changed = true;
                } else if self.offers.get(&key).is_some_and(|s| s.bindings.is_empty()) {
                    self.offers.remove(&key);
                }
            }
        }
        self.versions = versions;
        if self.term.is_some() {
            for key in poke {
                self.evaluate_soon(&key);
            }
        }
    }

    fn poke_offer(&self, offer: &Key, poke: &mut HashSet<Key>) {
        let bindings = self.offers.get(offer).map(|s| &s.bindings);
        poke.extend(bindings.into_iter().flatten().cloned());
    }

    /// What an offer selects has changed, itself or as to who is there.
    fn members_changed(
        &mut self,
        offer: &Key,
        old: &OfferEntry,
        new: &OfferEntry,
        poke: &mut HashSet<Key>,
    ) {
        // Targets and names of members that are another now, and whether the pod
        // itself is.
        let mut changed: HashMap<(&str, &str), bool> = HashMap::new();
        for ((target, old), new) in new.offer.targets.iter().zip(&old.members).zip(&new.members) {
            for (name, old, new) in new.diff(old) {
                let (Some(old), Some(new)) = (old, new) else {
                    self.dirty.insert(Arc::clone(offer));
                    continue;
                };
                let other = match (old, new) {
                    (Member::Pod(a), Member::Pod(b)) if Arc::ptr_eq(a, b) => continue,
                    (Member::Pod(a), Member::Pod(b)) => a.uid != b.uid,
                    (a, b) if a == b => continue,
                    _ => false,
                };
                if is_countable(old) != is_countable(new) {
                    self.dirty.insert(Arc::clone(offer));
                }
                changed.insert((&target.name, name), other);
            }
        }
        let state = self.offers.entry(Arc::clone(offer)).or_default();
        state.changed |= self.dirty.contains(offer);
        if changed.is_empty() {
            return;
        }
        for key in &state.bindings {
            let Some(entry) = self.entries.get_mut(key) else {
                continue;
            };
            let targets = entry.known.targets.iter();
            let touched: Vec<bool> = targets
                .filter_map(|(t, r)| changed.get(&(&**t, r.name.as_str())).copied())
                .collect();
            if touched.contains(&true) {
                // A new pod of the old name has its own grace, and its own violation.
                entry.standing.out_of_range_since = None;
                if std::mem::take(&mut entry.reported) {
                    _ = self.fresh.send(Fresh::Over(Arc::clone(key)));
                }
            }
            if !touched.is_empty() {
                poke.insert(Arc::clone(key));
            }
        }
    }

    /// A kind was listed, or is not there any more.
    pub(super) fn kinds_changed(&mut self) {
        let snapshot = Arc::clone(&self.snapshot);
        let of_kinds = snapshot
            .offers()
            .filter(|e| e.offer.targets.iter().any(|t| t.kind != TargetKind::Pod));
        let keys = of_kinds.map(|e| Key::from(key(&e.offer.namespace, &e.offer.name)));
        self.dirty.extend(keys);
        self.every_offer_changed();
    }

    pub(super) fn every_offer_changed(&mut self) {
        let snapshot = Arc::clone(&self.snapshot);
        for entry in snapshot.offers() {
            let key: Key = key(&entry.offer.namespace, &entry.offer.name).into();
            self.offers.entry(key).or_default().changed = true;
        }
        self.flush_at = self.flush_at.min(Instant::now());
    }
}

/// The offer's rules, who answers for them and where, as a fingerprint.
fn asked(
    snapshot: &Snapshot,
    offer: &Offer,
    discovery: &tautline_provider_client::ProviderClient,
) -> u64 {
    let mut hash = DefaultHasher::new();
    for name in &offer.policies {
        let Some(policy) = snapshot.policy(&offer.namespace, name) else {
            continue;
        };
        for rule in &policy.rules {
            rule.hash(&mut hash);
            if let Some(service) = discovery.provider(snapshot, &rule.name, &offer.namespace) {
                (&service.namespace, &service.name, service.tls_required).hash(&mut hash);
                let slices = snapshot.endpoint_slices(&service.namespace, &service.name);
                providers::addresses(service, slices, PROVIDER_PORT).hash(&mut hash);
            }
        }
    }
    hash.finish()
}
