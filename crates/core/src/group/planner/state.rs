//! A partial placement, and the room that it leaves.

use std::cmp::Reverse;

use super::tables::{Tables, WHOLE_ROOM};
use crate::{index::Snapshot, node_filter::NodeFilter};

/// The fixed-point number 1 of the ratio between room and members.
const SLACK_ONE: u64 = 1 << 10;

/// The number of updates of a node's room that take as long as a step.
const UPDATES_PER_STEP: usize = 8;

/// The criterion after the number of members that keep a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefers {
    /// The lowest cost.
    Cost,
    /// The most room for the members that have no place yet.
    Room,
}

/// The places of some members, and the nodes of the rest within the limits of all placed members.
#[derive(Clone)]
pub(super) struct State {
    /// The node of each member.
    pub places: Vec<Option<usize>>,
    /// The number of members of each shape without a place.
    pub left: Vec<usize>,
    /// The number of placed members by node.
    pub used: Vec<u32>,
    /// The free amounts by node and resource.
    free: Vec<i64>,
    /// The used part of each node's room at the providers.
    share: Vec<u64>,
    /// The nodes of each shape that have a capacity.
    pub open: Vec<Vec<usize>>,
    /// The number of members that fit on each node within the limits of the placed members, by shape
    /// and node; at most the number of members.
    capacity: Vec<Vec<u32>>,
    /// The sum of each shape's capacities.
    total: Vec<u64>,
    /// For a shape and another one with a link, by node: the other one's capacity within the limits
    /// of a member there.
    reach: Vec<Vec<u32>>,
    /// Short costs between a member and all placed ones, by shape and node.
    pair_cost: Vec<Vec<u64>>,
    scene: Option<Snapshot>,
}

/// The rank of a choice: the lowest is best.
type Rank = (Reverse<u64>, Reverse<u64>, u128, bool, u64, usize);

impl State {
    pub fn new(tables: &Tables<'_>) -> Self {
        let (shapes, nodes) = (tables.shapes(), tables.nodes.len());
        let mut state = Self {
            places: vec![None; tables.problem.members.len()],
            left: tables.members.iter().map(Vec::len).collect(),
            used: vec![0; nodes],
            free: free_amounts(tables),
            share: vec![0; nodes],
            open: vec![Vec::new(); shapes],
            capacity: vec![vec![0; nodes]; shapes],
            total: vec![0; shapes],
            reach: vec![Vec::new(); shapes * shapes],
            pair_cost: vec![vec![0; nodes]; shapes],
            scene: tables.scene.clone(),
        };
        for t in 0..shapes {
            for j in (0..nodes).filter(|j| tables.refused[t][*j].is_none()) {
                let capacity = state.fitting(tables, t, j, None);
                state.capacity[t][j] = capacity;
                state.total[t] += u64::from(capacity);
            }
            state.open[t] = (0..nodes).filter(|j| state.capacity[t][*j] > 0).collect();
        }
        for (s, t) in (0..shapes).flat_map(|s| (0..shapes).map(move |t| (s, t))) {
            let Some(link) = tables.link(s, t) else {
                continue;
            };
            let mut reach = vec![0; nodes];
            for i in &state.open[s] {
                let allowed = state.open[t].iter().filter(|j| link.allows(*i, **j));
                reach[*i] = allowed.map(|j| state.capacity[t][*j]).sum();
            }
            state.reach[s * shapes + t] = reach;
        }
        state
    }

    pub fn is_done(&self) -> bool {
        self.left.iter().all(|left| *left == 0)
    }

    /// Returns the shapes with members that have no place.
    fn unfinished(&self) -> Vec<usize> {
        let all = 0..self.left.len();
        all.filter(|s| self.left[*s] > 0).collect()
    }

