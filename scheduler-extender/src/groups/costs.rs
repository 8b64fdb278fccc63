//! Collects the costs that a joint plan needs: of the members alone, between members, and how many
//! members a node takes.

use std::sync::Arc;

use futures::future::join_all;
use tautline_core::{
    Snapshot,
    constraints::{self, PodConstraints, PodIdentity},
    group::planner::{Matrix, MatrixBuilder},
    model::{Node, Pod},
    node_filter::NodeFilter,
    nodes::NodeSet,
    planning::{MAX_NORMALIZED_COST, NodeVerdict, RuleOutcome},
};
use tautline_provider_client::{PlanningQuestion, PlanningRound};

use crate::state::State;

/// The maximum number of pods that one question supposes on nodes.
const MAX_SUPPOSED: usize = 4096;
/// The maximum number of concurrent questions to a provider.
const CONCURRENT_QUESTIONS: usize = 32;

/// Members that all rules treat alike.
pub(super) struct Shape {
    /// The positions of the members.
    pub members: Vec<usize>,
    /// The first of the members, which stands for all.
    pub pod: Arc<Pod>,
    pub constraints: Vec<PodConstraints>,
    /// The costs of the nodes that Kubernetes' own rules admit, without the other members.
    pub alone: PlanningRound,
}

/// The source of the costs of one group.
pub(super) struct Costs<'a> {
    pub state: &'a State,
    pub snapshot: &'a Snapshot,
}

