//! The tables that apply to a namespace. Its own table takes precedence over the shared one, which
//! applies to the workloads of all namespaces.

pub(crate) mod config_maps;
pub(crate) mod sources;
pub(crate) mod table;

use std::sync::Arc;

use hashbrown::HashMap;
use tautline_core::Snapshot;

use crate::location::{Location, location};
use table::{PairTable, Row, RowsTo, Unit};

/// A table that applies to all namespaces, and tables of single namespaces, which take precedence
/// there.
#[derive(Clone, Debug, Default)]
pub struct Tables<U> {
    shared: Arc<PairTable<U>>,
    by_namespace: Arc<HashMap<String, Arc<PairTable<U>>>>,
    pub(crate) left_out: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NamespaceTables<'a, U> {
    own: Option<(&'a str, &'a PairTable<U>)>,
    shared: &'a PairTable<U>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NamespaceRowsTo<'a> {
    own: Option<RowsTo<'a>>,
    shared: RowsTo<'a>,
}

impl<U: Unit> Tables<U> {
    pub(crate) fn set_own(&mut self, namespace: String, table: Arc<PairTable<U>>) {
        let by_namespace = Arc::make_mut(&mut self.by_namespace);
        if table.is_empty() {
            by_namespace.remove(&namespace);
        } else {
            by_namespace.insert(namespace, table);
        }
    }

    /// Returns the tables for the workloads of a namespace; `None` is for reports, and for
    /// workloads of an unknown namespace.
    pub(crate) fn for_namespace(&self, namespace: Option<&str>) -> NamespaceTables<'_, U> {
        let own = namespace.and_then(|n| self.by_namespace.get_key_value(n));
        NamespaceTables {
            own: own.map(|(namespace, table)| (namespace.as_str(), &**table)),
            shared: &self.shared,
        }
    }
}

impl<U: Unit> From<PairTable<U>> for Tables<U> {
    fn from(shared: PairTable<U>) -> Self {
        Self {
            shared: Arc::new(shared),
            ..Self::default()
        }
    }
}

impl<'a, U: Unit> NamespaceTables<'a, U> {
    pub(crate) fn owner(self) -> Option<&'a str> {
        self.own.map(|(namespace, _)| namespace)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.shared.is_empty() && self.own.is_none()
    }

    /// Returns the location of a node, without its zone if the tables are empty: only rows need it.
    pub(crate) fn locate<'n>(self, snapshot: &'n Snapshot, node: &'n str) -> Location<'n> {
        if self.is_empty() {
            Location { node, zone: None }
        } else {
            location(snapshot, node)
        }
    }

    pub(crate) fn rows_to(self, to: Location<'a>) -> NamespaceRowsTo<'a> {
        NamespaceRowsTo {
            own: self.own.map(|(_, table)| table.rows_to(to)),
            shared: self.shared.rows_to(to),
        }
    }
}

impl<'a> NamespaceRowsTo<'a> {
    /// Returns the most specific row of the namespace's own table, or else of the shared one.
    pub(crate) fn from(&self, from: Location<'a>) -> Option<Row<'a>> {
        self.own_from(from).or_else(|| self.shared.from(from))
    }

    pub(crate) fn own_from(&self, from: Location<'a>) -> Option<Row<'a>> {
        self.own.and_then(|own| own.from(from))
    }
}
