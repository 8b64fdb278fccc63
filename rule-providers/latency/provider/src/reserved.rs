//! What bindings with a rule `bandwidth` reserve: each what it requests, between
//! every two nodes that its objects are on. For an offer of a namespace that is not
//! trusted, the objects are pods, and the nodes are nodes of the cluster: a tenant who
//! names a Service, or a pod's node, at will reserves nothing by it.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tautline_core::{
    Snapshot, TrustedNamespaces, binding::desired_bindings, constraints, index::OfferEntry,
    model::key,
};
use tautline_sdk::Reference;

use crate::{
    bandwidth::{RULE, bits},
    places::{node_of, node_of_pod, place},
    table::{Bandwidth, Row},
    tables::{Tables, View},
};

/// Bindings of an offer that are counted, as many as the controller makes.
const MOST_BINDINGS: usize = 10_000;
/// Namespaces with tables of their own whose view is kept until the next change.
const MOST_VIEWS: usize = 64;

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

/// All that is reserved, in bits a second, as the workloads of a namespace see it:
/// the rows are those of the tables that count for it.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    holdings: Arc<Holdings>,
    by_row: HashMap<String, HashMap<String, u64>>,
}

/// What is reserved whatever the tables say.
#[derive(Debug, Default)]
struct Holdings {
    held: Vec<Arc<Held>>,
    by_node: HashMap<String, u64>,
    /// Places in `held`, by `namespace/name` of an object.
    by_object: HashMap<String, Vec<usize>>,
}

impl Holdings {
    fn of(all: impl Iterator<Item = Arc<Held>>) -> Self {
        let mut holdings = Self {
            held: all.collect(),
            ..Self::default()
        };
        for (i, held) in holdings.held.iter().enumerate() {
            for target in &held.targets {
                let objects = &mut holdings.by_object;
                let object = key(&target.namespace, &target.name);
                objects.entry(object).or_default().push(i);
            }
            for node in held.pairs.iter().flat_map(|(a, b)| [a, b]) {
                let sum = holdings.by_node.entry_ref(&**node).or_default();
                *sum = sum.saturating_add(held.bits);
            }
        }
        holdings
    }
}

impl Reserved {
    fn of(holdings: Arc<Holdings>, snapshot: &Snapshot, tables: View<'_>) -> Self {
        let mut by_row: HashMap<String, HashMap<String, u64>> = HashMap::new();
        let held = holdings.held.iter();
        for (a, b, bits) in held.flat_map(|h| h.pairs.iter().map(|(a, b)| (a, b, h.bits))) {
            let row = tables.towards(place(snapshot, b));
            if let Some(row) = row.from(place(snapshot, a)) {
                let (x, y) = row_key(&row);
                let sum = by_row.entry_ref(x).or_default().entry_ref(y).or_default();
                *sum = sum.saturating_add(bits);
            }
        }
        Self { holdings, by_row }
    }

    pub(crate) fn of_node(&self, node: &str) -> u64 {
        self.holdings.by_node.get(node).copied().unwrap_or(0)
    }

    pub(crate) fn of_row(&self, row: RowKey<'_>) -> u64 {
        let from_x = self.by_row.get(row.0);
        from_x.and_then(|f| f.get(row.1)).copied().unwrap_or(0)
    }

