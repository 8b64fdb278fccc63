//! Caches encoded lines: of the nodes of a request the previous pod changed one.

use std::{fmt, ops::Range};

use tautline_proto::endpoint_cost::NodeCost;
use tautline_types::nodes::NodeSet;

/// The encoded lines of one kind of request. [Invalidate](Self::invalidate) a node when its line
/// may have changed.
///
/// ```
/// use tautline_sdk::{AnswerCache, CostAnswer, NodeCost};
///
/// fn answer(nodes: &[&str], cache: &mut AnswerCache) -> CostAnswer {
///     let mut answer = CostAnswer::default();
///     for node in nodes {
///         if !answer.push_cached(node, cache) {
///             let cost = 7; // computed only for nodes that are not cached
///             answer.push_and_cache(NodeCost { node, cost, ..NodeCost::default() }, cache);
///         }
///     }
///     answer
/// }
///
/// let mut cache = AnswerCache::default();
/// assert_eq!(answer(&["a", "b"], &mut cache), answer(&["a", "b"], &mut cache));
/// cache.invalidate("a");
/// ```
#[derive(Clone, Default)]
pub struct AnswerCache {
    nodes: NodeSet,
    /// By position; empty for a node without a line.
    at: Vec<Range<usize>>,
    bytes: Vec<u8>,
    dead: usize,
    /// The position of the next node, if the order stays the same.
    next: usize,
}

impl AnswerCache {
    /// Drops a node's line.
    pub fn invalidate(&mut self, node: &str) {
        if let Some(at) = self.nodes.position(node) {
            self.dead += std::mem::take(&mut self.at[at]).len();
        }
    }

    /// Drops all lines.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn find(&mut self, node: &str) -> Option<&[u8]> {
        let at = self.nodes.position_from(self.next, node)?;
        self.next = (at + 1) % self.at.len();
        let line = self.at[at].clone();
        (!line.is_empty()).then(|| &self.bytes[line])
    }

    pub(crate) fn insert(&mut self, node: NodeCost<'_>) -> &[u8] {
        self.invalidate(node.node);
        if self.dead > self.bytes.len() / 2 {
            self.pack();
        }
        let at = self.nodes.insert(node.node);
        let start = self.bytes.len();
        node.put(&mut self.bytes);
        let line = start..self.bytes.len();
        if self.at.len() <= at {
            self.at.resize(at + 1, 0..0);
        }
        self.at[at] = line.clone();
        &self.bytes[line]
    }

    fn pack(&mut self) {
        let mut packed = Self::default();
        for (name, line) in self.nodes.iter().zip(&self.at) {
            if !line.is_empty() {
                packed.nodes.insert(name);
                let start = packed.bytes.len();
                packed.bytes.extend_from_slice(&self.bytes[line.clone()]);
                packed.at.push(start..packed.bytes.len());
            }
        }
        *self = packed;
    }
}

impl fmt::Debug for AnswerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerCache")
            .field("nodes", &self.nodes.len())
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::CostAnswer;

    fn line(node: &str, cost: i64) -> NodeCost<'_> {
        NodeCost {
            node,
            cost,
            detail: &"abcdefgh"[..cost as usize % 8],
            ..NodeCost::default()
        }
    }

    proptest! {
        #[test]
        fn push_cached_gives_the_last_line(
            steps in prop::collection::vec((0..8_usize, 0..4_u8, 0..1000_i64), 0..200)
        ) {
            let names: Vec<String> = (0..8).map(|i| format!("node-{i}")).collect();
            let (mut cache, mut expected) = (AnswerCache::default(), BTreeMap::new());
            for (node, step, cost) in steps {
                let name = names[node].as_str();
                match step {
                    0 => {
                        cache.invalidate(name);
                        expected.remove(name);
                    }
                    1 => {
                        let mut answer = CostAnswer::default();
                        answer.push_and_cache(line(name, cost), &mut cache);
                        prop_assert_eq!(answer.nodes(), vec![line(name, cost)]);
                        expected.insert(name, cost);
                    }
                    _ => {
                        let mut answer = CostAnswer::default();
                        let all = names.iter().cycle().skip(node).take(8);
                        let found = all.filter(|n| answer.push_cached(n, &mut cache));
                        let found: Vec<_> = found.map(|n| line(n, expected[n.as_str()])).collect();
                        prop_assert_eq!(found.len(), expected.len());
                        prop_assert_eq!(answer.nodes(), found);
                    }
                }
                prop_assert!(cache.bytes.len() <= 2 * 8 * 40, "{cache:?}");
            }
        }
    }
}
