//! Lines of answers that are made once. kube-scheduler asks about hundreds of nodes
//! for each pod, of which the pod before has changed one; it asks in the same order,
//! so what is kept is read as it lies in memory.

use std::{fmt, ops::Range};

use tautline_core::nodes::NodeSet;
use tautline_proto::endpoint_cost::NodeCost;

/// What nodes said to one question, for as long as they say so: see
/// [`CostAnswer::push_kept`](crate::CostAnswer::push_kept). Whose line may have changed
/// is to be [forgotten](Lines::forget).
#[derive(Clone, Default)]
pub struct AnswerCache {
    nodes: NodeSet,
    /// By the nodes' positions; empty: nothing is kept.
    at: Vec<Range<usize>>,
    bytes: Vec<u8>,
    /// Bytes that no line needs any more.
    dead: usize,
    /// The node that is asked next, if the order is kept.
    next: usize,
}

impl AnswerCache {
    /// Keeps nothing of the node.
    pub fn invalidate(&mut self, node: &str) {
        if let Some(at) = self.nodes.position(node) {
            self.dead += std::mem::take(&mut self.at[at]).len();
        }
    }

    /// Keeps nothing.
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

    /// Without what is not needed any more, the names of forgotten nodes among it.
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
        f.debug_struct("Lines")
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
        /// Answers of kept lines are those of lines made afresh, in any order, and
        /// what is kept does not grow without bound.
        #[test]
        fn kept_is_what_was_said(
            steps in prop::collection::vec((0..8_usize, 0..4_u8, 0..1000_i64), 0..200)
        ) {
            let names: Vec<String> = (0..8).map(|i| format!("node-{i}")).collect();
            let (mut kept, mut said) = (AnswerCache::default(), BTreeMap::new());
            for (node, step, cost) in steps {
                let name = names[node].as_str();
                match step {
                    0 => {
                        kept.invalidate(name);
                        said.remove(name);
                    }
                    1 => {
                        let mut answer = CostAnswer::default();
                        answer.push_and_cache(line(name, cost), &mut kept);
                        prop_assert_eq!(answer.nodes(), vec![line(name, cost)]);
                        said.insert(name, cost);
                    }
                    _ => {
                        let mut answer = CostAnswer::default();
                        let all = names.iter().cycle().skip(node).take(8);
                        let found = all.filter(|n| answer.push_cached(n, &mut kept));
                        let found: Vec<_> = found.map(|n| line(n, said[n.as_str()])).collect();
                        prop_assert_eq!(found.len(), said.len());
                        prop_assert_eq!(answer.nodes(), found);
                    }
                }
                prop_assert!(kept.bytes.len() <= 2 * 8 * 40, "{kept:?}");
            }
        }
    }
}
