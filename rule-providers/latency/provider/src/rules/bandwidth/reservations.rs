//! The reservations of bandwidth: a binding reserves the request of its rule `bandwidth` between
//! every two nodes of its objects. For untrusted namespaces only pods on nodes of the cluster
//! count: a tenant reserves nothing by the name of a Service, or by a made-up node name. Where more
//! is reserved than available, earlier reservations take precedence: a tenant takes nothing from
//! others by a later binding.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tautline_core::{
    Snapshot, TrustedNamespaces,
    binding::{binding_count, desired_bindings},
    binding_quota::BindingQuota,
    constraints,
    index::OfferEntry,
    model::{Offer, key},
    quantity,
};
use tautline_sdk::Reference;

use crate::{
    location::{each_two, location, node_of, node_of_pod},
    tables::{
        NamespaceTables, Tables,
        table::{Bandwidth, Row},
    },
};

pub(crate) const RULE: &str = "bandwidth";
const MAX_VIEWS: usize = 64;
/// The value of [`Since::seen`] for a reservation that existed at the start and had its bandwidth.
const KEPT_SEEN_SECONDS: i64 = 0;
/// The value of [`Since::seen`] for a reservation that existed at the start and lacked bandwidth: it
/// had come after those that kept theirs.
const LACKING_SEEN_SECONDS: i64 = 1;

/// Parses a Kubernetes quantity of bits per second; returns `None` for an empty text.
pub(super) fn parse_bits(text: &str) -> Result<Option<u64>, quantity::QuantityError> {
    if text.is_empty() {
        return Ok(None);
    }
    quantity::parse_milli(text).map(|milli| Some(milli.unsigned_abs() / 1_000))
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reservation {
    since: Since,
    offer: Arc<Offer>,
    targets: Vec<Reference>,
    pub bits: u64,
    pub pairs: Vec<(Arc<str>, Arc<str>)>,
}

/// The seniority of a reservation, by Unix times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Since {
    /// The time at which this process saw it appear, grow or move; [`KEPT_SEEN_SECONDS`] or [`LACKING_SEEN_SECONDS`] if it
    /// existed at the start.
    seen: i64,
    /// The time at which the last of its offer and its pods was created.
    created: i64,
}

impl Reservation {
    fn seniority(&self) -> impl Ord + '_ {
        (self.since, &self.offer.uid, &self.targets)
    }

    /// Returns whether it is no larger than `other`, a reservation for the same objects.
    fn is_within(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.pairs.iter().all(|p| other.pairs.contains(p))
    }
}

pub(crate) type RowKey<'a> = (&'a str, &'a str);

/// Returns the key of a row, which is the same for both directions.
pub(crate) fn row_key<'a>(row: &Row<'a>) -> RowKey<'a> {
    (row.from.min(row.to), row.from.max(row.to))
}

/// All reservations in bits per second, by node and by the rows of the tables that apply to a
/// namespace.
#[derive(Debug, Default)]
pub(crate) struct ReservedView {
    totals: Arc<ReservationTotals>,
    by_row: HashMap<String, HashMap<String, RunningSum>>,
}

/// The running sum of reservations in bits per second: the index of each reservation and the sum up
/// to it, in the order of seniority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RunningSum(Vec<(usize, u64)>);

impl RunningSum {
    fn add(&mut self, at: usize, bits: u64) {
        let sum = self.0.last().map_or(0, |(_, sum)| *sum);
        self.0.push((at, sum.saturating_add(bits)));
    }

    /// Returns the sum of the reservations with a lower index, or of all with `None`.
    fn before(&self, index: Option<usize>) -> u64 {
        let count = match index {
            Some(index) => self.0.partition_point(|(at, _)| *at < index),
            None => self.0.len(),
        };
        let last = count.checked_sub(1).and_then(|at| self.0.get(at));
        last.map_or(0, |(_, sum)| *sum)
    }
}

