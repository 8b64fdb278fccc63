//! Evaluates the topology spread constraints of a pod that has no node yet.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/>

use std::{collections::HashMap, fmt};

use crate::{
    index::Snapshot,
    model::{Node, Pod},
    pod_rules::{PodRules, SpreadConstraint},
    selector::Selector,
};

impl SpreadConstraint {
    fn selects(&self, pod: &Pod) -> bool {
        let selector = self.selector.as_ref();
        selector.is_some_and(|s| s.matches(&pod.labels))
    }

    /// Counts the selected pods on a node, without `except`. As in kube-scheduler, a selector that
    /// is empty counts none.
    fn count(&self, snapshot: &Snapshot, except: &Pod, node: &Node) -> i64 {
        if self.selector.as_ref().is_none_or(Selector::is_empty) {
            return 0;
        }
        let counts = |other: &Pod| {
            other.namespace == except.namespace
                && other.name != except.name
                && !other.terminating
                && self.selects(other)
        };
        let on_node = snapshot.pods_on(&node.name).iter();
        on_node.filter(|other| counts(other)).count() as i64
    }
}

/// The reason why topology spread excludes a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpreadConflict {
    /// The node lacks the label with this topology key.
    NoLabel(Box<str>),
    /// The node's domain has too many pods.
    Skew {
        /// The topology key.
        topology_key: Box<str>,
        /// The constraint's greatest difference.
        max_skew: i64,
    },
}

impl fmt::Display for SpreadConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLabel(key) => write!(f, "no label {key} for topology spread"),
            Self::Skew {
                topology_key,
                max_skew,
            } => write!(
                f,
                "topology spread over {topology_key}: maxSkew {max_skew} exceeded"
            ),
        }
    }
}

/// The numbers of pods in all domains, counted once for all nodes.
#[derive(Debug, Default)]
pub struct TopologySpread<'a>(Vec<Domains<'a>>);

/// The domains of one constraint.
#[derive(Debug)]
struct Domains<'a> {
    constraint: &'a SpreadConstraint,
    /// The number of selected pods by the value of the topology key.
    pods: HashMap<&'a str, i64>,
    /// The number of pods that a domain may have with the new pod.
    limit: i64,
    /// 1 if the constraint selects the new pod itself, else 0.
    own: i64,
}

impl<'a> TopologySpread<'a> {
    /// Counts the pods of all domains. `admits_affinity` and `admits_taints` say whether the pod's
    /// node affinity and tolerations admit a node.
    pub fn new(
        snapshot: &'a Snapshot,
        pod: &Pod,
        rules: &'a PodRules,
        admits_affinity: impl Fn(&Node) -> bool,
        admits_taints: impl Fn(&Node) -> bool,
    ) -> Self {
        let all = &rules.spread;
        if all.is_empty() {
            return Self::default();
        }
        let has_labels = |n: &Node| all.iter().all(|c| n.labels.get(&c.topology_key).is_some());
        let mut pods: Vec<HashMap<&str, i64>> = vec![HashMap::new(); all.len()];
        for node in snapshot.nodes().filter(|node| has_labels(node)) {
            for (constraint, pods) in all.iter().zip(&mut pods) {
                if (constraint.honors_affinity && !admits_affinity(node))
                    || (constraint.honors_taints && !admits_taints(node))
                {
                    continue;
                }
                if let Some(domain) = node.labels.get(&constraint.topology_key) {
                    *pods.entry(domain).or_default() += constraint.count(snapshot, pod, node);
                }
            }
        }
        let domains = all.iter().zip(pods).map(|(constraint, pods)| {
            let least = match pods.len() < constraint.min_domains {
                true => None,
                false => pods.values().min().copied(),
            };
            Domains {
                constraint,
                pods,
                limit: least.unwrap_or_default() + constraint.max_skew,
                own: i64::from(constraint.selects(pod)),
            }
        });
        Self(domains.collect())
    }

    /// Returns the first conflict of the node, if any.
    pub fn conflict(&self, node: &Node) -> Option<SpreadConflict> {
        self.0.iter().find_map(|domains| {
            let key = &domains.constraint.topology_key;
            let Some(domain) = node.labels.get(key) else {
                return Some(SpreadConflict::NoLabel(key.clone()));
            };
            let there = domains.pods.get(domain).copied().unwrap_or_default();
            (there + domains.own > domains.limit).then(|| SpreadConflict::Skew {
                topology_key: key.clone(),
                max_skew: domains.constraint.max_skew,
            })
        })
    }
}

#[cfg(test)]
#[path = "topology_spread_tests.rs"]
mod tests;
