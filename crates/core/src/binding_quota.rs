//! Shares out bindings among offers within three limits: per offer, per namespace and in total.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use hashbrown::HashMap;

/// The maximum numbers of bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingLimits {
    /// The maximum number of bindings of one offer.
    pub offer: usize,
    /// The maximum number of bindings of all offers of a namespace.
    pub namespace: usize,
    /// The maximum number of bindings of all offers.
    pub total: usize,
}

impl Default for BindingLimits {
    fn default() -> Self {
        Self {
            offer: 10_000,
            namespace: 10_000,
            total: 50_000,
        }
    }
}

/// The limit because of which an offer has fewer bindings than its targets make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The limit [`BindingLimits::offer`].
    Offer,
    /// The limit [`BindingLimits::namespace`].
    Namespace,
    /// The limit [`BindingLimits::total`].
    Total,
}

/// The bindings that an offer may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The number of bindings that the offer may have.
    pub count: usize,
    /// The number of further bindings that the offer's targets make and that it may not have.
    pub withheld: u128,
    /// The limit that withholds them; `None` if `withheld` is 0.
    pub bound: Option<Bound>,
}

/// The grants of all offers. An offer keeps its granted bindings as long as it calls for them, so
/// that changes of one offer take no bindings from others. Free bindings go to the oldest offers
/// first.
#[derive(Debug, Default)]
pub struct BindingQuota {
    limits: BindingLimits,
    offers: HashMap<Arc<str>, Share>,
    /// The offers that may have more bindings once some are free, sorted by creation time.
    short: BTreeSet<(i64, Arc<str>)>,
    by_namespace: HashMap<String, usize>,
    total: usize,
    /// The offers whose grant has changed since the last [`share_out`](Self::share_out).
    changed: HashSet<Arc<str>>,
    /// True if bindings may have become free or an offer calls for another number.
    open: bool,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    created_unix: i64,
    wanted: u128,
    granted: usize,
}

impl BindingQuota {
    /// Creates a quota without offers.
    pub fn new(limits: BindingLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Records the number of bindings that an offer, `namespace/name`, calls for. A new offer is
    /// granted its `existing` bindings, as far as it calls for them and the limits allow.
    pub fn call_for(&mut self, offer: &str, created_unix: i64, wanted: u128, existing: usize) {
        if self
            .offers
            .get(offer)
            .is_some_and(|share| share.created_unix != created_unix)
        {
            self.forget(offer);
        }
        let most = self.limits.offer;
        let capped = usize::try_from(wanted).map_or(most, |wanted| wanted.min(most));
        let (key, before, granted) = match self.offers.get_key_value(offer) {
            Some((_, share)) if share.wanted == wanted => return,
            Some((key, share)) => (Arc::clone(key), share.granted, share.granted.min(capped)),
            None => {
                let granted = existing.min(capped).min(self.free(offer));
                (offer.into(), 0, granted)
            }
        };
        let share = Share {
            created_unix,
            wanted,
            granted,
        };
        let is_new = self.offers.insert(Arc::clone(&key), share).is_none();
        self.use_up(&key, before, granted);
        if is_new || before != granted {
            self.changed.insert(Arc::clone(&key));
        }
        self.open = true;
        if granted < capped {
            self.short.insert((created_unix, key));
        } else {
            self.short.remove(&(created_unix, key));
        }
    }

    /// Removes a deleted offer and frees its bindings.
    pub fn forget(&mut self, offer: &str) {
        let Some((key, share)) = self.offers.remove_entry(offer) else {
            return;
        };
        self.use_up(&key, share.granted, 0);
        self.changed.remove(&key);
        self.short.remove(&(share.created_unix, key));
        self.open = true;
    }

    /// Grants free bindings, and returns the offers whose grant has changed since the last call.
    pub fn share_out(&mut self) -> HashSet<Arc<str>> {
        if std::mem::take(&mut self.open) {
            for (created_unix, key) in self.short.clone() {
                if self.total >= self.limits.total {
                    break;
                }
                let (free, most) = (self.free(&key), self.limits.offer);
                let Some(share) = self.offers.get_mut(&key) else {
                    continue;
                };
                let before = share.granted;
                let capped = usize::try_from(share.wanted).map_or(most, |wanted| wanted.min(most));
                let more = capped.saturating_sub(before).min(free);
                if more == 0 {
                    continue;
                }
                share.granted = before + more;
                self.use_up(&key, before, before + more);
                if before + more == capped {
                    self.short.remove(&(created_unix, Arc::clone(&key)));
                }
                self.changed.insert(key);
            }
        }
        std::mem::take(&mut self.changed)
    }

    /// Returns whether [`share_out`](Self::share_out) may change a grant.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Returns the bindings that an offer may have.
    pub fn grant(&self, offer: &str) -> Grant {
        self.offers
            .get_key_value(offer)
            .map_or_else(Grant::default, |(key, share)| self.grant_of(key, share))
    }

    /// The grants of all offers, unordered.
    pub fn grants(&self) -> impl Iterator<Item = Grant> {
        self.offers
            .iter()
            .map(|(key, share)| self.grant_of(key, share))
    }

    fn grant_of(&self, offer: &str, share: &Share) -> Grant {
        let count = share.granted;
        let withheld = share.wanted.saturating_sub(count as u128);
        let bound = match withheld {
            0 => None,
            _ if count >= self.limits.offer => Some(Bound::Offer),
            _ if self.used(offer) >= self.limits.namespace => Some(Bound::Namespace),
            _ => Some(Bound::Total),
        };
        Grant {
            count,
            withheld,
            bound,
        }
    }

    fn free(&self, offer: &str) -> usize {
        let here = self.limits.namespace.saturating_sub(self.used(offer));
        here.min(self.limits.total.saturating_sub(self.total))
    }

    fn used(&self, offer: &str) -> usize {
        let used = self.by_namespace.get(namespace_of(offer));
        used.copied().unwrap_or(0)
    }

    fn use_up(&mut self, offer: &str, before: usize, after: usize) {
        self.total = self.total.saturating_sub(before) + after;
        let namespace = namespace_of(offer);
        let used = self.by_namespace.entry_ref(namespace).or_default();
        *used = used.saturating_sub(before) + after;
        if *used == 0 {
            self.by_namespace.remove(namespace);
        }
    }
}

fn namespace_of(offer: &str) -> &str {
    offer.split_once('/').map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests;
