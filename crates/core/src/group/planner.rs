//! Plans the places of a group: a node for every member, so that Kubernetes' rules, the providers'
//! room and the limits between the members all hold.
//!
//! The search starts from many nodes. From each it places one member after another, on the node
//! that leaves the other members the most room within the limits of all placed members. If no start leads
//! to a complete plan, it goes back on its choices. The number of steps is bounded.

mod matrix;
mod search;
mod state;
mod tables;

use std::{cmp::Reverse, sync::Arc};

pub use matrix::{Matrix, MatrixBuilder};

use crate::{
    index::Snapshot,
    model::Pod,
    node_filter::{NodeFilter, UnschedulableReason},
};
use search::Search;
use state::State;
use tables::Tables;

/// The members of a group, and the costs and limits of their places.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// The cluster. No member has a node in it.
    pub snapshot: &'a Snapshot,
    /// The members, in the order of their names.
    pub members: Vec<Member>,
    /// The names of the candidates; positions in all tables are positions in this list.
    pub nodes: Vec<Arc<str>>,
    /// The shapes of the members.
    pub shapes: Vec<Shape>,
    /// The rules between members. Shapes without a pair have no rule between them; if two shapes
    /// have several pairs, all count.
    pub pairs: Vec<Pair>,
}

/// A pod of the group that has no node yet.
#[derive(Clone, Debug)]
pub struct Member {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The position of the member's shape.
    pub shape: usize,
}

/// Members that all rules treat alike: they have the same offers, requests, constraints on nodes,
/// and labels that selectors match.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The normalized cost of a member by its node, without the other members; `None` if a rule
    /// refuses the node.
    pub alone: Vec<Option<u64>>,
    /// The sum of the weights of the rules in `alone`, relative to [`Matrix::weight`].
    pub weight: u32,
    /// The number of members of this shape that the providers admit, by node; `u32::MAX` if no
    /// provider counts pods. Members of several shapes share a node's room by parts.
    pub room: Vec<u32>,
}

/// The rules between every member of one shape and every other member of another, or the same.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The position of the shape whose members' nodes are the matrix's rows.
    pub of: usize,
    /// The position of the shape whose members' nodes are the matrix's columns.
    pub other: usize,
    /// The costs by both nodes. Within one shape each two members count in both directions.
    pub costs: Arc<Matrix>,
}

/// The places of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The position of each member's node; `None` for a member without a place.
    pub places: Vec<Option<usize>>,
    /// The mean normalized cost of the placed members. The mean over all pairs of members counts
    /// for each member, by the rules' weights.
    pub mean_cost: u64,
    /// The number of nodes that get members.
    pub nodes_used: usize,
    /// The number of steps that the search took: looks at a node for one shape.
    pub steps: usize,
    /// The causes that stop the first member without a place; `None` if the plan is complete.
    pub stopped_by: Option<Stop>,
}

impl Plan {
    /// Returns whether all members have a place.
    pub fn is_complete(&self) -> bool {
        self.stopped_by.is_none()
    }

    /// Returns the number of members that have a place.
    pub fn placed(&self) -> usize {
        self.places.iter().flatten().count()
    }
}

/// The causes that exclude a member from all nodes while the placed members keep their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The position of the member.
    pub member: usize,
    /// The causes with their numbers of nodes, the most frequent first.
    pub causes: Vec<(Cause, usize)>,
}

/// The cause that excludes a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The snapshot does not have the node.
    NoNode,
    /// A rule of the member refuses the node, also without the other members.
    OwnRule,
    /// A rule of Kubernetes excludes the node.
    Kubernetes(UnschedulableReason),
    /// The providers have no more room on the node.
    Room,
    /// A limit between members is exceeded.
    PairLimit,
    /// The search ended before it tried the node.
    NotTried,
}

/// Finds a node for every member: the complete plan with the lowest mean cost that was found, or
/// else the plan with the most members. The search takes about `max_steps` steps at most, and at
/// least one attempt. Equal problems have equal plans.
pub fn plan(problem: &Problem<'_>, max_steps: usize) -> Plan {
    let tables = Tables::new(problem);
    let mut search = Search::new(&tables, max_steps);
    let root = State::new(&tables);
    let found = search.complete(&root);
    let state = found.unwrap_or_else(|| search.largest(&root));
    Plan {
        mean_cost: mean_cost(problem, &state.places),
        nodes_used: state.used.iter().filter(|used| **used > 0).count(),
        steps: search.steps,
        stopped_by: stop(&tables, &state),
        places: state.places,
    }
}

