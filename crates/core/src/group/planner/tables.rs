//! The parts of a problem that no placement changes, computed once.

use std::sync::Arc;

use super::{Cause, Pair, Problem};
use crate::{
    index::Snapshot,
    model::{Node, Pod},
    names::GATE_RESOURCE,
    node_filter::{NodeFilter, UnschedulableReason},
    pod_affinity::AffinityConflict,
    volume_filter::VolumeConflict,
};

/// The whole room of a node at the providers, of which each member takes a share.
pub(super) const WHOLE_ROOM: u64 = 1 << 63;

/// The number of bits by which a normalized cost is shortened to rank nodes.
const RANK_SHIFT_BITS: u32 = 32;

/// The greatest weight that ranks nodes; greater weights are scaled down.
const MAX_RANK_WEIGHT: u64 = 1 << 16;

/// The shapes, nodes and limits of a problem in the form that a search reads.
pub(super) struct Tables<'a> {
    pub problem: &'a Problem<'a>,
    /// The candidates; `None` if the snapshot does not have the node.
    pub nodes: Vec<Option<&'a Arc<Node>>>,
    /// The positions of each shape's members.
    pub members: Vec<Vec<usize>>,
    /// The resources that members request, and by shape the amounts, in thousandths of the unit.
    pub resources: Vec<&'a str>,
    pub requests: Vec<Vec<i64>>,
    /// The part of [`WHOLE_ROOM`] that a member of a shape takes, by shape and node.
    pub shares: Vec<Vec<u64>>,
    /// The cause that excludes a node from a shape whatever the places of others, by shape and
    /// node.
    pub refused: Vec<Vec<Option<Cause>>>,
    /// Short costs by shape and node, times the shape's weight.
    pub alone: Vec<Vec<u64>>,
    /// True for a shape whose nodes depend on the order of placements: topology spread, affinity.
    pub is_ordered: Vec<bool>,
    /// The pods that count for the shapes with [`is_ordered`](Self::is_ordered); `None` if no shape
    /// is.
    pub scene: Option<Snapshot>,
    links: Vec<Option<Link>>,
}

/// The relation between a member of one shape and one of another, by their nodes.
pub(super) struct Link {
    nodes: usize,
    words: usize,
    allowed: Vec<u64>,
    /// Short costs times weights; empty if no rule has any.
    costs: Vec<u64>,
}

impl Link {
    fn new(nodes: usize) -> Self {
        let words = nodes.div_ceil(64);
        Self {
            nodes,
            words,
            allowed: vec![u64::MAX; nodes * words],
            costs: Vec::new(),
        }
    }

    /// Returns whether one member may be on `of` and the other on `other`.
    pub fn allows(&self, of: usize, other: usize) -> bool {
        self.allowed[of * self.words + other / 64] >> (other % 64) & 1 == 1
    }

    /// Returns the costs by the other member's node; empty if there are none.
    pub fn costs(&self, of: usize) -> &[u64] {
        match self.costs.is_empty() {
            true => &[],
            false => &self.costs[of * self.nodes..][..self.nodes],
        }
    }

    fn forbid(&mut self, of: usize, other: usize) {
        self.allowed[of * self.words + other / 64] &= !(1 << (other % 64));
    }

    fn add_cost(&mut self, of: usize, other: usize, cost: u64) {
        self.costs.resize(self.nodes * self.nodes, 0);
        self.costs[of * self.nodes + other] += cost;
    }
}