impl Costs<'_> {
    /// Returns the shapes of the members.
    pub async fn shapes(&self, members: &[Arc<Pod>]) -> Vec<Shape> {
        let mut shapes: Vec<Shape> = Vec::new();
        for (i, pod) in members.iter().enumerate() {
            if let Some(known) = shapes.iter_mut().find(|s| self.is_alike(&s.pod, pod)) {
                known.members.push(i);
                continue;
            }
            let identity = PodIdentity::from(&**pod);
            let constraints = self.state.constraints(self.snapshot, &identity);
            let alone = self.alone(pod, &constraints).await;
            shapes.push(Shape {
                members: vec![i],
                pod: Arc::clone(pod),
                constraints,
                alone,
            });
        }
        shapes
    }

    fn is_alike(&self, one: &Pod, other: &Pod) -> bool {
        let roles = |pod: &Pod| -> Vec<_> {
            let identity = pod.into();
            let all = constraints::roles(self.snapshot, &identity);
            all.map(|(offer, roles)| (Arc::as_ptr(offer), roles))
                .collect()
        };
        let fixed = |pod: &Pod| {
            let placement = pod.placement.as_deref()?;
            let (selector, affinity) = (&placement.node_selector, &placement.affinity);
            let has_claims = !placement.claims.is_empty();
            let containers = &placement.containers;
            Some((
                selector.clone(),
                affinity.clone(),
                placement.tolerations.clone(),
                has_claims,
                containers.clone(),
            ))
        };
        one.requests == other.requests
            && one.pod_terms == other.pod_terms
            && one.rules == other.rules
            && fixed(one) == fixed(other)
            && roles(one) == roles(other)
    }

    async fn alone(&self, pod: &Pod, constraints: &[PodConstraints]) -> PlanningRound {
        let filter = NodeFilter::new(self.snapshot, pod);
        let fits = |node: &&Arc<Node>| filter.reason(node).is_none();
        let nodes = self.snapshot.nodes().filter(fits);
        let mut nodes: Vec<&str> = nodes.map(|node| &*node.name).collect();
        nodes.sort_unstable();
        let question = PlanningQuestion::for_pod(pod, nodes.into_iter().collect());
        let providers = &self.state.providers;
        providers
            .plan_with(self.snapshot, constraints, question)
            .await
    }

    /// Returns the rules by which a member of shape `of` depends on the node of a member of shape
    /// `other`, as of a member of that shape on the node.
    fn towards(&self, of: &Shape, other: &Shape, node: &Arc<str>) -> Vec<PodConstraints> {
        // A shape's only pod stands for its mates too.
        let mut mate = (*other.pod).clone();
        if mate.name == of.pod.name {
            mate.name = format!("{}-mate", mate.name).into();
        }
        let identity = PodIdentity::from(&*of.pod);
        // The costs without the other members decide on an offer whose rules have no answer.
        let answered = of.constraints.iter().filter(|of| of.unavailable.is_none());
        let related = answered.filter_map(|of| {
            let peers = of.peers_on(&identity, &mate, node);
            let mut rules = of.rules.clone();
            rules.retain(|rule| !self.counts_pods(&of.offer.namespace, &rule.name));
            let constraints = PodConstraints {
                peers,
                rules,
                missing_policies: Vec::new(),
                offer: Arc::clone(&of.offer),
                unavailable: None,
            };
            let relates = !constraints.peers.is_empty() && !constraints.rules.is_empty();
            relates.then_some(constraints)
        });
        related.collect()
    }

    /// Returns the round of a member of shape `of` while a member of shape `other` is on the node;
    /// `None` if no rule relates them.
    pub async fn near(
        &self,
        (of, other): (&Shape, &Shape),
        node: &Arc<str>,
        nodes: &Arc<NodeSet>,
    ) -> Option<PlanningRound> {
        let constraints = self.towards(of, other, node);
        if constraints.is_empty() {
            return None;
        }
        let question = PlanningQuestion {
            nodes: Arc::clone(nodes),
            ..PlanningQuestion::for_pod(&of.pod, NodeSet::default())
        };
        let providers = &self.state.providers;
        Some(
            providers
                .plan_with(self.snapshot, &constraints, question)
                .await,
        )
    }

    /// Returns the costs of a member of shape `of` (columns) by the node of a member of shape
    /// `other` (rows); `None` if no rule relates them.
    pub async fn matrix(
        &self,
        (of, other): (&Shape, &Shape),
        nodes: &Arc<NodeSet>,
    ) -> Option<Matrix> {
        let names: Vec<Arc<str>> = nodes.iter().map(Into::into).collect();
        let mut rows = Vec::with_capacity(names.len());
        for part in names.chunks(CONCURRENT_QUESTIONS) {
            let asked = part.iter().map(|node| self.near((of, other), node, nodes));
            rows.extend(join_all(asked).await);
        }
        let rows: Vec<PlanningRound> = rows.into_iter().flatten().collect();
        let first = rows.first().filter(|_| rows.len() == names.len())?;
        let mut matrix = MatrixBuilder::new(names.len());
        for (i, rule) in first.rules.iter().enumerate() {
            let costs = rows.iter().map(|row| row.rules.get(i).map(|r| &r.outcome));
            let request_cost = costs.clone().find_map(|outcome| match outcome {
                Some(RuleOutcome::Costs(costs)) => costs.request_cost,
                _ => None,
            });
            let prefer = rule.rule.prefer.unwrap_or_default();
            matrix.begin_rule(rule.rule.weight, request_cost, prefer);
            for (at, outcome) in costs.enumerate() {
                let cost = |node| match outcome {
                    Some(RuleOutcome::Costs(costs)) => costs.get(node).unwrap_or(-1),
                    Some(RuleOutcome::Unavailable { reject: false, .. }) => 0,
                    _ => -1,
                };
                matrix.row(at, (0..names.len()).map(cost));
            }
        }
        Some(matrix.build())
    }

    /// Returns the number of members of a shape that the providers admit on each node, `most` at
    /// most; `None` if no provider counts pods.
    pub async fn room(&self, shape: &Shape, nodes: &NodeSet, most: usize) -> Option<Vec<u32>> {
        let counting = shape.constraints.iter().filter_map(|of| {
            let mut of = of.clone();
            of.rules
                .retain(|rule| self.counts_pods(&of.offer.namespace, &rule.name));
            of.missing_policies.clear();
            (!of.rules.is_empty()).then_some(of)
        });
        let counting: Vec<PodConstraints> = counting.collect();
        if counting.is_empty() {
            return None;
        }
        let usable = |node: &str| {
            shape
                .alone
                .verdict(node)
                .is_some_and(NodeVerdict::is_usable)
        };
        let most = most.min(MAX_SUPPOSED / nodes.len().max(1)).max(1);
        // The bounds of each node's room, which questions about all nodes at once bring together.
        let bounds = nodes
            .iter()
            .map(|n| if usable(n) { (1, most) } else { (0, 0) });
        let mut bounds: Vec<(usize, usize)> = bounds.collect();
        while bounds.iter().any(|(low, high)| low < high) {
            let tried = |(low, high): (usize, usize)| (low + high).div_ceil(2);
            let (mut asked, mut placed) = (Vec::new(), Vec::new());
            for (node, bounds) in nodes.iter().zip(&bounds).filter(|(_, (l, h))| l < h) {
                asked.push(node);
                // One more is asked about.
                placed.extend((1..tried(*bounds)).map(|i| on_node(&shape.pod, node, i)));
            }
            let question = PlanningQuestion {
                placed,
                ..PlanningQuestion::for_pod(&shape.pod, asked.into_iter().collect())
            };
            let providers = &self.state.providers;
            let round = providers
                .plan_with(self.snapshot, &counting, question)
                .await;
            for (node, bounds) in nodes.iter().zip(&mut bounds).filter(|(_, (l, h))| l < h) {
                match round.verdict(node).is_some_and(NodeVerdict::is_usable) {
                    true => bounds.0 = tried(*bounds),
                    false => bounds.1 = tried(*bounds) - 1,
                }
            }
        }
        let rooms = bounds
            .into_iter()
            .map(|(low, _)| u32::try_from(low).unwrap_or(u32::MAX));
        Some(rooms.collect())
    }

    fn counts_pods(&self, namespace: &str, rule: &str) -> bool {
        let providers = &self.state.providers;
        providers
            .allocator(self.snapshot, rule, namespace)
            .is_some()
    }

    /// Plans each member on its place while all others are on theirs.
    pub async fn check(&self, members: &[Arc<Pod>], places: &[Arc<str>]) -> Vec<PlanningRound> {
        let mut rounds = Vec::with_capacity(members.len());
        let all: Vec<usize> = (0..members.len()).collect();
        for part in all.chunks(CONCURRENT_QUESTIONS) {
            let checks = part.iter().map(|i| self.check_one(members, places, *i));
            rounds.extend(join_all(checks).await);
        }
        rounds
    }

    async fn check_one(
        &self,
        members: &[Arc<Pod>],
        places: &[Arc<str>],
        i: usize,
    ) -> PlanningRound {
        let identity = PodIdentity::from(&*members[i]);
        let mut constraints = self.state.constraints(self.snapshot, &identity);
        for of in &mut constraints {
            let others = members.iter().zip(places);
            let peers = others.flat_map(|(pod, node)| of.peers_on(&identity, pod, node));
            let peers: Vec<_> = peers.collect();
            of.peers.extend(peers);
            of.peers.sort_unstable();
        }
        let before = members.iter().zip(places).take(i);
        let here = before.filter(|(_, node)| **node == places[i]);
        let placed = here.map(|(pod, node)| {
            Arc::new(Pod {
                node: Some(Arc::clone(node)),
                ..(**pod).clone()
            })
        });
        let nodes = [&*places[i]].into_iter().collect();
        let question = PlanningQuestion {
            placed: placed.collect(),
            ..PlanningQuestion::for_pod(&members[i], nodes)
        };
        let providers = &self.state.providers;
        providers
            .plan_with(self.snapshot, &constraints, question)
            .await
    }
}

/// Returns a pod like this one on a node, with a UID of its own.
fn on_node(pod: &Pod, node: &str, i: usize) -> Arc<Pod> {
    Arc::new(Pod {
        name: format!("{}-{i}", pod.name).into(),
        uid: format!("{}-{node}-{i}", pod.uid).into(),
        node: Some(node.into()),
        ..pod.clone()
    })
}

/// Returns the normalized cost of a verdict; `None` if the node is unusable.
pub(super) fn cost(verdict: Option<&NodeVerdict>) -> Option<u64> {
    match verdict? {
        NodeVerdict::Usable {
            normalized_cost, ..
        } => Some(*normalized_cost.min(&MAX_NORMALIZED_COST)),
        NodeVerdict::Unusable { .. } => None,
    }
}