#[derive(Debug, Default)]
struct ReservationTotals {
    /// All reservations in the order of seniority, oldest first.
    all: Vec<Arc<Reservation>>,
    by_node: HashMap<String, RunningSum>,
    by_object: HashMap<String, Vec<usize>>,
}

impl ReservationTotals {
    fn new(all: impl Iterator<Item = Arc<Reservation>>) -> Self {
        let mut totals = Self {
            all: all.collect(),
            ..Self::default()
        };
        totals.all.sort_by(|a, b| a.seniority().cmp(&b.seniority()));
        for (i, reservation) in totals.all.iter().enumerate() {
            for target in &reservation.targets {
                let objects = &mut totals.by_object;
                let object = key(&target.namespace, &target.name);
                objects.entry(object).or_default().push(i);
            }
            for node in reservation.pairs.iter().flat_map(|(a, b)| [a, b]) {
                let sum = totals.by_node.entry_ref(&**node).or_default();
                sum.add(i, reservation.bits);
            }
        }
        totals
    }
}

impl ReservedView {
    fn new(
        totals: Arc<ReservationTotals>,
        snapshot: &Snapshot,
        tables: NamespaceTables<'_, Bandwidth>,
    ) -> Self {
        let mut by_row: HashMap<String, HashMap<String, RunningSum>> = HashMap::new();
        for (i, reservation) in totals.all.iter().enumerate() {
            for (a, b) in &reservation.pairs {
                let rows = tables.rows_to(location(snapshot, b));
                if let Some(row) = rows.from(location(snapshot, a)) {
                    let (x, y) = row_key(&row);
                    let sum = by_row.entry_ref(x).or_default().entry_ref(y).or_default();
                    sum.add(i, reservation.bits);
                }
            }
        }
        Self { totals, by_row }
    }

    /// Returns the rate reserved on a node before the reservation with this index, or by all
    /// reservations with `None`.
    pub(crate) fn of_node(&self, node: &str, before: Option<usize>) -> u64 {
        let sum = self.totals.by_node.get(node);
        sum.map_or(0, |sum| sum.before(before))
    }

    /// Returns the rate reserved on a row before the reservation with this index, or by all
    /// reservations with `None`.
    pub(crate) fn of_row(&self, row: RowKey<'_>, before: Option<usize>) -> u64 {
        let sum = self.by_row.get(row.0).and_then(|f| f.get(row.1));
        sum.map_or(0, |sum| sum.before(before))
    }

    /// Returns the oldest offers with reservations on the node before the one with this index.
    pub(crate) fn first_offers(&self, node: &str, before: usize, most: usize) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let sum = self.totals.by_node.get(node);
        let indexes = sum.iter().flat_map(|sum| &sum.0).map(|(at, _)| *at);
        let earlier = indexes.take_while(|at| *at < before);
        for reservation in earlier.filter_map(|at| self.totals.all.get(at)) {
            let name = key(&reservation.offer.namespace, &reservation.offer.name);
            if !names.contains(&name) {
                names.push(name);
            }
            if names.len() == most {
                break;
            }
        }
        names
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

