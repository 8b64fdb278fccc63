//! Whose tables count for whom: the shared table for all workloads, the tables of a
//! namespace for its own workloads only, and there before the shared one.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::{
    places::Place,
    table::{PairTable, Pairs, Row, Towards, Unit},
};

/// The tables of one rule. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tables<U> {
    shared: Arc<PairTable<U>>,
    by_namespace: Arc<HashMap<String, Arc<PairTable<U>>>>,
    /// Rows above the bounds.
    pub(crate) left_out: usize,
}

/// The tables as the workloads of one namespace see them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The namespace, if it has a table of its own, and the table.
    own: Option<(&'a str, &'a Pairs)>,
    shared: &'a Pairs,
}

/// The rows of a view that may concern the ways to one place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewTowards<'a> {
    own: Option<Towards<'a>>,
    shared: Towards<'a>,
}

impl<U: Unit> Tables<U> {
    pub(crate) fn set_shared(&mut self, table: Arc<PairTable<U>>) {
        self.shared = table;
    }

    /// Sets the table of one namespace; an empty one is as none.
    pub(crate) fn set_own(&mut self, namespace: String, table: Arc<PairTable<U>>) {
        let by_namespace = Arc::make_mut(&mut self.by_namespace);
        match table.is_empty() {
            true => by_namespace.remove(&namespace),
            false => by_namespace.insert(namespace, table),
        };
    }

    #[cfg(test)]
    pub(crate) fn shared_len(&self) -> usize {
        self.shared.len()
    }

    #[cfg(test)]
    pub(crate) fn own_len(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).map_or(0, |t| t.len())
    }

    /// `None` is for workloads whose namespace is not known, and for reports.
    pub(crate) fn for_namespace(&self, namespace: Option<&str>) -> View<'_> {
        let own = namespace.and_then(|n| self.by_namespace.get_key_value(n));
        View {
            own: own.map(|(namespace, table)| (namespace.as_str(), table.pairs())),
            shared: self.shared.pairs(),
        }
    }
}

impl<U: Unit> From<PairTable<U>> for Tables<U> {
    /// A table that counts for all namespaces.
    fn from(shared: PairTable<U>) -> Self {
        Self {
            shared: Arc::new(shared),
            ..Self::default()
        }
    }
}

impl<'a> View<'a> {
    /// The namespace whose own table is in the view.
    pub(crate) fn owner(self) -> Option<&'a str> {
        self.own.map(|(namespace, _)| namespace)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.shared.is_empty() && self.own.is_none()
    }

    /// For many questions about the ways to one place.
    pub(crate) fn towards(self, to: Place<'a>) -> ViewTowards<'a> {
        ViewTowards {
            own: self.own.map(|(_, pairs)| pairs.towards(to)),
            shared: self.shared.towards(to),
        }
    }
}

impl<'a> ViewTowards<'a> {
    /// The most specific row of the namespace's own table, else of the shared one.
    pub(crate) fn from(&self, from: Place<'a>) -> Option<Row<'a>> {
        self.own_from(from).or_else(|| self.shared.from(from))
    }

    /// The same of the namespace's own table alone.
    pub(crate) fn own_from(&self, from: Place<'a>) -> Option<Row<'a>> {
        self.own.and_then(|own| own.from(from))
    }
}
