//! Chooses which usable nodes the extender's filter returns to kube-scheduler. If it returns one
//! node, kube-scheduler neither scores nodes nor calls prioritize.

use std::cmp::Reverse;

use crate::{
    index::{RANKED_RESOURCES, Snapshot},
    model::Resources,
    nodes::NodeSet,
    planning::{Plan, fnv1a_64},
};

/// The maximum number of tied nodes in an answer.
pub const MAX_TIES: usize = 64;

/// The choice of usable nodes that filter returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerMode {
    /// The nodes that tie for best, at most [`MAX_TIES`]. With an extender weight above all
    /// plugins' scores, kube-scheduler would choose one of them anyway.
    #[default]
    Ties,
    /// The least allocated of the nodes that tie for best.
    Decisive,
    /// The given number of best nodes; 0 means all usable nodes.
    Shortlist(usize),
}

/// The nodes that filter returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The nodes' positions in the request, ascending.
    pub nodes: Vec<usize>,
    /// The number of nodes that tie for best.
    pub tied: usize,
}

impl Answer {
    /// Chooses nodes from a plan. `seed` (the pod's UID) orders equal nodes, so that pods spread.
    /// `free` returns a higher number for nodes with more free resources.
    pub fn new(
        plan: &Plan,
        nodes: &NodeSet,
        mode: AnswerMode,
        seed: &str,
        free: impl Fn(&str) -> u32,
    ) -> Self {
        let rank = |at: &usize| plan.verdicts[*at].rank();
        // The hash is computed for equal nodes only, as this code runs for every pod.
        let turn = |at: &usize| (fnv1a_64(&[seed, nodes.name(*at)]), nodes.name(*at));
        let Some(best) = plan.usable().map(|at| rank(&at)).min() else {
            return Self::default();
        };
        let ties = || plan.usable().filter(|at| rank(at) == best);
        let tied = ties().count();
        let (mut chosen, most): (Vec<usize>, usize) = match mode {
            AnswerMode::Ties => (ties().collect(), MAX_TIES),
            AnswerMode::Decisive => {
                let one = ties().min_by_key(|at| (Reverse(free(nodes.name(*at))), turn(at)));
                (one.into_iter().collect(), 1)
            }
            AnswerMode::Shortlist(0) => (plan.usable().collect(), usize::MAX),
            AnswerMode::Shortlist(most) => (plan.usable().collect(), most),
        };
        if most < chosen.len() {
            chosen.select_nth_unstable_by(most - 1, |a, b| {
                rank(a).cmp(&rank(b)).then_with(|| turn(a).cmp(&turn(b)))
            });
            chosen.truncate(most);
            chosen.sort_unstable();
        }
        Self {
            nodes: chosen,
            tied,
        }
    }

    /// Returns whether filter returned the node at this position.
    pub fn contains(&self, at: usize) -> bool {
        self.nodes.binary_search(&at).is_ok()
    }
}

/// Returns the mean of a node's free shares of CPU and memory in units of 1/10,000, as if a pod
/// with these requests ran there. This is kube-scheduler's `LeastAllocated` without its defaults
/// for pods without requests.
pub fn least_allocated(snapshot: &Snapshot, node: &str, requests: &Resources) -> u32 {
    let Some(found) = snapshot.node(node) else {
        return 0;
    };
    let mut requested = snapshot.requested_on(node).into_iter();
    let free = RANKED_RESOURCES.map(|resource| {
        let capacity = i128::from(found.allocatable.milli(resource));
        let others = requested.next().unwrap_or_default();
        let used = others + i128::from(requests.milli(resource));
        if capacity > 0 {
            (capacity - used).clamp(0, capacity) * 10_000 / capacity
        } else {
            0
        }
    });
    // Each share is at most 10,000.
    u32::try_from(free.iter().sum::<i128>() / 2).unwrap_or(0)
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
