//! Matches the terms of a node affinity with nodes.

use crate::{
    model::{AffinityTerm, Node},
    selector::Selector,
};

impl AffinityTerm {
    /// Returns whether the term matches a node. A term without any expression matches nothing, as
    /// in Kubernetes.
    pub fn matches(&self, node: &Node) -> bool {
        let selector = Selector {
            match_expressions: self.labels.clone(),
            ..Selector::default()
        };
        let empty = self.labels.is_empty() && self.compare.is_empty() && self.names.is_empty();
        !empty
            && selector.matches(&node.labels)
            && self.compare.iter().all(|(key, greater, bound)| {
                let value = node.labels.get(key).and_then(|v| v.parse::<i64>().ok());
                value.is_some_and(|v| if *greater { v > *bound } else { v < *bound })
            })
            && self
                .names
                .iter()
                .all(|(within, names)| names.iter().any(|n| **n == *node.name) == *within)
    }
}