/// Returns the mean normalized cost of the placed members.
fn mean_cost(problem: &Problem<'_>, places: &[Option<usize>]) -> u64 {
    let placed = || {
        let members = problem.members.iter().zip(places);
        members.filter_map(|(member, at)| Some((member.shape, (*at)?)))
    };
    let (mut alone, mut weights) = (0_u128, 0_u128);
    for (shape, at) in placed() {
        let Shape {
            alone: costs,
            weight,
            ..
        } = &problem.shapes[shape];
        alone += u128::from(costs[at].unwrap_or_default()) * u128::from(*weight);
        weights += u128::from(*weight);
    }
    // Members of one shape on one node have equal costs.
    let mut spots: Vec<((usize, usize), u128)> = Vec::new();
    let mut sorted: Vec<(usize, usize)> = placed().collect();
    sorted.sort_unstable();
    for spot in sorted {
        match spots.last_mut() {
            Some((last, count)) if *last == spot => *count += 1,
            _ => spots.push((spot, 1)),
        }
    }
    let (mut pairs, mut pair_weights, mut pair_count) = (0_u128, 0_u128, 0_u128);
    for Pair { of, other, costs } in &problem.pairs {
        let is_of = |shape: usize| move |(spot, _): &&((usize, usize), u128)| spot.0 == shape;
        for (a, count) in spots.iter().filter(is_of(*of)) {
            for (b, others) in spots.iter().filter(is_of(*other)) {
                let ordered = count * (others - u128::from(a == b));
                let cost = costs.get(a.1, b.1).unwrap_or_default();
                pairs += u128::from(cost) * u128::from(costs.weight()) * ordered;
                pair_weights += u128::from(costs.weight()) * ordered;
                pair_count += ordered;
            }
        }
    }
    // The pairs together weigh as much as if each member had their mean cost.
    let members = placed().count() as u128;
    let scale = pair_count.max(1);
    let weights = weights * scale + pair_weights * members;
    let costs = alone
        .saturating_mul(scale)
        .saturating_add(pairs.saturating_mul(members));
    u64::try_from(costs / weights.max(1)).unwrap_or(u64::MAX)
}

/// Returns the causes that stop the first member without a place.
fn stop(tables: &Tables<'_>, state: &State) -> Option<Stop> {
    let member = state.places.iter().position(Option::is_none)?;
    let Problem { members, pairs, .. } = tables.problem;
    let Member { pod, shape } = &members[member];
    let placed: Vec<(&Member, usize)> = members
        .iter()
        .zip(&state.places)
        .filter_map(|(member, at)| Some((member, (*at)?)))
        .collect();
    let is_over = |pair: &Pair, other: usize, at: usize, i: usize| {
        let there = (pair.of, pair.other) == (*shape, other);
        let back = (pair.other, pair.of) == (*shape, other);
        (there && pair.costs.get(at, i).is_none()) || (back && pair.costs.get(i, at).is_none())
    };
    let is_over = |at: usize| {
        let mut placed = placed.iter();
        placed.any(|(other, i)| pairs.iter().any(|pair| is_over(pair, other.shape, at, *i)))
    };
    let place = |snapshot: Snapshot, (member, at): &(&Member, usize)| {
        snapshot.with_placed(&member.pod, &tables.problem.nodes[*at])
    };
    let snapshot = placed.iter().fold(tables.problem.snapshot.clone(), place);
    let filter = NodeFilter::new(&snapshot, pod);
    let mut causes: Vec<(Cause, usize)> = Vec::new();
    for (at, node) in tables.nodes.iter().enumerate() {
        let cause = match (&tables.refused[*shape][at], node) {
            (Some(cause), _) => cause.clone(),
            _ if is_over(at) => Cause::PairLimit,
            (_, Some(node)) => match filter.reason(node) {
                Some(reason) => Cause::Kubernetes(reason),
                None if state.is_full(tables, *shape, at) => Cause::Room,
                None => Cause::NotTried,
            },
            (_, None) => Cause::NoNode,
        };
        match causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, count)) => *count += 1,
            None => causes.push((cause, 1)),
        }
    }
    causes.sort_by_key(|(_, count)| Reverse(*count));
    Some(Stop { member, causes })
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
