//! Bindings are made and deleted until they are what their offers call for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tautline_core::{
    binding::called_for,
    index::OfferEntry,
    model::{Offer, key},
    reference::Reference,
};
use tautline_runtime::events::{Note, of_our_kind};

use super::Keeper;
use crate::known::{Key, Known};

/// The same trouble is not told of again for so long.
const QUIET: Duration = Duration::from_secs(300);

/// A write that brings an offer's bindings closer to what it calls for.
pub(super) enum Op {
    Create {
        offer: Arc<Offer>,
        name: String,
        targets: BTreeMap<Arc<str>, Reference>,
    },
    Delete(Arc<Known>),
}

impl Op {
    pub(super) fn offer_key(&self) -> Key {
        match self {
            Self::Create { offer, .. } => key(&offer.namespace, &offer.name).into(),
            Self::Delete(known) => known.offer_key(),
        }
    }

    pub(super) fn key(&self) -> Key {
        match self {
            Self::Create { offer, name, .. } => key(&offer.namespace, name).into(),
            Self::Delete(known) => known.key(),
        }
    }
}

impl Keeper {
    /// Compares the bindings of every offer that changed with what it calls for.
    pub(super) fn reconcile(&mut self) {
        if self.dirty.is_empty() {
            return;
        }
        let snapshot = Arc::clone(&self.snapshot);
        for offer in std::mem::take(&mut self.dirty) {
            let Some((namespace, name)) = offer.split_once('/') else {
                continue;
            };
            // Without its offer a binding is the garbage collector's: an offer
            // that only became malformed must not lose what it has.
            if let Some(entry) = snapshot.offer(namespace, name)
                && !entry.offer.terminating
            {
                self.reconcile_one(&offer, entry);
            }
        }
    }

    fn reconcile_one(&mut self, offer_key: &Key, entry: &OfferEntry) {
        let cap = self.shared.config.max_bindings;
        let called = called_for(entry, cap);
        let offer = &entry.offer;
        self.ops.retain(|op| op.offer_key() != *offer_key);
        let state = self.offers.entry(Arc::clone(offer_key)).or_default();
        state.changed |= state.called_for != called.count;
        state.called_for = called.count;
        let existing: Vec<Key> = state.bindings.iter().cloned().collect();
        let fits = |known: &Known| {
            let wanted = called.bindings.get(&*known.name);
            *known.owner == *offer.uid && wanted.is_some_and(|w| *w == known.targets)
        };
        for key in existing {
            if let Some(entry) = self.entries.get(&key)
                && !fits(&entry.known)
                && !self.busy.contains(&key)
            {
                self.ops.push_back(Op::Delete(Arc::clone(&entry.known)));
            }
        }
        let mut foreign = None;
        for (name, targets) in called.bindings {
            let key: Key = key(&offer.namespace, &name).into();
            match self.entries.get(&key) {
                None if self.busy.contains(&key) => {}
                None => self.ops.push_back(Op::Create {
                    offer: Arc::clone(offer),
                    name,
                    targets,
                }),
                Some(e) if e.known.offer != offer.name => foreign = Some(name),
                // One that does not fit is being deleted, and comes anew after.
                Some(_) => {}
            }
        }
        let in_step = foreign.is_none() && self.ops.iter().all(|op| op.offer_key() != *offer_key);
        let state = self.offers.entry(Arc::clone(offer_key)).or_default();
        if in_step && state.refusal.take().is_some() {
            state.changed = true;
        }
        if let Some(name) = foreign {
            let text = format!(
                "ConstraintPolicyBinding {name} exists and belongs to another offer; delete it"
            );
            self.refused(offer_key, text);
        }
        if called.count > cap as u128 {
            self.tell(
                offer,
                "CapExceeded",
                format!(
                    "the targets make {} bindings, the cap is {cap}: only the first {cap} exist",
                    called.count
                ),
            );
        }
    }

    /// A write of this offer's bindings came to nothing.
    pub(super) fn refused(&mut self, offer: &Key, why: String) {
        let state = self.offers.entry(Arc::clone(offer)).or_default();
        state.refusals = state.refusals.saturating_add(1);
        state.changed = true;
        state.refusal = Some(why.clone());
        let snapshot = Arc::clone(&self.snapshot);
        let entry = offer
            .split_once('/')
            .and_then(|(namespace, name)| snapshot.offer(namespace, name));
        if let Some(entry) = entry {
            self.tell(&entry.offer, "WriteRefused", why);
        }
    }

    fn tell(&self, offer: &Offer, reason: &str, text: String) {
        let id = format!("{}/{}/{reason}", offer.namespace, offer.name);
        self.shared.events.say_once(id, QUIET, || {
            Some(Note {
                regarding: of_our_kind(
                    "ConstraintPolicyOffer",
                    &offer.namespace,
                    &offer.name,
                    &offer.uid,
                ),
                warning: true,
                reason: reason.to_owned(),
                action: "Bind",
                text,
            })
        });
    }
}
