//! Bindings reserve the request of their rule `bandwidth` between every two nodes of their objects.
//! For untrusted namespaces only pods on nodes of the cluster count: a tenant reserves nothing by
//! the name of a Service, or by a made-up node name.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tautline_core::{
    Snapshot, TrustedNamespaces,
    binding::{binding_count, desired_bindings},
    binding_quota::BindingQuota,
    constraints,
    index::OfferEntry,
    model::key,
};
use tautline_sdk::Reference;

use super::quantity::{RULE, parse_bits};
use crate::{
    location::{location, node_of, node_of_pod},
    tables::{
        namespaces::{NamespaceTables, Tables},
        table::{Bandwidth, Row},
    },
};

const MAX_VIEWS: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reservation {
    targets: Vec<Reference>,
    pub bits: u64,
    pub pairs: Vec<(Arc<str>, Arc<str>)>,
}

pub(crate) type RowKey<'a> = (&'a str, &'a str);

/// A row counts for both directions together.
pub(crate) fn row_key<'a>(row: &Row<'a>) -> RowKey<'a> {
    (row.from.min(row.to), row.from.max(row.to))
}

/// All reservations in bits per second, by the rows of the tables that count for a namespace.
#[derive(Debug, Default)]
pub(crate) struct ReservedView {
    totals: Arc<ReservationTotals>,
    by_row: HashMap<String, HashMap<String, u64>>,
}

#[derive(Debug, Default)]
struct ReservationTotals {
    all: Vec<Arc<Reservation>>,
    by_node: HashMap<String, u64>,
    by_object: HashMap<String, Vec<usize>>,
}

impl ReservationTotals {
    fn new(all: impl Iterator<Item = Arc<Reservation>>) -> Self {
        let mut totals = Self {
            all: all.collect(),
            ..Self::default()
        };
        for (i, reservation) in totals.all.iter().enumerate() {
            for target in &reservation.targets {
                let objects = &mut totals.by_object;
                let object = key(&target.namespace, &target.name);
                objects.entry(object).or_default().push(i);
            }
            for node in reservation.pairs.iter().flat_map(|(a, b)| [a, b]) {
                let sum = totals.by_node.entry_ref(&**node).or_default();
                *sum = sum.saturating_add(reservation.bits);
            }
        }
        totals
    }
}

impl ReservedView {
    fn new(
        totals: Arc<ReservationTotals>,
        snapshot: &Snapshot,
        tables: NamespaceTables<'_>,
    ) -> Self {
        let mut by_row: HashMap<String, HashMap<String, u64>> = HashMap::new();
        let all = totals.all.iter();
        for (a, b, bits) in all.flat_map(|r| r.pairs.iter().map(|(a, b)| (a, b, r.bits))) {
            let rows = tables.rows_to(location(snapshot, b));
            if let Some(row) = rows.from(location(snapshot, a)) {
                let (x, y) = row_key(&row);
                let sum = by_row.entry_ref(x).or_default().entry_ref(y).or_default();
                *sum = sum.saturating_add(bits);
            }
        }
        Self { totals, by_row }
    }

    pub(crate) fn of_node(&self, node: &str) -> u64 {
        self.totals.by_node.get(node).copied().unwrap_or(0)
    }

    pub(crate) fn of_row(&self, row: RowKey<'_>) -> u64 {
        let from_x = self.by_row.get(row.0);
        from_x.and_then(|f| f.get(row.1)).copied().unwrap_or(0)
    }

