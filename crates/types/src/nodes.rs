//! The node names of one request, which callers find by name or by position.

use std::{
    hash::{BuildHasher, Hasher},
    sync::OnceLock,
};

use hashbrown::{DefaultHashBuilder, HashTable};

/// An ordered set of node names. It takes three allocations, regardless of the number of names.
#[derive(Clone, Debug, Default)]
pub struct NodeSet {
    text: String,
    /// The position in `text` after each name, in bytes.
    ends: Vec<u32>,
    /// The number of bytes between two names.
    gap: usize,
    /// The index by name, built at the first lookup. Many sets never need it, because callers
    /// mostly read lists in the same order.
    index: OnceLock<Index>,
}

#[derive(Clone, Debug, Default)]
struct Index {
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Index {
    fn with_capacity(names: usize) -> Self {
        Self {
            table: HashTable::with_capacity(names),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl NodeSet {
    /// Creates an empty set with room for `names` names of `bytes` bytes in total.
    pub fn with_capacity(names: usize, bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            ends: Vec::with_capacity(names),
            index: OnceLock::from(Index::with_capacity(names)),
            ..Self::default()
        }
    }

    /// Reads a JSON list of names without escapes. `text` is the list between its outer quotes:
    /// `a","b`. A repeated name keeps both positions, and [`Self::position`] returns the first.
    ///
    /// # Errors
    /// The list has more than `max` names; the error is their number.
    pub fn of_plain_list(text: &str, max: usize) -> Result<Self, usize> {
        let mut set = Self {
            text: text.to_owned(),
            gap: "\",\"".len(),
            ..Self::default()
        };
        // Most names take 16 bytes or more with their separator.
        set.ends.reserve((text.len() / 16).min(max) + 1);
        let commas = || memchr::memchr_iter(b',', text.as_bytes());
        let ends = commas().map(|at| at.saturating_sub(1)).chain([text.len()]);
        // Bodies are bounded far below 4 GiB, so offsets fit.
        let ends = ends.map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        set.ends.extend(ends.take(max + 1));
        if set.ends.len() > max {
            Err(commas().count() + 1)
        } else {
            Ok(set)
        }
    }

    /// Adds a name unless it is present, and returns its position.
    pub fn insert(&mut self, name: &str) -> usize {
        if let Some(at) = self.position(name) {
            return at;
        }
        let at = self.ends.len();
        if at > 0 {
            self.text.extend(std::iter::repeat_n(' ', self.gap));
        }
        self.text.push_str(name);
        self.ends
            .push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
        let mut index = self.index.take().unwrap_or_default();
        self.add(&mut index, at);
        self.index = OnceLock::from(index);
        at
    }

    /// Returns the position of `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        let Index { table, hasher } = self.index.get_or_init(|| {
            let mut index = Index::with_capacity(self.len());
            (0..self.len()).for_each(|at| self.add(&mut index, at));
            index
        });
        let found = table.find(hash_of(hasher, name), |at| self.name(*at as usize) == name);
        found.map(|at| *at as usize)
    }

    fn add(&self, Index { table, hasher }: &mut Index, at: usize) {
        let name = self.name(at);
        let of = |at: &u32| self.name(*at as usize);
        let entry = table.entry(
            hash_of(hasher, name),
            |other| of(other) == name,
            |other| hash_of(hasher, of(other)),
        );
        entry.or_insert(u32::try_from(at).unwrap_or(u32::MAX));
    }

    /// Returns the position of `name`, without a lookup if that is `next`: callers mostly read
    /// lists in the same order.
    pub fn position_from(&self, next: usize, name: &str) -> Option<usize> {
        if next < self.len() && self.name(next) == name {
            Some(next)
        } else {
            self.position(name)
        }
    }

    /// Returns the name at a position.
    pub fn name(&self, position: usize) -> &str {
        let start = match position {
            0 => 0,
            _ => self.ends[position - 1] as usize + self.gap,
        };
        let range = start..self.ends[position] as usize;
        self.text.get(range).unwrap_or_default()
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether the set has no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the names, in the order of their positions.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|i| self.name(i))
    }

    /// Returns the approximate size on the heap, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.text.len() + self.ends.len() * 10
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

fn hash_of(hasher: &DefaultHashBuilder, name: &str) -> u64 {
    let mut h = hasher.build_hasher();
    h.write(name.as_bytes());
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_a_list_are_found_at_their_first_positions() {
        let mut set = NodeSet::of_plain_list("a\",\"b\",\"a\",\"\",\"c", 5).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), ["a", "b", "a", "", "c"]);
        assert_eq!(
            ["a", "b", "", "c", "d"].map(|n| set.position(n)),
            [Some(0), Some(1), Some(3), Some(4), None]
        );
        assert_eq!((set.insert("b"), set.insert("d")), (1, 5));
        assert_eq!((set.name(5), set.position("d")), ("d", Some(5)));
        assert_eq!(NodeSet::of_plain_list("a\",\"b\",\"c", 2).unwrap_err(), 3);
    }

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
