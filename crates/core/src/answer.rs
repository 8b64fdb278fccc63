//! The usable nodes that filter returns to kube-scheduler. If it returns one node, kube-scheduler
//! neither scores nor calls prioritize.

use std::cmp::Reverse;

use crate::{
    index::{RANKED, Snapshot},
    model::Resources,
    nodes::NodeSet,
    planning::{Plan, fnv1a_64},
};

/// Maximum number of tied nodes in an answer.
pub const MAX_TIES: usize = 64;

/// Which of the usable nodes filter returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerMode {
    /// The nodes that tie for best, at most [`MAX_TIES`]. With an extender weight above all
    /// plugins' scores, kube-scheduler would choose one of these anyway.
    #[default]
    Ties,
    /// One of the nodes that tie for best: the least allocated.
    Decisive,
    /// This many of the best nodes; 0 means all.
    Shortlist(usize),
}

/// The nodes that filter returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Positions in the request, ascending.
    pub nodes: Vec<usize>,
    /// The number of nodes that tie for best.
    pub tied: usize,
}

impl Answer {
    /// Chooses from a plan. `seed` (the pod's UID) orders equal nodes, so that pods spread.
    /// `free` is higher for nodes with more free resources.
    pub fn new(
        plan: &Plan,
        nodes: &NodeSet,
        mode: AnswerMode,
        seed: &str,
        free: impl Fn(&str) -> u32,
    ) -> Self {
        let rank = |at: &usize| plan.verdicts[*at].rank();
        // Hashed for ties only: this runs for every pod.
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

    /// Whether filter returned the node at this position.
    pub fn contains(&self, at: usize) -> bool {
        self.nodes.binary_search(&at).is_ok()
    }
}

/// The free part of a node's CPU and memory once it has a pod with these requests, as the mean in
/// 1/10,000: kube-scheduler's `LeastAllocated`, without its defaults for pods without requests.
pub fn least_allocated(snapshot: &Snapshot, node: &str, requests: &Resources) -> u32 {
    let Some(found) = snapshot.node(node) else {
        return 0;
    };
    let mut requested = snapshot.requested_on(node).into_iter();
    let free = RANKED.map(|resource| {
        let capacity = i128::from(found.allocatable.milli(resource));
        let others = requested.next().unwrap_or_default();
        let used = others + i128::from(requests.milli(resource));
        match capacity > 0 {
            true => (capacity - used).clamp(0, capacity) * 10_000 / capacity,
            false => 0,
        }
    });
    // Each is at most 10,000.
    u32::try_from(free.iter().sum::<i128>() / 2).unwrap_or(0)
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
