//! Bindings are made and deleted until they are what their offers call for.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use hashbrown::HashSet;
use tautline_core::{
    binding::desired_bindings,
    index::OfferEntry,
    model::{Offer, TargetKind, key},
    reference::Reference,
};
use tautline_runtime::events::{EventNote, reference_to_own};
use tokio::time::Instant;

use super::{Keeper, Later};
use crate::{
    known::{Key, Known},
    offers::OfferState,
};

/// An offer whose bindings could not be written is compared again after this,
/// doubled with each failure up to the longest.
const BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);
/// Failures in a row after which an offer's other bindings are left for later.
const ENOUGH: u32 = 16;
/// The same trouble is not told of again for so long.
const QUIET: Duration = Duration::from_secs(300);

/// A write that brings an offer's bindings closer to what it calls for.
#[derive(Debug)]
pub(crate) enum Op {
    Create {
        offer: Arc<Offer>,
        name: String,
        targets: BTreeMap<Arc<str>, Reference>,
    },
    Delete(Arc<Known>),
}

impl Op {
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
            match snapshot.offer(namespace, name) {
                Some(entry) if !entry.offer.terminating => self.reconcile_one(&offer, entry),
                _ => {
                    if let Some(state) = self.offers.get_mut(&offer) {
                        state.ops.clear();
                    }
                }
            }
        }
    }

    fn reconcile_one(&mut self, offer_key: &Key, entry: &OfferEntry) {
        let cap = self.shared.config.max_bindings;
        let called = desired_bindings(entry, cap);
        let offer = &entry.offer;
        // Of a kind that is not listed yet, what is missing may only be late.
        let all_known = offer.targets.iter().all(|target| {
            let (api_version, kind) = target.selected_kind();
            target.kind == TargetKind::Pod || self.shared.kinds.listed(api_version, kind)
        });
        let (mut ops, mut foreign) = (VecDeque::new(), None);
        let state = self.offers.entry(Arc::clone(offer_key)).or_default();
        let now = Instant::now();
        state.held.retain(|_, until| *until > now);
        for key in &state.bindings {
            let Some(entry) = self.entries.get(key) else {
                continue;
            };
            let known = &entry.known;
            let wanted = called.bindings.get(&*known.name);
            let fits = *known.owner == *offer.uid && wanted.is_some_and(|w| *w == known.targets);
            let lasts = !all_known && wanted.is_none() && *known.owner == *offer.uid;
            let waits = self.busy.contains(key) || state.held.contains_key(key);
            if !fits && !lasts && !known.terminating && !waits {
                ops.push_back(Op::Delete(Arc::clone(known)));
            }
        }
        for (name, targets) in called.bindings {
            let key: Key = key(&offer.namespace, &name).into();
            match self.entries.get(&key) {
                None if self.busy.contains(&key) || state.held.contains_key(&key) => {}
                None => ops.push_back(Op::Create {
                    offer: Arc::clone(offer),
                    name,
                    targets,
                }),
                Some(e) if e.known.offer != offer.name => foreign = Some(name),
                // One that does not fit is being deleted, and comes anew after.
                Some(_) => {}
            }
        }
        state.changed |= state.called_for != called.count;
        state.called_for = called.count;
        // What is under way may come to something else than is called for now.
        state.again = state.in_flight > 0;
        let still = state.in_flight == 0 && state.held.is_empty();
        let in_step = still && foreign.is_none() && ops.is_empty();
        if in_step && state.refusal.take().is_some() {
            state.changed = true;
        }
        if !ops.is_empty() && state.ops.is_empty() {
            self.ops.push_back(Arc::clone(offer_key));
        }
        state.ops = ops;
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

    /// The next write, of the offers in turn.
    pub(super) fn next_op(&mut self) -> Option<(Key, Op)> {
        while let Some(offer) = self.ops.pop_front() {
            let op = self.offers.get_mut(&offer).and_then(|s| {
                let op = s.ops.pop_front()?;
                Some((op, !s.ops.is_empty()))
            });
            if let Some((op, more)) = op {
                if more {
                    self.ops.push_back(Arc::clone(&offer));
                }
                return Some((offer, op));
            }
        }
        None
    }

    /// A binding of this offer cannot be as it is called for.
    pub(super) fn refused(&mut self, offer: &Key, why: String) {
        let Some(state) = self.offers.get_mut(offer) else {
            return;
        };
        state.changed = true;
        state.refusal = Some(why.clone());
        // Of many that fail together one is enough to come again.
        let now = Instant::now();
        if state.retry_at.is_none_or(|at| at <= now) {
            let wait = BACKOFF * 2u32.saturating_pow(state.refusals.min(6));
            let at = now + wait.min(LONGEST_BACKOFF);
            state.retry_at = Some(at);
            self.later
                .push(Reverse((at, Later::Offer(Arc::clone(offer)))));
        }
        let snapshot = Arc::clone(&self.snapshot);
        let entry = offer
            .split_once('/')
            .and_then(|(namespace, name)| snapshot.offer(namespace, name));
        if let Some(entry) = entry {
            self.tell(&entry.offer, "WriteRefused", why);
        }
    }

    /// A write of an offer's binding is done; `compare`: not all is as it was meant.
    pub(super) fn op_done(&mut self, offer: &Key, compare: bool) {
        let Some(state) = self.offers.get_mut(offer) else {
            return;
        };
        state.refusals = 0;
        state.again |= compare;
        Self::op_over(state, offer, &mut self.dirty);
    }

    /// A write of an offer's binding came to nothing: this one waits, and if many
    /// fail in a row the others do, too.
    pub(super) fn op_failed(&mut self, offer: &Key, key: &Key, text: String) {
        tracing::warn!(%offer, "{text}");
        self.refused(offer, text);
        let Some(state) = self.offers.get_mut(offer) else {
            return;
        };
        state.refusals = state.refusals.saturating_add(1);
        state
            .held
            .extend(state.retry_at.map(|at| (Arc::clone(key), at)));
        if state.refusals >= ENOUGH {
            state.ops.clear();
        }
        Self::op_over(state, offer, &mut self.dirty);
    }

    fn op_over(state: &mut OfferState, offer: &Key, dirty: &mut HashSet<Key>) {
        state.in_flight = state.in_flight.saturating_sub(1);
        let last = state.in_flight == 0 && state.ops.is_empty();
        if last && (std::mem::take(&mut state.again) || state.refusal.is_some()) {
            dirty.insert(Arc::clone(offer));
        }
    }

    fn tell(&self, offer: &Offer, reason: &str, text: String) {
        let id = format!("{}/{}/{reason}", offer.namespace, offer.name);
        self.shared.events.publish_once(id, QUIET, || {
            Some(EventNote {
                regarding: reference_to_own(
                    "ConstraintPolicyOffer",
                    &offer.namespace,
                    &offer.name,
                    &offer.uid,
                ),
                secondary: None,
                warning: true,
                reason: reason.to_owned(),
                action: "Bind",
                text,
            })
        });
    }
}
