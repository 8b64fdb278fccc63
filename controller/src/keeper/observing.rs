//! What the watches bring: bindings, and what changed of the cluster.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::Arc,
};

use hashbrown::HashSet;
use tautline_core::{
    Snapshot,
    index::{Kind, Member, OfferEntry},
    model::{Offer, key},
    providers::{self, PROVIDER_PORT},
};
use tautline_runtime::feed::Versions;
use tokio::time::Instant;

use super::{Entry, Keeper, WriteState};
use crate::{
    known::{Key, Known, Status},
    status,
    store::BindingEvent,
};

impl Keeper {
    pub(super) fn observe(&mut self, event: BindingEvent) {
        match event {
            BindingEvent::Applied(known, status) => self.put(known, status),
            BindingEvent::Deleted(known) => self.remove(&known.key(), &known.uid),
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
            }
        }
    }

    /// A binding as it is. Of one that is known already only the mitigation is
    /// taken over: the rest of its status is written here and nowhere else.
    pub(super) fn put(&mut self, known: Known, status: Status) {
        let key = known.key();
        if let Some(entry) = self.entries.get_mut(&key) {
            if entry.known.uid == known.uid && entry.known.offer == known.offer {
                let mitigated = status.last_mitigated_timestamp;
                if entry.status.last_mitigated_timestamp != mitigated {
                    Arc::make_mut(&mut entry.status).last_mitigated_timestamp = mitigated;
                }
                if *entry.known != known {
                    self.dirty.insert(known.offer_key());
                    entry.known = Arc::new(known);
                }
                return;
            }
            let uid = entry.known.uid.clone();
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
            reported: false,
        };
        self.entries.insert(Arc::clone(&key), entry);
        self.dirty.insert(offer);
        if self.term.is_some() {
            self.schedule_anew(&key, false);
        }
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
        if let Some(state) = self.offers.get_mut(&offer) {
            state.bindings.remove(key);
            state.count(counted, false);
            // If it is still called for, it is made anew.
            self.dirty.insert(offer);
        }
        self.no_violation(key, &entry);
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
            self.dirty.insert(Arc::clone(&offer_key));
            self.offers
                .entry(Arc::clone(&offer_key))
                .or_default()
                .changed = true;
            let same_spec = match (old, new) {
                (Some(old), Some(new)) => Arc::ptr_eq(&old.offer, &new.offer),
                _ => false,
            };
            match (old, new) {
                (Some(old), Some(new)) if same_spec => {
                    self.poke_members(&offer_key, old, new, &mut poke);
                }
                (_, Some(new)) => {
                    let offer = &new.offer;
                    let asked = asked(&now, offer, &self.shared.discovery);
                    let state = self.offers.entry(Arc::clone(&offer_key)).or_default();
                    state.asked = asked;
                    // A new period counts from now.
                    for key in state.bindings.clone() {
                        self.schedule_anew(&key, true);
                    }
                    self.poke_offer(&offer_key, &mut poke);
                }
                _ => {
                    let gone = self.offers.get(&offer_key);
                    if gone.is_some_and(|s| s.bindings.is_empty()) {
                        self.offers.remove(&offer_key);
                        self.dirty.remove(&offer_key);
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
            let refused = self.shared.feed.refused(Kind::Offer);
            let refused = refused
                .into_iter()
                .map(|(k, why)| (k.into(), why))
                .collect();
            let before = std::mem::replace(&mut self.refused, refused);
            for key in before.into_keys().chain(self.refused.keys().cloned()) {
                self.offers.entry(key).or_default().changed = true;
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

    /// The bindings of members that were there and are another now.
    fn poke_members(
        &self,
        offer: &Key,
        old: &OfferEntry,
        new: &OfferEntry,
        poke: &mut HashSet<Key>,
    ) {
        let mut changed: HashSet<(&str, &str)> = HashSet::new();
        for ((target, old), new) in new.offer.targets.iter().zip(&old.members).zip(&new.members) {
            for (name, old, new) in new.diff(old) {
                let other = match (old, new) {
                    (Some(Member::Pod(a)), Some(Member::Pod(b))) => !Arc::ptr_eq(a, b),
                    (Some(a), Some(b)) => a != b,
                    _ => false,
                };
                if other {
                    changed.insert((&target.name, name));
                }
            }
        }
        if changed.is_empty() {
            return;
        }
        let bindings = self.offers.get(offer).map(|s| &s.bindings);
        for key in bindings.into_iter().flatten() {
            let targets = self.entries.get(key).map(|e| &e.known.targets);
            let touched = targets.is_some_and(|t| {
                t.iter()
                    .any(|(t, r)| changed.contains(&(&**t, r.name.as_str())))
            });
            if touched {
                poke.insert(Arc::clone(key));
            }
        }
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
fn asked(snapshot: &Snapshot, offer: &Offer, discovery: &tautline_discovery::Discovery) -> u64 {
    let mut hash = DefaultHasher::new();
    for name in &offer.policies {
        let Some(policy) = snapshot.policy(&offer.namespace, name) else {
            continue;
        };
        for rule in &policy.rules {
            rule.hash(&mut hash);
            if let Some(service) = discovery.provider(snapshot, &rule.name, &offer.namespace) {
                (&service.namespace, &service.name, service.tls_required).hash(&mut hash);
                let slices = snapshot.slices_of(&service.namespace, &service.name);
                providers::addresses(service, slices, PROVIDER_PORT).hash(&mut hash);
            }
        }
    }
    hash.finish()
}
