//! A copy-on-write map: many readers hold snapshots while one writer changes it.

use std::{
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use hashbrown::{DefaultHashBuilder, HashMap};

/// The mean number of entries per shard at which the number of shards grows.
const FULL_SHARD_ENTRIES: usize = 16;
/// The factor by which the number of shards grows.
const SHARD_GROWTH_FACTOR: usize = 4;
const MAX_SHARDS: usize = 256;

type Shard<V> = Arc<HashMap<Arc<str>, V>>;

/// A copy-on-write map. A clone costs one reference count. The first write to a shard after it
/// copies about sixteen entries, or 1/256 of a large map, and at most 256 references.
#[derive(Clone, Debug)]
pub struct CowMap<V> {
    shards: Arc<[Shard<V>]>,
    hasher: DefaultHashBuilder,
    len: usize,
}

impl<V> Default for CowMap<V> {
    fn default() -> Self {
        Self {
            shards: Arc::new([Shard::default()]),
            hasher: DefaultHashBuilder::default(),
            len: 0,
        }
    }
}

impl<V: Clone> CowMap<V> {
    /// Returns the position of a key's shard.
    fn place(&self, key: &str) -> usize {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key.as_bytes());
        // The shard's own table uses the lowest and the highest bits; take bits in between.
        (hasher.finish() >> 32) as usize % self.shards.len()
    }

    fn shard(&self, key: &str) -> &Shard<V> {
        &self.shards[self.place(key)]
    }

    fn shard_mut(&mut self, key: &str) -> &mut HashMap<Arc<str>, V> {
        let place = self.place(key);
        Arc::make_mut(&mut Arc::make_mut(&mut self.shards)[place])
    }

    fn grow(&mut self) {
        let count = self.shards.len();
        if self.len < FULL_SHARD_ENTRIES * count || count >= MAX_SHARDS {
            return;
        }
        let more = vec![Shard::default(); SHARD_GROWTH_FACTOR * count].into();
        let old = std::mem::replace(&mut self.shards, more);
        for (key, value) in old.iter().flat_map(|shard| shard.iter()) {
            self.shard_mut(key).insert(Arc::clone(key), value.clone());
        }
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.shard(key).get(key)
    }

    /// Returns the value of `key` for a change in place; copies its shard if a snapshot shares it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.shard(key).get(key)?;
        self.shard_mut(key).get_mut(key)
    }

    /// Sets the value of `key`; returns the previous one.
    pub fn insert(&mut self, key: &str, value: V) -> Option<V> {
        self.grow();
        let shard = self.shard_mut(key);
        let old = match shard.get_mut(key) {
            Some(slot) => Some(std::mem::replace(slot, value)),
            None => shard.insert(key.into(), value),
        };
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes `key`; returns its value.
    pub fn remove(&mut self, key: &str) -> Option<V> {
        // Removing an absent key must not copy.
        self.shard(key).get(key)?;
        let old = self.shard_mut(key).remove(key);
        self.len -= usize::from(old.is_some());
        old
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        let entries = self.shards.iter().flat_map(|s| s.iter());
        entries.map(|(k, v)| (&**k, v))
    }

    /// Returns the entries that may differ from `earlier`, as key, old value and new value. They
    /// include unchanged entries of changed shards. If `earlier` is an ancestor, the cost grows
    /// with the number of writes in between, or with the size of the map if `earlier` has fewer
    /// shards.
    pub fn diff<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> impl Iterator<Item = (&'a str, Option<&'a V>, Option<&'a V>)> {
        fn touched<'a, V>(
            of: &'a CowMap<V>,
            than: &'a CowMap<V>,
        ) -> impl Iterator<Item = (&'a str, &'a V)> {
            let alike = of.shards.len() == than.shards.len();
            let is_shared = move |i: usize, shard| alike && Arc::ptr_eq(shard, &than.shards[i]);
            let shards = of.shards.iter().enumerate();
            shards
                .filter(move |(i, shard)| !is_shared(*i, shard))
                .flat_map(|(_, shard)| shard.iter())
                .map(|(k, v)| (&**k, v))
        }
        let here = touched(self, earlier).map(|(k, v)| (k, earlier.get(k), Some(v)));
        let gone = touched(earlier, self)
            .filter(|(k, _)| self.get(k).is_none())
            .map(|(k, v)| (k, Some(v), None));
        here.chain(gone)
    }

    /// All keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.shards.iter().flat_map(|s| s.keys())
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, v)| v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn cow_map_behaves_like_a_map(ops in proptest::collection::vec((any::<bool>(), "[a-j]{1,2}", 0..9u8), 0..200)) {
            let (mut cow, mut map) = (CowMap::default(), BTreeMap::new());
            let mut copies: Vec<(CowMap<u8>, BTreeMap<String, u8>)> = Vec::new();
            for (insert, key, value) in ops {
                if insert {
                    prop_assert_eq!(cow.insert(&key, value), map.insert(key, value));
                } else {
                    prop_assert_eq!(cow.remove(&key), map.remove(&key));
                }
                copies.push((cow.clone(), map.clone()));
            }
            for pair in copies.windows(2) {
                let [(before, was), (after, is)] = pair else { continue };
                let mut patched = was.clone();
                for (key, old, new) in after.diff(before) {
                    prop_assert_eq!(old, was.get(key));
                    match new {
                        Some(new) => patched.insert(key.to_owned(), *new),
                        None => patched.remove(key),
                    };
                }
                prop_assert_eq!(&patched, is);
            }
            for (cow, map) in copies {
                let seen: BTreeMap<String, u8> = cow.iter().map(|(k, v)| (k.to_owned(), *v)).collect();
                prop_assert_eq!(cow.len(), map.len());
                prop_assert_eq!(seen, map);
            }
        }
    }
}