    pub fn placed(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Returns the number of members of `shape` that fit on the node, after one of `after` if
    /// given; at most the number of members.
    fn fitting(&self, tables: &Tables<'_>, shape: usize, at: usize, after: Option<usize>) -> u32 {
        let count = tables.resources.len();
        let free = &self.free[at * count..][..count];
        let mut fitting = tables.members[shape].len() as i64;
        for (resource, request) in tables.requests[shape].iter().enumerate() {
            if *request > 0 {
                let taken = after.map_or(0, |s| tables.requests[s][resource]);
                fitting = fitting.min((free[resource] - taken) / request);
            }
        }
        let taken = after.map_or(0, |s| tables.shares[s][at]);
        let rest = WHOLE_ROOM.saturating_sub(self.share[at].saturating_add(taken));
        if let Some(admitted) = rest.checked_div(tables.shares[shape][at]) {
            fitting = fitting.min(i64::try_from(admitted).unwrap_or(i64::MAX));
        }
        let is_alone = tables.link(shape, shape).is_some_and(|l| !l.allows(at, at));
        fitting = fitting.min(if is_alone { 1 } else { i64::MAX });
        u32::try_from(fitting).unwrap_or_default()
    }

    /// Returns whether the providers have no room for a member of the shape on the node.
    pub fn is_full(&self, tables: &Tables<'_>, shape: usize, at: usize) -> bool {
        self.share[at].saturating_add(tables.shares[shape][at]) > WHOLE_ROOM
    }

    fn set_capacity(&mut self, tables: &Tables<'_>, shape: usize, at: usize, capacity: u32) {
        let lost = self.capacity[shape][at].saturating_sub(capacity);
        if lost == 0 {
            return;
        }
        self.capacity[shape][at] -= lost;
        self.total[shape] -= u64::from(lost);
        let shapes = tables.shapes();
        for s in self.unfinished() {
            if let Some(link) = tables.link(shape, s) {
                let reach = &mut self.reach[s * shapes + shape];
                for i in self.open[s].iter().filter(|i| link.allows(at, **i)) {
                    reach[*i] -= lost;
                }
            }
        }
    }

    /// Excludes a node from a shape.
    pub fn close(&mut self, tables: &Tables<'_>, shape: usize, at: usize) {
        self.set_capacity(tables, shape, at, 0);
        self.open[shape].retain(|i| *i != at);
    }

    /// Places the next member of the shape on the node.
    pub fn place(&mut self, tables: &Tables<'_>, shape: usize, at: usize, steps: &mut usize) {
        *steps += self.open.iter().map(Vec::len).sum::<usize>();
        let member = self.next(tables, shape);
        self.places[member] = Some(at);
        self.left[shape] -= 1;
        self.used[at] += 1;
        let count = tables.resources.len();
        for (resource, request) in tables.requests[shape].iter().enumerate() {
            self.free[at * count + resource] -= request;
        }
        self.share[at] = self.share[at].saturating_add(tables.shares[shape][at]);
        let pod = &tables.problem.members[member].pod;
        self.scene = self
            .scene
            .take()
            .map(|s| s.with_placed(pod, &tables.problem.nodes[at]));
        let mut closed = Vec::new();
        for t in self.unfinished() {
            let Some(link) = tables.link(shape, t) else {
                continue;
            };
            // The nodes that stay open are few: nodes beyond a limit leave before the updates.
            closed.extend(
                self.open[t]
                    .extract_if(.., |j| !link.allows(at, *j))
                    .map(|j| (t, j)),
            );
            let (costs, pair_cost) = (link.costs(at), &mut self.pair_cost[t]);
            for j in self.open[t].iter().filter(|_| !costs.is_empty()) {
                pair_cost[*j] += costs[*j];
            }
        }
        *steps += closed.len() * self.open.iter().map(Vec::len).sum::<usize>() / UPDATES_PER_STEP;
        for (t, j) in closed {
            self.set_capacity(tables, t, j, 0);
        }
        for t in self.unfinished() {
            if self.capacity[t][at] > 0 {
                let fitting = self.fitting(tables, t, at, None);
                self.set_capacity(tables, t, at, fitting);
            }
            let capacity = &self.capacity[t];
            self.open[t].retain(|j| capacity[*j] > 0);
        }
    }

    fn next(&self, tables: &Tables<'_>, shape: usize) -> usize {
        let members = &tables.members[shape];
        members[members.len() - self.left[shape]]
    }

    /// Returns how many of the other members keep a place if one of the shape goes to the node, and
    /// the least ratio between the room of a shape and its members.
    fn keeps(&self, tables: &Tables<'_>, shape: usize, at: usize) -> (u64, u64) {
        let (mut kept, mut slack) = (0, u64::MAX);
        for t in 0..tables.shapes() {
            let left = (self.left[t] - usize::from(t == shape)) as u64;
            if left == 0 {
                continue;
            }
            let link = tables.link(shape, t);
            let mut room = match link {
                Some(_) => self.reach[shape * tables.shapes() + t][at].into(),
                None => self.total[t],
            };
            let here = self.capacity[t][at];
            if here > 0 && link.is_none_or(|l| l.allows(at, at)) {
                let after = match t == shape && (here as usize) < tables.members[t].len() {
                    true => here - 1,
                    false => self.fitting(tables, t, at, Some(shape)).min(here),
                };
                room -= u64::from(here - after);
            }
            kept += room.min(left);
            slack = slack.min(room * SLACK_ONE / left);
        }
        (kept, slack)
    }

    fn rank(&self, tables: &Tables<'_>, shape: usize, at: usize, prefers: Prefers) -> Rank {
        let (kept, slack) = self.keeps(tables, shape, at);
        let slack = if prefers == Prefers::Room { slack } else { 0 };
        // The mean over the other members, of whom half are placed on average.
        let others = tables.problem.members.len().saturating_sub(1).max(1) as u128;
        let pairs = u128::from(self.pair_cost[shape][at]);
        let cost = u128::from(tables.alone[shape][at]) * others + 2 * pairs;
        let rest = u64::from(self.capacity[shape][at]);
        (
            Reverse(kept),
            Reverse(slack),
            cost,
            self.used[at] == 0,
            rest,
            at,
        )
    }

    /// Returns the best node for the next member of a shape, and the shape. Shapes with little room
    /// come first; `None` if no shape has a node.
    pub fn choice(
        &self,
        tables: &Tables<'_>,
        prefers: Prefers,
        steps: &mut usize,
    ) -> Option<(usize, usize)> {
        self.by_tightness().into_iter().find_map(|s| {
            if self.scene.is_some() && tables.is_ordered[s] {
                return Some((s, *self.ranked(tables, s, prefers, steps).first()?));
            }
            *steps += self.open[s].len() * tables.shapes();
            let open = self.open[s].iter();
            let best = open.map(|i| self.rank(tables, s, *i, prefers)).min()?;
            Some((s, best.5))
        })
    }

    /// Returns all nodes for the next member of a shape, best first, and the shape; `None` if no
    /// shape has a node.
    pub fn choices(
        &self,
        tables: &Tables<'_>,
        prefers: Prefers,
        steps: &mut usize,
    ) -> Option<(usize, Vec<usize>)> {
        self.by_tightness().into_iter().find_map(|s| {
            let nodes = self.ranked(tables, s, prefers, steps);
            (!nodes.is_empty()).then_some((s, nodes))
        })
    }

    fn by_tightness(&self) -> Vec<usize> {
        let mut shapes = self.unfinished();
        shapes.sort_by_key(|s| self.total[*s] * SLACK_ONE / self.left[*s] as u64);
        shapes
    }

    fn ranked(
        &self,
        tables: &Tables<'_>,
        shape: usize,
        prefers: Prefers,
        steps: &mut usize,
    ) -> Vec<usize> {
        *steps += self.open[shape].len() * tables.shapes();
        let open = self.open[shape].iter();
        let mut ranked: Vec<Rank> = open
            .map(|i| self.rank(tables, shape, *i, prefers))
            .collect();
        ranked.sort_unstable();
        let nodes = ranked.into_iter().map(|(.., at)| at);
        let Some(filter) = self.filter(tables, shape) else {
            return nodes.collect();
        };
        *steps += self
            .scene
            .as_ref()
            .map_or(0, |s| s.node_count() + s.pod_count());
        let is_usable = |i: &usize| tables.nodes[*i].is_some_and(|n| filter.reason(n).is_none());
        nodes.filter(is_usable).collect()
    }

    /// Excludes nodes that no complete placement can use; returns whether there may be one.
    pub fn prune(&mut self, tables: &Tables<'_>, steps: &mut usize) -> bool {
        loop {
            let rest: u64 = self.left.iter().map(|left| *left as u64).sum();
            let mut has_changed = false;
            for s in self.unfinished() {
                *steps += self.open[s].len() * tables.shapes();
                let is_useless = |i: &usize| self.keeps(tables, s, *i).0 + 1 < rest;
                let useless = self.open[s].iter().copied().filter(is_useless);
                let useless: Vec<usize> = useless.collect();
                for i in &useless {
                    self.set_capacity(tables, s, *i, 0);
                }
                let capacity = &self.capacity[s];
                self.open[s].retain(|i| capacity[*i] > 0);
                has_changed |= !useless.is_empty();
                if self.total[s] < self.left[s] as u64 {
                    return false;
                }
            }
            if !has_changed {
                return true;
            }
        }
    }

    /// Returns the filter of the rules whose result depends on the order of placements; `None` if
    /// the shape has no such rules.
    fn filter<'s>(&'s self, tables: &'s Tables<'_>, shape: usize) -> Option<NodeFilter<'s>> {
        let scene = self.scene.as_ref().filter(|_| tables.is_ordered[shape])?;
        let pod = &tables.problem.members[self.next(tables, shape)].pod;
        Some(NodeFilter::new(scene, pod))
    }

    /// Returns the number of members that still fit on the used nodes.
    pub fn fragments(&self, tables: &Tables<'_>) -> u64 {
        let used = (0..self.used.len()).filter(|at| self.used[*at] > 0);
        let fitting = |at| (0..tables.shapes()).map(move |s| self.fitting(tables, s, at, None));
        used.flat_map(fitting).map(u64::from).sum()
    }
}

/// Returns the free amounts by node and resource.
fn free_amounts(tables: &Tables<'_>) -> Vec<i64> {
    let snapshot = tables.problem.snapshot;
    let mut all = Vec::with_capacity(tables.nodes.len() * tables.resources.len());
    for node in &tables.nodes {
        for resource in &tables.resources {
            let Some(node) = node else {
                all.push(0);
                continue;
            };
            let offered = node.allocatable.milli(resource);
            let there = snapshot.pods_on(&node.name);
            all.push(match *resource {
                "pods" => offered.saturating_sub(1000 * there.len() as i64),
                name if offered == 0 && snapshot.is_served_by_devices(name) => i64::MAX / 2,
                name => there.iter().fold(offered, |free, pod| {
                    free.saturating_sub(pod.requests.milli(name))
                }),
            });
        }
    }
    all
}
