//! The tables of ConfigMaps, bounded for untrusted namespaces, so that no tenant can fill the
//! memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tautline_core::TrustedNamespaces;

use super::{
    Tables,
    table::{PairTable, Row, TableError, Unit, rows},
};

const MAX_ROWS: usize = 10_000;
const MAX_ROWS_IN_ALL: usize = 50_000;

#[derive(Clone, Debug)]
pub(crate) struct ConfigMapTables<U> {
    trusted: TrustedNamespaces,
    namespaces: BTreeMap<String, Namespace>,
    changed: BTreeSet<String>,
    tables: Tables<U>,
    rows: usize,
}

#[derive(Clone, Debug, Default)]
struct Namespace {
    maps: BTreeMap<String, MapRows>,
    rows: usize,
}

#[derive(Clone, Debug, Default)]
struct MapRows {
    rows: Vec<(Box<str>, Box<str>, u64)>,
    left_out: usize,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    #[error("ConfigMap {namespace}/{name}, {key}: {error}; the rest of it is left out")]
    Malformed {
        namespace: String,
        name: String,
        key: String,
        error: TableError,
    },
    #[error(
        "ConfigMap {namespace}/{name}: {rows} rows are left out: the tables of a namespace may have {MAX_ROWS} rows; remove some, or list the namespace in --provider-namespaces"
    )]
    NamespaceFull {
        namespace: String,
        name: String,
        rows: usize,
    },
    #[error(
        "namespace {namespace}: all {rows} rows of its tables are left out: namespaces that are not in --provider-namespaces may have {MAX_ROWS_IN_ALL} rows in all, and this one has most; remove some"
    )]
    AllFull { namespace: String, rows: usize },
}

impl<U: Unit> ConfigMapTables<U> {
    pub fn new(trusted: TrustedNamespaces) -> Self {
        Self {
            trusted,
            namespaces: BTreeMap::new(),
            changed: BTreeSet::new(),
            tables: Tables::default(),
            rows: 0,
        }
    }

    pub fn put<'a>(
        &mut self,
        namespace: &str,
        name: &str,
        data: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Vec<MapError> {
        self.remove(namespace, name);
        let bounded = !self.trusted.contains(namespace);
        let entry = self.namespaces.entry(namespace.to_owned()).or_default();
        let room = if bounded {
            MAX_ROWS.saturating_sub(entry.rows)
        } else {
            usize::MAX
        };
        let (map, mut errors) = read::<U>(namespace, name, data, room);
        entry.rows += map.rows.len();
        if bounded {
            self.rows += map.rows.len();
        }
        entry.maps.insert(name.to_owned(), map);
        while self.rows > MAX_ROWS_IN_ALL
            && let Some(error) = self.drop_largest()
        {
            errors.push(error);
        }
        errors
    }

    pub fn remove(&mut self, namespace: &str, name: &str) {
        self.changed.insert(namespace.to_owned());
        let Some(entry) = self.namespaces.get_mut(namespace) else {
            return;
        };
        if let Some(old) = entry.maps.remove(name) {
            entry.rows -= old.rows.len();
            if !self.trusted.contains(namespace) {
                self.rows -= old.rows.len();
            }
        }
        if entry.maps.is_empty() {
            self.namespaces.remove(namespace);
        }
    }

    fn drop_largest(&mut self) -> Option<MapError> {
        let bounded = self.namespaces.iter_mut();
        let bounded = bounded.filter(|(name, _)| !self.trusted.contains(name));
        let (name, largest) = bounded.max_by_key(|(_, n)| n.rows)?;
        for map in largest.maps.values_mut() {
            map.left_out += std::mem::take(&mut map.rows).len();
        }
        let (namespace, rows) = (name.clone(), std::mem::take(&mut largest.rows));
        self.rows -= rows;
        self.changed.insert(namespace.clone());
        Some(MapError::AllFull { namespace, rows })
    }

    /// Returns the current tables. Only the tables of changed namespaces are built again.
    pub fn tables(&mut self) -> Tables<U> {
        let changed = std::mem::take(&mut self.changed);
        let (trusted, own): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|n| self.trusted.contains(n));
        if !trusted.is_empty() {
            let all = self.namespaces.iter();
            let trusted = all.filter(|(name, _)| self.trusted.contains(name));
            self.tables.shared = table(trusted.map(|(_, n)| n));
        }
        for name in own {
            let table = table(self.namespaces.get(&name).into_iter());
            self.tables.set_own(name, table);
        }
        let maps = self.namespaces.values().flat_map(|n| n.maps.values());
        self.tables.left_out = maps.map(|m| m.left_out).sum();
        self.tables.clone()
    }
}

fn read<'a, U: Unit>(
    namespace: &str,
    name: &str,
    data: impl IntoIterator<Item = (&'a str, &'a str)>,
    room: usize,
) -> (MapRows, Vec<MapError>) {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let (mut map, mut errors) = (MapRows::default(), Vec::new());
    for (key, text) in data {
        for row in rows::<U>(text) {
            match row {
                Ok(Row { from, to, value }) if map.rows.len() < room => {
                    map.rows.push((from.into(), to.into(), value));
                }
                Ok(_) => map.left_out += 1,
                Err(error) => errors.push(MapError::Malformed {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    key: key.to_owned(),
                    error,
                }),
            }
        }
    }
    if map.left_out > 0 {
        errors.push(MapError::NamespaceFull {
            namespace,
            name,
            rows: map.left_out,
        });
    }
    (map, errors)
}

fn table<'a, U: Unit>(namespaces: impl Iterator<Item = &'a Namespace>) -> Arc<PairTable<U>> {
    let mut table = PairTable::default();
    for (from, to, value) in namespaces
        .flat_map(|n| n.maps.values())
        .flat_map(|m| &m.rows)
    {
        table.insert(Row {
            from,
            to,
            value: *value,
        });
    }
    Arc::new(table)
}

#[cfg(test)]
mod tests;
