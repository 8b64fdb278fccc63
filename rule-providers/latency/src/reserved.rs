//! What bindings with a rule `bandwidth` reserve: each what it requests, between
//! every two nodes that its objects are on.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tautline_core::{Snapshot, ask, binding::called_for, index::OfferEntry, model::key};
use tautline_sdk::Reference;

use crate::{
    bandwidth::{RULE, bits},
    places::{node_of, place},
    table::{BandwidthTable, Row},
};

/// Bindings of an offer that are counted, as many as the controller makes.
const MOST_BINDINGS: usize = 10_000;

/// What one binding reserves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    targets: Vec<Reference>,
    pub bits: u64,
    /// Two nodes each.
    pub pairs: Vec<(Arc<str>, Arc<str>)>,
}

/// The two names of a table's row, in order.
pub(crate) type RowKey<'a> = (&'a str, &'a str);

/// A row counts for both directions together.
pub(crate) fn row_key<'a>(row: &Row<'a>) -> RowKey<'a> {
    (row.from.min(row.to), row.from.max(row.to))
}

/// All that is reserved, in bits a second.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    held: Vec<Arc<Held>>,
    by_node: HashMap<String, u64>,
    by_row: HashMap<String, HashMap<String, u64>>,
    /// Places in `held`, by `namespace/name` of an object.
    by_object: HashMap<String, Vec<usize>>,
}

impl Reserved {
    fn of(
        all: impl Iterator<Item = Arc<Held>>,
        snapshot: &Snapshot,
        table: &BandwidthTable,
    ) -> Self {
        let mut reserved = Self {
            held: all.collect(),
            ..Self::default()
        };
        for (i, held) in reserved.held.iter().enumerate() {
            for target in &held.targets {
                let objects = &mut reserved.by_object;
                let object = key(&target.namespace, &target.name);
                objects.entry(object).or_default().push(i);
            }
            for (a, b) in &held.pairs {
                for node in [a, b] {
                    let sum = reserved.by_node.entry_ref(&**node).or_default();
                    *sum = sum.saturating_add(held.bits);
                }
                let row = table.pairs().towards(place(snapshot, b));
                if let Some(row) = row.from(place(snapshot, a)) {
                    let (x, y) = row_key(&row);
                    let from_x = reserved.by_row.entry_ref(x).or_default();
                    let sum = from_x.entry_ref(y).or_default();
                    *sum = sum.saturating_add(held.bits);
                }
            }
        }
        reserved
    }

    pub(crate) fn of_node(&self, node: &str) -> u64 {
        self.by_node.get(node).copied().unwrap_or(0)
    }

    pub(crate) fn of_row(&self, row: RowKey<'_>) -> u64 {
        let from_x = self.by_row.get(row.0);
        from_x.and_then(|f| f.get(row.1)).copied().unwrap_or(0)
    }

    /// What the bindings of an object hold.
    pub(crate) fn by_object(&self, namespace: &str, name: &str) -> impl Iterator<Item = &Held> {
        let places = self.by_object.get(&key(namespace, name));
        let held = places
            .into_iter()
            .flatten()
            .filter_map(|i| self.held.get(*i));
        held.map(Arc::as_ref)
    }

    /// What the binding of exactly these objects holds under such a request.
    pub(crate) fn of_binding(&self, targets: &[&Reference], bits: u64) -> Option<&Held> {
        let same = |a: &Reference, b: &Reference| {
            a.kind == b.kind && a.namespace == b.namespace && a.name == b.name
        };
        let first = targets.first()?;
        self.by_object(&first.namespace, &first.name).find(|held| {
            held.bits == bits
                && held.targets.len() == targets.len()
                && held.targets.iter().zip(targets).all(|(a, b)| same(a, b))
        })
    }
}

/// Keeps the sums in step with the cluster; only offers that changed are read anew.
#[derive(Debug, Default)]
pub(crate) struct Reservations(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    seen: Arc<Snapshot>,
    table: Arc<BandwidthTable>,
    /// By `namespace/name`: what the offer's rule requests, and what that makes.
    offers: HashMap<String, (u64, Vec<Arc<Held>>)>,
    now: Arc<Reserved>,
}

impl Reservations {
    /// What is reserved in `snapshot`.
    pub(crate) fn at(
        &self,
        snapshot: &Arc<Snapshot>,
        table: &Arc<BandwidthTable>,
    ) -> Arc<Reserved> {
        let mut state = self.0.lock();
        if Arc::ptr_eq(&state.seen, snapshot) && Arc::ptr_eq(&state.table, table) {
            return Arc::clone(&state.now);
        }
        let mut offers = std::mem::take(&mut state.offers);
        for (old, new) in snapshot.changed_offers(&state.seen) {
            if let Some(entry) = old.or(new) {
                offers.remove(&offer_key(entry));
            }
        }
        for entry in snapshot.offers() {
            let wanted = wanted(snapshot, entry);
            let name = offer_key(entry);
            if wanted == 0 {
                offers.remove(&name);
            } else if offers.get(&name).is_none_or(|(w, _)| *w != wanted) {
                offers.insert(name, (wanted, holds(snapshot, entry, wanted)));
            }
        }
        let all = offers.values().flat_map(|(_, held)| held.iter().cloned());
        state.now = Arc::new(Reserved::of(all, snapshot, table));
        state.offers = offers;
        state.seen = Arc::clone(snapshot);
        state.table = Arc::clone(table);
        Arc::clone(&state.now)
    }
}

fn offer_key(entry: &OfferEntry) -> String {
    key(&entry.offer.namespace, &entry.offer.name)
}

/// What the offer's rule `bandwidth` requests; 0 without one, or if it is no number.
fn wanted(snapshot: &Snapshot, entry: &OfferEntry) -> u64 {
    if entry.offer.terminating {
        return 0;
    }
    let (rules, _) = ask::rules(snapshot, &entry.offer);
    let rule = rules.iter().find(|r| *r.name == *RULE);
    rule.and_then(|r| bits(&r.request).ok().flatten())
        .unwrap_or(0)
}

fn holds(snapshot: &Snapshot, entry: &OfferEntry, bits: u64) -> Vec<Arc<Held>> {
    let tuples = called_for(entry, MOST_BINDINGS).bindings.into_values();
    let held = |targets: Vec<Reference>| {
        let mut nodes: Vec<String> = targets
            .iter()
            .filter_map(|t| node_of(snapshot, t))
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        let nodes: Vec<Arc<str>> = nodes.into_iter().map(Arc::from).collect();
        let mut pairs = Vec::new();
        for (i, a) in nodes.iter().enumerate() {
            pairs.extend(
                nodes[i + 1..]
                    .iter()
                    .map(|b| (Arc::clone(a), Arc::clone(b))),
            );
        }
        (!pairs.is_empty()).then(|| {
            Arc::new(Held {
                targets,
                bits,
                pairs,
            })
        })
    };
    tuples
        .filter_map(|t| held(t.into_values().collect()))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests;
