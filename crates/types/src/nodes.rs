//! The nodes of one request, by name and by position.

use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

/// An ordered set of node names in three allocations, regardless of their number.
#[derive(Clone, Debug, Default)]
pub struct NodeSet {
    text: String,
    ends: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl NodeSet {
    /// An empty set with room for `names` names of `bytes` bytes in total.
    pub fn with_capacity(names: usize, bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            ends: Vec::with_capacity(names),
            table: HashTable::with_capacity(names),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Adds a name, unless it is present; returns its position.
    pub fn insert(&mut self, name: &str) -> usize {
        let hash = self.hash(name);
        if let Some(i) = self.find(hash, name) {
            return i;
        }
        let at = self.ends.len();
        self.text.push_str(name);
        // Bodies are bounded far below 4 GiB, so positions and offsets fit.
        self.ends
            .push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
        let Self {
            text,
            ends,
            table,
            hasher,
        } = self;
        table.insert_unique(hash, u32::try_from(at).unwrap_or(u32::MAX), |i| {
            hash_of(hasher, slice(text, ends, *i as usize))
        });
        at
    }

    /// The position of `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.find(self.hash(name), name)
    }

    /// The position of `name`, without a lookup if it is `next`: lists mostly keep their order.
    pub fn position_from(&self, next: usize, name: &str) -> Option<usize> {
        match next < self.len() && self.name(next) == name {
            true => Some(next),
            false => self.position(name),
        }
    }

    /// The name at a position.
    pub fn name(&self, position: usize) -> &str {
        slice(&self.text, &self.ends, position)
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The names, by position.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|i| self.name(i))
    }

    /// Approximate size in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.text.len() + self.ends.len() * 10
    }

    fn find(&self, hash: u64, name: &str) -> Option<usize> {
        self.table
            .find(hash, |i| self.name(*i as usize) == name)
            .map(|i| *i as usize)
    }

    fn hash(&self, name: &str) -> u64 {
        hash_of(&self.hasher, name)
    }
}

impl<'a> FromIterator<&'a str> for NodeSet {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut set = Self::default();
        for name in names {
            set.insert(name);
        }
        set
    }
}

fn slice<'a>(text: &'a str, ends: &[u32], i: usize) -> &'a str {
    let start = if i == 0 { 0 } else { ends[i - 1] as usize };
    &text[start..ends[i] as usize]
}

fn hash_of(hasher: &DefaultHashBuilder, name: &str) -> u64 {
    let mut h = hasher.build_hasher();
    h.write(name.as_bytes());
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn node_set_names_and_positions_agree(names in proptest::collection::vec("[a-c]{0,3}", 0..40)) {
            let set: NodeSet = names.iter().map(String::as_str).collect();
            let mut unique: Vec<&str> = Vec::new();
            for n in &names { if !unique.contains(&n.as_str()) { unique.push(n); } }
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), unique.clone());
            for (i, n) in unique.iter().enumerate() {
                prop_assert_eq!(set.position(n), Some(i));
                for next in 0..=unique.len() {
                    prop_assert_eq!(set.position_from(next, n), Some(i));
                }
            }
            prop_assert_eq!(set.position("zz"), None);
        }
    }
}