    /// What the bindings of an object hold.
    pub(crate) fn by_object(&self, namespace: &str, name: &str) -> impl Iterator<Item = &Held> {
        let places = self.holdings.by_object.get(&key(namespace, name));
        let held = places
            .into_iter()
            .flatten()
            .filter_map(|i| self.holdings.held.get(*i));
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
    trusted: TrustedNamespaces,
    seen: Arc<Snapshot>,
    tables: Arc<Tables<Bandwidth>>,
    /// By `namespace/name`.
    offers: HashMap<String, OfOffer>,
    holdings: Arc<Holdings>,
    /// By the namespace whose own table is in the view; "" is the shared tables alone.
    views: HashMap<String, Arc<Reserved>>,
}

/// The holdings of one offer's bindings.
#[derive(Debug)]
struct OfOffer {
    /// The request of the offer's rule.
    wanted: u64,
    trusted: bool,
    held: Vec<Arc<Held>>,
}

impl OfOffer {
    /// The holdings that count now: on nodes of the cluster, unless the offer's
    /// namespace is trusted.
    fn counted(&self, snapshot: &Snapshot) -> impl Iterator<Item = Arc<Held>> {
        let counted = |held: &Arc<Held>| match self.trusted {
            true => Some(Arc::clone(held)),
            false => on_known_nodes(snapshot, held),
        };
        self.held.iter().filter_map(counted)
    }
}

/// The holding between nodes of the cluster alone; `None` if nothing is left of it.
fn on_known_nodes(snapshot: &Snapshot, held: &Arc<Held>) -> Option<Arc<Held>> {
    let known = |(a, b): &(Arc<str>, Arc<str>)| [a, b].iter().all(|n| snapshot.node(n).is_some());
    if held.pairs.iter().all(known) {
        return Some(Arc::clone(held));
    }
    let pairs = held.pairs.iter().filter(|p| known(p));
    let pairs: Vec<_> = pairs.cloned().collect();
    (!pairs.is_empty()).then(|| {
        Arc::new(Held {
            targets: held.targets.clone(),
            bits: held.bits,
            pairs,
        })
    })
}

impl Reservations {
    /// Bindings of the `trusted` namespaces reserve also where objects that are not
    /// pods are named like nodes.
    pub(crate) fn new(trusted: TrustedNamespaces) -> Self {
        Self(Mutex::new(State {
            trusted,
            ..State::default()
        }))
    }

    /// What is reserved in `snapshot`, as the workloads of `namespace` see it.
    pub(crate) fn at(
        &self,
        snapshot: &Arc<Snapshot>,
        tables: &Arc<Tables<Bandwidth>>,
        namespace: Option<&str>,
    ) -> Arc<Reserved> {
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
        if state.views.len() >= MOST_VIEWS {
            state.views.clear();
        }
        let holdings = Arc::clone(&state.holdings);
        let reserved = Arc::new(Reserved::of(holdings, snapshot, view));
        state.views.insert(owner.to_owned(), Arc::clone(&reserved));
        reserved
    }
}

impl State {
    fn follow(&mut self, snapshot: &Arc<Snapshot>) {
        let mut offers = std::mem::take(&mut self.offers);
        for (old, new) in snapshot.changed_offers(&self.seen) {
            if let Some(entry) = old.or(new) {
                offers.remove(&offer_key(entry));
            }
        }
        for entry in snapshot.offers() {
            let wanted = wanted(snapshot, entry);
            let name = offer_key(entry);
            if wanted == 0 {
                offers.remove(&name);
            } else if offers.get(&name).is_none_or(|o| o.wanted != wanted) {
                let trusted = self.trusted.contains(&entry.offer.namespace);
                let held = holds(snapshot, entry, wanted, trusted);
                offers.insert(
                    name,
                    OfOffer {
                        wanted,
                        trusted,
                        held,
                    },
                );
            }
        }
        let all = offers.values().flat_map(|o| o.counted(snapshot));
        self.holdings = Arc::new(Holdings::of(all));
        self.offers = offers;
        self.seen = Arc::clone(snapshot);
        self.views.clear();
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
    let (rules, _) = constraints::offer_rules(snapshot, &entry.offer);
    let rule = rules.iter().find(|r| *r.name == *RULE);
    rule.and_then(|r| bits(&r.request).ok().flatten())
        .unwrap_or(0)
}

fn holds(snapshot: &Snapshot, entry: &OfferEntry, bits: u64, trusted: bool) -> Vec<Arc<Held>> {
    let node_of = match trusted {
        true => node_of,
        false => node_of_pod,
    };
    let tuples = desired_bindings(entry, MOST_BINDINGS)
        .bindings
        .into_values();
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