impl<'a> Tables<'a> {
    pub fn new(problem: &'a Problem<'a>) -> Self {
        let (snapshot, shapes) = (problem.snapshot, problem.shapes.len());
        let mut members = vec![Vec::new(); shapes];
        for (at, member) in problem.members.iter().enumerate() {
            members[member.shape].push(at);
        }
        let first = |s: usize| {
            members[s]
                .first()
                .map(|at: &usize| &problem.members[*at].pod)
        };
        let pods: Vec<Option<&'a Arc<Pod>>> = (0..shapes).map(first).collect();
        let nodes: Vec<_> = problem.nodes.iter().map(|n| snapshot.node(n)).collect();
        let mut resources: Vec<&str> = vec!["pods"];
        let known = pods.iter().flatten().flat_map(|pod| pod.requests.iter());
        resources.extend(known.filter(|(_, n)| *n > 0).map(|(name, _)| name));
        resources[1..].sort_unstable();
        resources.dedup();
        resources.retain(|name| *name != GATE_RESOURCE);
        let request = |pod: &Pod| {
            let amount = |name: &&str| match *name {
                "pods" => 1000,
                name => pod.requests.milli(name).max(0),
            };
            resources.iter().map(amount).collect()
        };
        let requests = pods.iter().map(|p| p.map_or_else(Vec::new, |p| request(p)));
        let share = |room: &u32| match *room {
            u32::MAX => 0,
            room => WHOLE_ROOM.checked_div(room.into()).unwrap_or(u64::MAX),
        };
        let weights = problem.shapes.iter().map(|s| s.weight);
        let pair_weights = problem.pairs.iter().map(|p| p.costs.weight());
        let heaviest = weights.chain(pair_weights).max().unwrap_or_default().max(1);
        let rank = |cost: u64, weight: u32| {
            let weight = u64::from(weight) * MAX_RANK_WEIGHT / u64::from(heaviest);
            (cost >> RANK_SHIFT_BITS) * weight
        };
        let alone = problem.shapes.iter().map(|shape| {
            let costs = shape.alone.iter();
            let cost = |cost: &Option<u64>| rank(cost.unwrap_or_default(), shape.weight);
            costs.map(cost).collect()
        });
        let is_ordered: Vec<bool> = pods.iter().map(|p| p.is_some_and(|p| depends(p))).collect();
        let mut tables = Self {
            requests: requests.collect(),
            shares: problem
                .shapes
                .iter()
                .map(|s| s.room.iter().map(share).collect())
                .collect(),
            refused: (0..shapes)
                .map(|s| refused(problem, &nodes, s, pods[s]))
                .collect(),
            alone: alone.collect(),
            scene: is_ordered.contains(&true).then(|| scene(snapshot, &pods)),
            links: (0..shapes * shapes).map(|_| None).collect(),
            problem,
            nodes,
            members,
            resources,
            is_ordered,
        };
        for pair in &problem.pairs {
            tables.add_pair(pair, |cost| rank(cost, pair.costs.weight()));
        }
        tables.add_exclusions(&pods);
        tables
    }

    pub fn shapes(&self) -> usize {
        self.members.len()
    }

    /// Returns the relation between a member of `shape` and one of `other`; `None` if there is no
    /// rule between them.
    pub fn link(&self, shape: usize, other: usize) -> Option<&Link> {
        self.links[shape * self.shapes() + other].as_ref()
    }

    fn link_mut(&mut self, shape: usize, other: usize) -> &mut Link {
        let (at, nodes) = (shape * self.shapes() + other, self.nodes.len());
        self.links[at].get_or_insert_with(|| Link::new(nodes))
    }

    fn add_pair(&mut self, pair: &Pair, rank: impl Fn(u64) -> u64) {
        let nodes = self.nodes.len();
        for (of, other) in (0..nodes).flat_map(|of| (0..nodes).map(move |other| (of, other))) {
            let cost = pair.costs.get(of, other);
            for (s, i, t, j) in [
                (pair.of, of, pair.other, other),
                (pair.other, other, pair.of, of),
            ] {
                let link = self.link_mut(s, t);
                match cost {
                    Some(cost) => link.add_cost(i, j, rank(cost)),
                    None => link.forbid(i, j),
                }
            }
        }
    }