    pub(crate) fn by_object(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = &Reservation> {
        let indexes = self.totals.by_object.get(&key(namespace, name));
        let reservations = indexes
            .into_iter()
            .flatten()
            .filter_map(|i| self.totals.all.get(*i));
        reservations.map(Arc::as_ref)
    }

    pub(crate) fn of_binding(&self, targets: &[&Reference], bits: u64) -> Option<&Reservation> {
        let same = |a: &Reference, b: &Reference| {
            a.kind == b.kind && a.namespace == b.namespace && a.name == b.name
        };
        let first = targets.first()?;
        self.by_object(&first.namespace, &first.name)
            .find(|reservation| {
                reservation.bits == bits
                    && reservation.targets.len() == targets.len()
                    && reservation
                        .targets
                        .iter()
                        .zip(targets)
                        .all(|(a, b)| same(a, b))
            })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Reservations(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    trusted: TrustedNamespaces,
    seen: Arc<Snapshot>,
    tables: Arc<Tables<Bandwidth>>,
    offers: HashMap<String, OfferReservations>,
    /// As many bindings count as the controller makes by default.
    quota: BindingQuota,
    totals: Arc<ReservationTotals>,
    /// By the namespace whose own table is in the view; "" is the shared tables alone.
    views: HashMap<String, Arc<ReservedView>>,
}

#[derive(Debug)]
struct OfferReservations {
    wanted: u64,
    trusted: bool,
    all: Vec<Arc<Reservation>>,
}

impl OfferReservations {
    /// Without pairs on unknown nodes, unless the offer's namespace is trusted.
    fn counted(&self, snapshot: &Snapshot) -> impl Iterator<Item = Arc<Reservation>> {
        let counted = |reservation: &Arc<Reservation>| match self.trusted {
            true => Some(Arc::clone(reservation)),
            false => on_known_nodes(snapshot, reservation),
        };
        self.all.iter().filter_map(counted)
    }
}

/// The part of a reservation between nodes of the cluster; `None` if it is empty.
fn on_known_nodes(snapshot: &Snapshot, reservation: &Arc<Reservation>) -> Option<Arc<Reservation>> {
    let known = |(a, b): &(Arc<str>, Arc<str>)| [a, b].iter().all(|n| snapshot.node(n).is_some());
    if reservation.pairs.iter().all(known) {
        return Some(Arc::clone(reservation));
    }
    let pairs = reservation.pairs.iter().filter(|p| known(p));
    let pairs: Vec<_> = pairs.cloned().collect();
    (!pairs.is_empty()).then(|| {
        Arc::new(Reservation {
            targets: reservation.targets.clone(),
            bits: reservation.bits,
            pairs,
        })
    })
}

impl Reservations {
    pub(crate) fn new(trusted: TrustedNamespaces) -> Self {
        Self(Mutex::new(State {
            trusted,
            ..State::default()
        }))
    }

    pub(crate) fn at(
        &self,
        snapshot: &Arc<Snapshot>,
        tables: &Arc<Tables<Bandwidth>>,
        namespace: Option<&str>,
    ) -> Arc<ReservedView> {
        let mut state = self.0.lock();
        if !Arc::ptr_eq(&state.seen, snapshot) {
            state.follow(snapshot);
        }
        if !Arc::ptr_eq(&state.tables, tables) {
            state.tables = Arc::clone(tables);
            state.views.clear();
        }
        let view = tables.for_namespace(namespace);
        let owner = view.owner().unwrap_or_default();
        if let Some(known) = state.views.get(owner) {
            return Arc::clone(known);
        }
        if state.views.len() >= MAX_VIEWS {
            state.views.clear();
        }
        let totals = Arc::clone(&state.totals);
        let reserved = Arc::new(ReservedView::new(totals, snapshot, view));
        state.views.insert(owner.to_owned(), Arc::clone(&reserved));
        reserved
    }
}

impl State {
    fn follow(&mut self, snapshot: &Arc<Snapshot>) {
        let mut offers = std::mem::take(&mut self.offers);
        for (old, new) in snapshot.changed_offers(&self.seen) {
            if let Some(entry) = old.or(new) {
                let name = offer_key(entry);
                offers.remove(&name);
                if new.is_none() {
                    self.quota.forget(&name);
                }
            }
        }
        let mut reserving = Vec::new();
        for entry in snapshot.offers() {
            let (name, wanted) = (offer_key(entry), wanted(snapshot, entry));
            if wanted == 0 {
                offers.remove(&name);
                self.quota.forget(&name);
                continue;
            }
            if offers.get(&name).is_none_or(|o| o.wanted != wanted) {
                offers.remove(&name);
                let (created, count) = (entry.offer.created_unix, binding_count(entry));
                self.quota.call_for(&name, created, count, 0);
            }
            reserving.push((name, wanted, entry));
        }
        for name in self.quota.share_out() {
            offers.remove(&*name);
        }
        for (name, wanted, entry) in reserving {
            if offers.contains_key(&name) {
                continue;
            }
            let trusted = self.trusted.contains(&entry.offer.namespace);
            let most = self.quota.grant(&name).count;
            let all = reservations(snapshot, entry, wanted, trusted, most);
            let reserved = OfferReservations {
                wanted,
                trusted,
                all,
            };
            offers.insert(name, reserved);
        }
        let all = offers.values().flat_map(|o| o.counted(snapshot));
        self.totals = Arc::new(ReservationTotals::new(all));
        self.offers = offers;
        self.seen = Arc::clone(snapshot);
        self.views.clear();
    }
}

fn offer_key(entry: &OfferEntry) -> String {
    key(&entry.offer.namespace, &entry.offer.name)
}

/// The request of the offer's rule `bandwidth`; 0 without a valid one.
fn wanted(snapshot: &Snapshot, entry: &OfferEntry) -> u64 {
    if entry.offer.terminating {
        return 0;
    }
    let (rules, _) = constraints::offer_rules(snapshot, &entry.offer);
    let rule = rules.iter().find(|r| *r.name == *RULE);
    rule.and_then(|r| parse_bits(&r.request).ok().flatten())
        .unwrap_or(0)
}

fn reservations(
    snapshot: &Snapshot,
    entry: &OfferEntry,
    bits: u64,
    trusted: bool,
    most: usize,
) -> Vec<Arc<Reservation>> {
    let node_of = match trusted {
        true => node_of,
        false => node_of_pod,
    };
    let tuples = desired_bindings(entry, most).into_values();
    let reservation = |targets: Vec<Reference>| {
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
            Arc::new(Reservation {
                targets,
                bits,
                pairs,
            })
        })
    };
    tuples
        .filter_map(|t| reservation(t.into_values().collect()))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests;
