//! Reports of OpenReports (`openreports.io/v1alpha1`), one for each offer: decides which reports
//! are due, and builds their content.

mod report;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tautline_core::{Snapshot, planning::fnv1a_64};

use crate::{
    binding_spec::{Key, key_of},
    clock::backoff,
    reconciler::BindingEvent,
};
use report::Row;

pub(crate) use report::{GROUP, KIND, PLURAL, VERSION};

/// The shortest time between two writes of a report, as reasons have figures that change all the
/// time.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY: Duration = Duration::from_secs(300);

/// Tracks offers and bindings, and returns the reports that must be written.
#[derive(Default)]
pub(crate) struct Reports {
    offers: BTreeMap<Key, Offer>,
    /// The rows by the key of the binding, each with the key of its offer.
    rows: HashMap<Key, (Key, Row)>,
    failures: u32,
    not_before: Option<Instant>,
}

#[derive(Default)]
struct Offer {
    /// The offer's UID; empty while only bindings of the offer are known.
    uid: Arc<str>,
    bindings: BTreeSet<Key>,
    due: Option<Instant>,
    last_write: Option<Instant>,
    /// The hash of the content that was written last.
    written: Option<u64>,
}

/// A report to write.
#[derive(Debug, PartialEq)]
pub(crate) struct Write {
    pub offer: Key,
    pub namespace: String,
    pub name: String,
    pub content: Value,
    hash: u64,
}

impl Reports {
    pub(crate) fn apply(&mut self, event: BindingEvent, now: Instant) {
        match event {
            BindingEvent::Applied(binding) => {
                let (spec, status) = *binding;
                self.set(spec.key(), spec.offer_key(), Row::new(&spec, &status), now);
            }
            BindingEvent::Deleted(binding, uid) => {
                if self.rows.get(&binding).is_some_and(|(_, r)| r.uid == uid) {
                    self.remove(&binding, now);
                }
            }
            BindingEvent::All(list) => {
                let listed: BTreeSet<Key> = list.iter().map(|(spec, _)| spec.key()).collect();
                let gone = self.rows.keys().filter(|k| !listed.contains(*k));
                for binding in gone.cloned().collect::<Vec<_>>() {
                    self.remove(&binding, now);
                }
                for (spec, status) in list {
                    self.set(spec.key(), spec.offer_key(), Row::new(&spec, &status), now);
                }
            }
        }
    }

    /// Applies the offers of a snapshot. Reports of deleted offers need no write: the garbage
    /// collector deletes them, by their owner references.
    pub(crate) fn set_offers(&mut self, snapshot: &Snapshot, now: Instant) {
        let mut listed = BTreeSet::new();
        for entry in snapshot.offers() {
            let (key, uid) = (key_of(&entry.offer), &entry.offer.uid);
            listed.insert(Arc::clone(&key));
            let offer = self.offers.entry(Arc::clone(&key)).or_default();
            if *offer.uid != **uid {
                offer.uid = uid.to_string().into();
                offer.written = None;
                self.schedule(&key, now);
            }
        }
        let gone = |(key, _): &(&Key, &mut Offer)| !listed.contains(*key);
        for (_, offer) in self.offers.iter_mut().filter(gone) {
            (offer.uid, offer.due) = (Arc::default(), None);
        }
        self.offers
            .retain(|_, offer| !offer.uid.is_empty() || !offer.bindings.is_empty());
    }

    /// Returns the time of the next write.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let (due, _) = self.first_due()?;
        Some(self.not_before.map_or(due, |at| at.max(due)))
    }

    fn first_due(&self) -> Option<(Instant, &Key)> {
        let due = self
            .offers
            .iter()
            .filter_map(|(key, o)| Some((o.due?, key)));
        due.min()
    }

    /// Returns the next report that is due and differs from what was written last.
    pub(crate) fn next_write(&mut self, now: Instant) -> Option<Write> {
        while self.next_time().is_some_and(|at| at <= now) {
            let key = Arc::clone(self.first_due()?.1);
            let offer = self.offers.get_mut(&key)?;
            offer.due = None;
            let Some((namespace, name)) = key.split_once('/') else {
                continue;
            };
            let rows = offer.bindings.iter().filter_map(|b| {
                let (_, row) = self.rows.get(b)?;
                Some((b.split_once('/')?.1, row))
            });
            let content = report::content(namespace, name, &offer.uid, rows.collect());
            let hash = fnv1a_64(&[&content.to_string()]);
            if offer.written == Some(hash) {
                continue;
            }
            return Some(Write {
                namespace: namespace.to_owned(),
                name: report::name(name),
                content,
                hash,
                offer: key,
            });
        }
        None
    }

    pub(crate) fn written(&mut self, write: &Write, now: Instant) {
        (self.failures, self.not_before) = (0, None);
        if let Some(offer) = self.offers.get_mut(&write.offer) {
            offer.written = Some(write.hash);
            offer.last_write = Some(now);
            // A change during the write waits for the next period.
            if offer.due.is_some() {
                self.schedule(&write.offer, now);
            }
        }
    }

    /// Schedules a report again after a failed write. All reports wait until the retry, as their
    /// failures usually have the same cause.
    pub(crate) fn failed(&mut self, write: &Write, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + backoff(FIRST_RETRY, MAX_RETRY, self.failures));
        self.schedule(&write.offer, now);
    }

    fn set(&mut self, binding: Key, offer: Key, row: Row, now: Instant) {
        match self.rows.get(&binding) {
            Some((of, before)) if *of == offer && *before == row => return,
            Some((of, _)) if *of != offer => self.remove(&binding, now),
            _ => {}
        }
        self.rows
            .insert(Arc::clone(&binding), (Arc::clone(&offer), row));
        let of = self.offers.entry(Arc::clone(&offer)).or_default();
        of.bindings.insert(binding);
        self.schedule(&offer, now);
    }

    fn remove(&mut self, binding: &Key, now: Instant) {
        let Some((offer, _)) = self.rows.remove(binding) else {
            return;
        };
        if let Some(of) = self.offers.get_mut(&offer) {
            of.bindings.remove(binding);
            if of.uid.is_empty() && of.bindings.is_empty() {
                self.offers.remove(&offer);
            }
        }
        self.schedule(&offer, now);
    }

    fn schedule(&mut self, key: &Key, now: Instant) {
        let Some(offer) = self.offers.get_mut(key).filter(|o| !o.uid.is_empty()) else {
            return;
        };
        let last = offer.last_write;
        offer.due = Some(last.map_or(now, |last| now.max(last + MIN_WRITE_INTERVAL)));
    }
}

/// Returns whether a response with the status `code` means that the kind is not installed. A
/// missing namespace has status 404, too.
pub(crate) fn is_kind_missing(code: u16, message: &str) -> bool {
    code == 404 && !message.starts_with("namespaces ")
}