    /// Forbids pairs of nodes by the anti-affinity, host ports and exclusive volumes of members:
    /// these never depend on the order of placements.
    fn add_exclusions(&mut self, pods: &[Option<&Arc<Pod>>]) {
        let empty = self.problem.snapshot.with_only_pods(|_| false);
        let excludes = |pod: &Pod| {
            let ports = pod.rules.as_ref().is_some_and(|r| !r.host_ports.is_empty());
            let volumes = empty.pod_volumes(&pod.namespace, &pod.name);
            let claims = volumes.is_some_and(|v| !v.claims.is_empty());
            ports || claims || pod.pod_terms.iter().any(|t| t.anti)
        };
        let shapes: Vec<bool> = pods
            .iter()
            .map(|p| p.is_some_and(|p| excludes(p)))
            .collect();
        for s in 0..self.shapes() {
            for t in (s..self.shapes()).filter(|t| shapes[s] || shapes[*t]) {
                let new = self.members[t].get(usize::from(s == t));
                if let (Some(placed), Some(new)) = (pods[s], new) {
                    let new = unordered(&self.problem.members[*new].pod);
                    self.add_exclusions_between(&empty, (s, placed), (t, &new));
                }
            }
        }
    }

    fn add_exclusions_between(
        &mut self,
        empty: &Snapshot,
        (s, placed): (usize, &Arc<Pod>),
        (t, new): (usize, &Pod),
    ) {
        for i in 0..self.nodes.len() {
            if self.refused[s][i].is_some() {
                continue;
            }
            let there = empty.with_placed(placed, &self.problem.nodes[i]);
            let filter = NodeFilter::new(&there, new);
            let excluded = |j: &usize| match (&self.refused[t][*j], self.nodes[*j]) {
                (None, Some(node)) => filter.reason(node).is_some_and(|r| is_exclusive(&r)),
                _ => false,
            };
            let excluded: Vec<usize> = (0..self.nodes.len()).filter(excluded).collect();
            for j in excluded {
                self.link_mut(s, t).forbid(i, j);
                self.link_mut(t, s).forbid(j, i);
            }
        }
    }
}

fn is_exclusive(reason: &UnschedulableReason) -> bool {
    use UnschedulableReason::{HostPort, PodAffinity, Volume};
    match reason {
        HostPort(_) | Volume(VolumeConflict::InUse(_)) => true,
        PodAffinity(conflict) => *conflict != AffinityConflict::Affinity,
        _ => false,
    }
}

/// Returns whether the order of placements decides which nodes the pod may use.
fn depends(pod: &Pod) -> bool {
    let spreads = pod.rules.as_ref().is_some_and(|r| !r.spread.is_empty());
    spreads || pod.pod_terms.iter().any(|t| !t.anti)
}

/// Returns the pod without the rules whose result a later placement can change.
fn unordered(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    if let Some(rules) = &mut pod.rules {
        rules.spread.clear();
    }
    pod.pod_terms = pod.pod_terms.iter().filter(|t| t.anti).cloned().collect();
    pod
}

fn refused(
    problem: &Problem<'_>,
    nodes: &[Option<&Arc<Node>>],
    shape: usize,
    pod: Option<&Arc<Pod>>,
) -> Vec<Option<Cause>> {
    let pod = pod.map(|pod| unordered(pod)).unwrap_or_default();
    let filter = NodeFilter::new(problem.snapshot, &pod);
    let alone = problem.shapes[shape].alone.iter();
    let refused = alone.zip(nodes).map(|(alone, node)| match (alone, node) {
        (_, None) => Some(Cause::NoNode),
        (None, _) => Some(Cause::OwnRule),
        (_, Some(node)) => filter.reason(node).map(Cause::Kubernetes),
    });
    refused.collect()
}

/// Returns a snapshot of the pods that count for the topology spread or the affinity of a shape.
fn scene(snapshot: &Snapshot, pods: &[Option<&Arc<Pod>>]) -> Snapshot {
    let pods: Vec<&Arc<Pod>> = pods
        .iter()
        .flatten()
        .copied()
        .filter(|p| depends(p))
        .collect();
    snapshot.with_only_pods(|other| {
        pods.iter().any(|pod| {
            let spread = pod.rules.iter().flat_map(|rules| &rules.spread);
            let mut counted = spread.filter_map(|c| c.selector.as_ref());
            let mut near = pod.pod_terms.iter().filter(|t| !t.anti);
            counted.any(|selector| selector.matches(&other.labels))
                || near.any(|term| term.selector.matches(&other.labels))
        })
    })
}