    /// Returns the index of a binding's reservation in the order of seniority.
    pub(crate) fn of_binding(&self, targets: &[&Reference], bits: u64) -> Option<usize> {
        let same = |a: &Reference, b: &Reference| {
            (&a.cluster, &a.kind) == (&b.cluster, &b.kind)
                && (&a.namespace, &a.name) == (&b.namespace, &b.name)
        };
        let first = targets.first()?;
        let known = self
            .totals
            .by_object
            .get(&key(&first.namespace, &first.name));
        let mut indexes = known.into_iter().flatten().copied();
        indexes.find(|at| {
            self.totals.all.get(*at).is_some_and(|reservation| {
                reservation.bits == bits
                    && reservation.targets.len() == targets.len()
                    && reservation
                        .targets
                        .iter()
                        .zip(targets)
                        .all(|(a, b)| same(a, b))
            })
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Reservations(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    seen: Arc<Snapshot>,
    tables: Arc<Tables<Bandwidth>>,
    offers: HashMap<String, OfferReservations>,
    /// The bindings, as `namespace/name`, that lacked bandwidth at the start; empty once the
    /// reservations of the start are ranked.
    lacking: HashSet<String>,
    /// The quota of bindings that count: as many as the controller creates by default.
    quota: BindingQuota,
    totals: Arc<ReservationTotals>,
    /// The views by the namespace whose own table they use; "" is for the shared table alone.
    views: HashMap<String, Arc<ReservedView>>,
}

#[derive(Debug)]
struct OfferReservations {
    wanted: u64,
    all: Vec<Arc<Reservation>>,
}

/// Returns the part of a reservation between nodes of the cluster, or `None` if it is empty.
fn on_known_nodes(snapshot: &Snapshot, reservation: &Arc<Reservation>) -> Option<Arc<Reservation>> {
    let known = |(a, b): &(Arc<str>, Arc<str>)| [a, b].iter().all(|n| snapshot.node(n).is_some());
    if reservation.pairs.iter().all(known) {
        return Some(Arc::clone(reservation));
    }
    let pairs = reservation.pairs.iter().filter(|p| known(p));
    let pairs: Vec<_> = pairs.cloned().collect();
    (!pairs.is_empty()).then(|| {
        Arc::new(Reservation {
            pairs,
            ..Reservation::clone(reservation)
        })
    })
}

impl Reservations {
    /// Ranks these bindings, as `namespace/name`, after all others that exist at the start.
    pub(crate) fn set_lacking(&self, bindings: HashSet<String>) {
        self.0.lock().lacking = bindings;
    }

    /// Returns the reservations as a namespace's tables have them. `trusted` is always the same.
    pub(crate) fn at(
        &self,
        trusted: &TrustedNamespaces,
        snapshot: &Arc<Snapshot>,
        tables: &Arc<Tables<Bandwidth>>,
        namespace: Option<&str>,
    ) -> Arc<ReservedView> {
        let mut state = self.0.lock();
        if !Arc::ptr_eq(&state.seen, snapshot) {
            state.follow(trusted, snapshot);
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
    fn follow(&mut self, trusted: &TrustedNamespaces, snapshot: &Arc<Snapshot>) {
        let mut known = std::mem::take(&mut self.offers);
        let mut changed = HashSet::new();
        for (old, new) in snapshot.changed_offers(&self.seen) {
            if let Some(entry) = old.or(new) {
                let name = offer_key(entry);
                if new.is_none() {
                    self.quota.forget(&name);
                }
                changed.insert(name);
            }
        }
        let is_start = known.is_empty();
        let now = unix_now();
        let mut wanted_of = Vec::new();
        for entry in snapshot.offers() {
            let (name, wanted) = (offer_key(entry), wanted(snapshot, entry));
            let is_new = known.get(&name).is_none_or(|o| o.wanted != wanted);
            if wanted == 0 {
                self.quota.forget(&name);
            } else if is_new || changed.contains(&name) {
                let (created, count) = (entry.offer.created_unix, binding_count(entry));
                self.quota.call_for(&name, created, count, 0);
            }
            wanted_of.push((name, wanted, entry));
        }
        changed.extend(self.quota.share_out().iter().map(|name| name.to_string()));
        let mut offers = HashMap::with_capacity(wanted_of.len());
        for (name, wanted, entry) in wanted_of {
            let old = known.remove(&name);
            let is_same = |o: &OfferReservations| o.wanted == wanted && !changed.contains(&name);
            let of_offer = match old {
                Some(old) if is_same(&old) => old,
                old => {
                    let trusted = trusted.contains(&entry.offer.namespace);
                    let old = old.map(|o| o.all).unwrap_or_default();
                    let most = self.quota.grant(&name).count;
                    let seen = |binding: &str| match is_start {
                        true if self.lacking.contains(&key(&entry.offer.namespace, binding)) => {
                            LACKING_SEEN_SECONDS
                        }
                        true => KEPT_SEEN_SECONDS,
                        false => now,
                    };
                    let all = reservations(snapshot, entry, wanted, trusted, &old, seen, most);
                    OfferReservations { wanted, all }
                }
            };
            offers.insert(name, of_offer);
        }
        // For untrusted namespaces only pairs on nodes of the cluster count.
        let counted = |reservation: &Arc<Reservation>| {
            if trusted.contains(&reservation.offer.namespace) {
                Some(Arc::clone(reservation))
            } else {
                on_known_nodes(snapshot, reservation)
            }
        };
        let all = offers.values().flat_map(|o| &o.all);
        self.totals = Arc::new(ReservationTotals::new(all.filter_map(counted)));
        if !offers.is_empty() {
            self.lacking = HashSet::new();
        }
        self.offers = offers;
        self.seen = Arc::clone(snapshot);
        self.views.clear();
    }
}

fn offer_key(entry: &OfferEntry) -> String {
    key(&entry.offer.namespace, &entry.offer.name)
}

/// Returns the request of the offer's rule `bandwidth`, in bits per second; 0 without a valid one,
/// and of an offer with targets of other clusters, whose pods the provider does not know.
fn wanted(snapshot: &Snapshot, entry: &OfferEntry) -> u64 {
    if entry.offer.terminating || !entry.offer.remote_targets.is_empty() {
        return 0;
    }
    let (rules, _) = constraints::offer_rules(snapshot, &entry.offer);
    let rule = rules.iter().find(|r| *r.name == *RULE);
    rule.and_then(|r| parse_bits(&r.request).ok().flatten())
        .unwrap_or(0)
}

/// Returns the reservations of an offer, at most `most`. `old` are those that it had, and `seen`
/// returns the time at which the new one of a binding appeared.
fn reservations(
    snapshot: &Snapshot,
    entry: &OfferEntry,
    bits: u64,
    trusted: bool,
    old: &[Arc<Reservation>],
    seen: impl Fn(&str) -> i64,
    most: usize,
) -> Vec<Arc<Reservation>> {
    if bits == 0 {
        return Vec::new();
    }
    let node_of = if trusted { node_of } else { node_of_pod };
    let old: HashMap<&[Reference], &Arc<Reservation>> =
        old.iter().map(|r| (&r.targets[..], r)).collect();
    let tuples = desired_bindings(entry, most).into_iter();
    let reservation = |binding: &str, targets: Vec<Reference>| {
        let mut nodes: Vec<String> = targets
            .iter()
            .filter_map(|t| node_of(snapshot, t))
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        let nodes: Vec<Arc<str>> = nodes.into_iter().map(Arc::from).collect();
        let pairs = each_two(&nodes).map(|(a, b)| (Arc::clone(a), Arc::clone(b)));
        let pairs: Vec<_> = pairs.collect();
        if pairs.is_empty() {
            return None;
        }
        let pods = targets.iter().filter_map(|t| snapshot.pod_of(t));
        let created = pods.map(|pod| pod.created_unix).max().unwrap_or_default();
        let mut reservation = Reservation {
            since: Since {
                seen: seen(binding),
                created: created.max(entry.offer.created_unix),
            },
            offer: Arc::clone(&entry.offer),
            targets,
            bits,
            pairs,
        };
        if let Some(old) = old.get(&reservation.targets[..])
            && reservation.is_within(old)
        {
            reservation.since = old.since;
        }
        Some(Arc::new(reservation))
    };
    tuples
        .filter_map(|(binding, t)| reservation(&binding, t.into_values().collect()))
        .collect()
}

fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
pub(crate) mod tests;
