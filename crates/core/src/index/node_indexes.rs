//! Numbers the cluster's nodes by small indexes, so that tables of costs need no names.

use std::{
    collections::VecDeque,
    hash::BuildHasher,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::Snapshot;
use crate::{cow_map::CowMap, model::Node, nodes::NodeSet};

/// The time before the index of a deleted node is given to another node: requests that use the old
/// index have ended by then.
const INDEX_REUSE_DELAY: Duration = Duration::from_secs(60);

/// An index for each node of the cluster.
#[derive(Debug, Default)]
pub struct NodeIndexes {
    nodes: CowMap<Arc<Node>>,
    /// The name of each index's node; `None` if the index is unused.
    names: Vec<Option<Arc<str>>>,
    /// The hash of each node's name, and the node's index.
    by_hash: HashTable<(u64, u32)>,
    hasher: DefaultHashBuilder,
    unused: VecDeque<(Instant, u32)>,
}

/// The indexes that were removed and added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexChanges {
    /// The indexes of deleted nodes.
    pub removed: Vec<u32>,
    /// The indexes and names of new nodes.
    pub added: Vec<(u32, Arc<str>)>,
}

impl IndexChanges {
    /// Returns whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }
}

impl NodeIndexes {
    /// Follows the nodes of a snapshot; returns the changes. The cost grows with the number of
    /// writes since the previous snapshot.
    pub fn sync(&mut self, snapshot: &Snapshot, now: Instant) -> IndexChanges {
        let mut changes = IndexChanges::default();
        let before = mem::replace(&mut self.nodes, snapshot.nodes.clone());
        for (name, _, new) in snapshot.nodes.diff(&before) {
            match new {
                Some(node) if self.find(name).is_none() => {
                    let index = self.add(&node.name, now);
                    changes.added.push((index, Arc::clone(&node.name)));
                }
                Some(_) => {}
                None => {
                    if let Some(index) = self.remove(name) {
                        self.unused.push_back((now, index));
                        changes.removed.push(index);
                    }
                }
            }
        }
        changes
    }

    fn add(&mut self, name: &Arc<str>, now: Instant) -> u32 {
        let index = match self.unused.front() {
            Some((since, index)) if now >= *since + INDEX_REUSE_DELAY => {
                let index = *index;
                self.unused.pop_front();
                index
            }
            _ => {
                self.names.push(None);
                // A cluster has far fewer than 2^32 nodes.
                u32::try_from(self.names.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.names[index as usize] = Some(Arc::clone(name));
        let hash = self.hasher.hash_one(&**name);
        self.by_hash
            .insert_unique(hash, (hash, index), |(hash, _)| *hash);
        index
    }

    fn remove(&mut self, name: &str) -> Option<u32> {
        let index = self.find(name)?;
        let hash = self.hasher.hash_one(name);
        let entry = self.by_hash.find_entry(hash, |(_, of)| *of == index);
        entry.ok()?.remove();
        self.names[index as usize] = None;
        Some(index)
    }

    fn has_name(&self, index: u32, name: &str) -> bool {
        self.names[index as usize].as_deref() == Some(name)
    }

    fn find(&self, name: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        let found = self.by_hash.find(hash, |(_, of)| self.has_name(*of, name));
        found.map(|(_, index)| *index)
    }

    /// Returns the indexes and names of all nodes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Arc<str>)> {
        let names = (0..).zip(&self.names);
        names.filter_map(|(index, name)| Some((index, name.as_ref()?)))
    }

    /// Returns the index of each node, by position; `None` if any node is unknown.
    pub fn of(&self, nodes: &NodeSet) -> Option<Vec<u32>> {
        // The names that belong to the hashes are not in the processor's cache. They are compared
        // in a loop of their own, in which the processor loads several names at a time.
        let likely = |name: &str| {
            let hash = self.hasher.hash_one(name);
            let found = self.by_hash.find(hash, |(of, _)| *of == hash);
            found.map(|(_, index)| *index)
        };
        let mut indexes: Vec<u32> = nodes.iter().map(likely).collect::<Option<_>>()?;
        for (index, name) in indexes.iter_mut().zip(nodes.iter()) {
            if !self.has_name(*index, name) {
                *index = self.find(name)?;
            }
        }
        Some(indexes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Index, Kind, Object};

    fn node(name: &str) -> Object {
        Object::Node(Node {
            name: name.into(),
            ..Node::default()
        })
    }

    #[test]
    fn indexes_follow_the_nodes_and_rest_before_they_return() {
        let (mut index, mut indexes) = (Index::default(), NodeIndexes::default());
        let now = Instant::now();
        let mut sync = |index: &Index, at| {
            let changes = indexes.sync(&index.snapshot(), at);
            let of = |names: &[&str]| indexes.of(&names.iter().copied().collect());
            (changes, of(&["a"]), of(&["a", "b"]))
        };
        index.apply(node("a"));
        let (changes, a, both) = sync(&index, now);
        assert_eq!(changes.added, [(0, "a".into())]);
        assert_eq!((a, both), (Some(vec![0]), None));
        assert!(sync(&index, now).0.is_empty());
        index.delete(Kind::Node, "a");
        index.apply(node("b"));
        let (changes, a, _) = sync(&index, now);
        assert_eq!(
            (changes.removed, changes.added),
            (vec![0], vec![(1, "b".into())])
        );
        assert_eq!(a, None);
        index.apply(node("a"));
        assert_eq!(sync(&index, now).2, Some(vec![2, 1]));
        index.delete(Kind::Node, "a");
        sync(&index, now);
        index.apply(node("c"));
        assert_eq!(
            sync(&index, now + INDEX_REUSE_DELAY).0.added,
            [(0, "c".into())]
        );
    }
}
