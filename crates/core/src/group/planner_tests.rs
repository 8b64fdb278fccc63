//! Tests of the planner of groups.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::{
    index::{Index, Object},
    model::{Node, Prefer},
    pod_affinity::AffinityConflict,
    pod_rules::{PodRules, SpreadConstraint},
    selector::{PodTerm, Selector},
};

#[path = "planner_bar_tests.rs"]
mod bar;

const STEPS: usize = 2_000_000;

/// A cluster and a group, from which problems are made.
#[derive(Clone, Debug, Default)]
pub(super) struct Case {
    pub nodes: Vec<Node>,
    /// Pods that have a node.
    pub there: Vec<Pod>,
    pub members: Vec<(Pod, usize)>,
    pub shapes: Vec<Shape>,
    /// By two shapes: costs by node and node, in microseconds.
    pub pairs: Vec<(usize, usize, Vec<Vec<i64>>)>,
}

impl Case {
    /// Returns a case of nodes with this much CPU, by zone.
    fn new(nodes: &[(&str, i64)]) -> Self {
        let mut case = Self::default();
        for (at, (zone, cpu)) in nodes.iter().enumerate() {
            let name = format!("n{at}");
            case.nodes.push(node(&name, zone, *cpu));
        }
        case
    }

    fn shape(&mut self) -> usize {
        self.shapes.push(Shape {
            alone: vec![Some(0); self.nodes.len()],
            weight: 1,
            room: vec![u32::MAX; self.nodes.len()],
        });
        self.shapes.len() - 1
    }

    fn members(&mut self, count: usize, shape: usize, cpu: i64, change: impl Fn(&mut Pod)) {
        for _ in 0..count {
            let mut pod = pod(&format!("m{}", self.members.len()), cpu);
            change(&mut pod);
            self.members.push((pod, shape));
        }
    }

    pub fn index(&self) -> Index {
        let mut index = Index::default();
        for node in &self.nodes {
            index.apply(Object::Node(node.clone()));
        }
        for pod in &self.there {
            index.apply(Object::Pod(pod.clone()));
        }
        index
    }

    pub fn problem<'a>(&self, snapshot: &'a Snapshot) -> Problem<'a> {
        let pairs = self.pairs.iter().map(|(of, other, costs)| {
            let mut builder = MatrixBuilder::new(self.nodes.len());
            builder.begin_rule(1, None, Prefer::Nearest);
            for (at, row) in costs.iter().enumerate() {
                builder.row(at, row.iter().copied());
            }
            Pair {
                of: *of,
                other: *other,
                costs: Arc::new(builder.build()),
            }
        });
        let member = |(pod, shape): &(Pod, usize)| Member {
            pod: Arc::new(pod.clone()),
            shape: *shape,
        };
        Problem {
            snapshot,
            members: self.members.iter().map(member).collect(),
            nodes: self.nodes.iter().map(|n| Arc::clone(&n.name)).collect(),
            shapes: self.shapes.clone(),
            pairs: pairs.collect(),
        }
    }

    pub fn plan(&self) -> Plan {
        let snapshot = self.index().snapshot();
        let problem = self.problem(&snapshot);
        let found = plan(&problem, STEPS);
        check(&problem, &found);
        found
    }
}

pub(super) fn node(name: &str, zone: &str, cpu: i64) -> Node {
    Node {
        name: name.into(),
        labels: [("zone", zone), ("host", name)].into_iter().collect(),
        allocatable: [("cpu", cpu), ("pods", 110_000)].into_iter().collect(),
        ..Node::default()
    }
}

pub(super) fn pod(name: &str, cpu: i64) -> Pod {
    Pod {
        namespace: "ns".into(),
        name: name.into(),
        labels: [("app", "train")].into_iter().collect(),
        requests: [("cpu", cpu)].into_iter().collect(),
        ..Pod::default()
    }
}

fn train() -> Selector {
    Selector {
        match_labels: vec![("app".into(), "train".into())],
        match_expressions: Vec::new(),
    }
}

/// Checks a plan against Kubernetes' rules, rooms, own rules and limits, with code that the planner
/// does not use. Topology spread must hold once all members are placed.
pub(super) fn check(problem: &Problem<'_>, plan: &Plan) {
    let mut placed: Vec<(usize, usize)> = Vec::new();
    let mut snapshot = problem.snapshot.clone();
    let mut parts: HashMap<usize, f64> = HashMap::new();
    for (member, at) in problem.members.iter().zip(&plan.places) {
        let Some(at) = *at else { continue };
        let shape = &problem.shapes[member.shape];
        assert!(shape.alone[at].is_some(), "own rule: {plan:?}");
        let node = problem.snapshot.node(&problem.nodes[at]).unwrap();
        let mut pod = Pod::clone(&member.pod);
        if let Some(rules) = &mut pod.rules {
            rules.spread.clear();
        }
        let reason = NodeFilter::new(&snapshot, &pod).reason(node);
        assert_eq!(reason, None, "{plan:?}");
        snapshot = snapshot.with_placed(&member.pod, &node.name);
        if shape.room[at] != u32::MAX {
            *parts.entry(at).or_default() += 1.0 / f64::from(shape.room[at]);
        }
        for pair in &problem.pairs {
            for (s, i) in &placed {
                if (pair.of, pair.other) == (member.shape, *s) {
                    assert!(pair.costs.get(at, *i).is_some(), "limit: {plan:?}");
                }
                if (pair.of, pair.other) == (*s, member.shape) {
                    assert!(pair.costs.get(*i, at).is_some(), "limit: {plan:?}");
                }
            }
        }
        placed.push((member.shape, at));
    }
    assert!(
        parts.values().all(|part| *part <= 1.0 + 1e-9),
        "room: {plan:?}"
    );
    assert_eq!(plan.is_complete(), plan.placed() == problem.members.len());
    for member in &problem.members {
        let constraints = member.pod.rules.iter().flat_map(|rules| &rules.spread);
        for constraint in constraints.filter(|_| plan.is_complete()) {
            let mut zones: HashMap<&str, i64> = HashMap::new();
            for node in problem.snapshot.nodes() {
                if let Some(zone) = node.labels.get(&constraint.topology_key) {
                    let there = snapshot.pods_on(&node.name).iter();
                    let selector = constraint.selector.as_ref().unwrap();
                    let there = there.filter(|p| selector.matches(&p.labels));
                    *zones.entry(zone).or_default() += there.count() as i64;
                }
            }
            let skew = zones.values().max().unwrap() - zones.values().min().unwrap();
            assert!(skew <= constraint.max_skew, "spread: {plan:?}");
        }
    }
    assert_eq!(
        *plan,
        super::plan(problem, STEPS),
        "equal input, equal output"
    );
}

/// Returns the distances of positions on a line; those over the limit are negative.
fn line(at: &[i64], limit: i64) -> Vec<Vec<i64>> {
    let distance = |a: i64, b: i64| match (a - b).abs() {
        far if far > limit => -1,
        near => near,
    };
    at.iter()
        .map(|a| at.iter().map(|b| distance(*a, *b)).collect())
        .collect()
}

fn apart(selector: Selector, topology_key: &str) -> PodTerm {
    PodTerm {
        anti: true,
        selector,
        namespaces: ["ns".into()].into(),
        namespace_selector: None,
        topology_key: topology_key.into(),
    }
}

fn spread(selector: Selector, topology_key: &str) -> PodRules {
    PodRules {
        spread: vec![SpreadConstraint {
            max_skew: 1,
            topology_key: topology_key.into(),
            selector: Some(selector),
            min_domains: 1,
            honors_affinity: true,
            honors_taints: false,
        }],
        host_ports: Vec::new(),
    }
}

#[test]
fn snapshot_counts_a_placed_pod_on_its_node_alone() {
    let case = Case::new(&[("a", 1000), ("a", 1000)]);
    let before = case.index().snapshot();
    let mut pod = pod("m", 600);
    pod.pod_terms = [apart(train(), "host")].into();
    let pod = Arc::new(pod);
    let first = before.with_placed(&pod, "n0");
    let moved = first.with_placed(&pod, "n1");
    for (snapshot, there) in [(&before, [0, 0]), (&first, [1, 0]), (&moved, [0, 1])] {
        let count = |node| snapshot.pods_on(node).len();
        assert_eq!([count("n0"), count("n1")], there);
        assert_eq!(snapshot.with_anti_affinity().count(), there[0] + there[1]);
        assert_eq!(snapshot.requested_on("n1")[0], 600 * there[1] as i128);
    }
}

#[test]
fn plan_without_members_is_complete() {
    let plan = Case::new(&[("a", 1000)]).plan();
    assert!(plan.is_complete() && plan.places.is_empty());
}

#[test]
fn plan_avoids_the_node_that_is_best_for_the_first_alone() {
    let mut case = Case::new(&[("a", 1000), ("a", 2000), ("a", 2000)]);
    let shape = case.shape();
    case.shapes[shape].alone = vec![Some(0), Some(9), Some(9)];
    case.members(4, shape, 1000, |_| {});
    case.pairs.push((0, 0, line(&[0, 90, 100], 20)));
    let plan = case.plan();
    let on = |at| plan.places.iter().filter(|p| **p == Some(at)).count();
    assert_eq!([on(0), on(1), on(2)], [0, 2, 2]);
    assert_eq!(plan.nodes_used, 2);
}

#[test]
fn plan_keeps_topology_spread() {
    // Zone c has room for one within the limit; five members need 2, 2 and 1.
    let zones = [
        ("a", 1000),
        ("a", 9000),
        ("a", 1000),
        ("b", 1000),
        ("b", 1000),
        ("c", 1000),
    ];
    let mut case = Case::new(&zones);
    let shape = case.shape();
    case.members(5, shape, 1000, |pod| {
        pod.rules = Some(Box::new(spread(train(), "zone")));
    });
    // The large node is over the limit of zone c.
    case.pairs.push((0, 0, line(&[10, 0, 20, 30, 35, 40], 30)));
    let plan = case.plan();
    assert!(plan.is_complete(), "{plan:?}");
    assert_eq!(plan.nodes_used, 5);
}

#[test]
fn plan_keeps_anti_affinity_between_members() {
    let mut case = Case::new(&[("a", 8000); 5]);
    let shape = case.shape();
    let each_alone = |pod: &mut Pod| pod.pod_terms = [apart(train(), "host")].into();
    case.members(4, shape, 1000, each_alone);
    // Nodes 1 to 4 are within the limit; the start at node 0 is not.
    case.pairs.push((0, 0, line(&[0, 50, 55, 60, 65], 50)));
    let plan = case.plan();
    assert_eq!(plan.nodes_used, 4, "{plan:?}");
    case.members(2, shape, 1000, each_alone);
    let plan = case.plan();
    assert_eq!(plan.placed(), 4);
    let stop = plan.stopped_by.unwrap();
    let apart = UnschedulableReason::PodAffinity(AffinityConflict::AntiAffinity);
    let causes = [(Cause::Kubernetes(apart), 4), (Cause::PairLimit, 1)];
    assert_eq!(stop.causes, causes);
}

#[test]
fn plan_places_a_leader_and_its_workers() {
    // The leader needs a node of 4 cores: node 0 is far from the workers, node 3 is not.
    let mut case = Case::new(&[("a", 4000), ("a", 2000), ("a", 2000), ("a", 5000)]);
    let (leader, worker) = (case.shape(), case.shape());
    case.members(1, leader, 4000, |_| {});
    case.members(5, worker, 1000, |_| {});
    case.pairs
        .push((leader, worker, line(&[0, 80, 90, 100], 30)));
    let plan = case.plan();
    assert!(plan.is_complete(), "{plan:?}");
    assert_eq!(plan.places[0], Some(3));
    // Workers share the rooms with the leader: half of node 3 and all of nodes 1 and 2.
    case.shapes[leader].room = vec![2; 4];
    case.shapes[worker].room = vec![2; 4];
    assert!(case.plan().is_complete());
    case.shapes[leader].room = vec![1; 4];
    assert_eq!(case.plan().placed(), 5);
}

#[test]
fn stop_names_what_excludes_the_rest() {
    let mut case = Case::new(&[
        ("a", 2000),
        ("a", 2000),
        ("a", 9000),
        ("a", 9000),
        ("a", 900),
    ]);
    let shape = case.shape();
    case.shapes[shape].room[2] = 1;
    case.shapes[shape].alone[3] = None;
    case.members(7, shape, 1000, |_| {});
    case.pairs.push((0, 0, line(&[0, 1, 2, 3, 4], 9)));
    let plan = case.plan();
    assert_eq!(plan.placed(), 5);
    let stop = plan.stopped_by.unwrap();
    assert_eq!(stop.member, 5);
    let cpu = UnschedulableReason::Insufficient("cpu".into());
    let causes = [
        (Cause::Kubernetes(cpu), 3),
        (Cause::Room, 1),
        (Cause::OwnRule, 1),
    ];
    assert_eq!(stop.causes, causes);

    case.shapes[shape].room[2] = u32::MAX;
    case.pairs = vec![(0, 0, line(&[0, 1, 20, 3, 4], 9))];
    case.members(4, shape, 1000, |_| {});
    let plan = case.plan();
    assert_eq!(plan.placed(), 9);
    assert_eq!(plan.stopped_by.unwrap().causes[0], (Cause::PairLimit, 2));
}

#[test]
fn build_scales_each_rule_and_treats_nodes_within_the_request_alike() {
    let mut builder = MatrixBuilder::new(2);
    builder.begin_rule(3, Some(20), Prefer::WithinRequest);
    builder.row(0, [0, 20]);
    builder.row(1, [60, -1]);
    builder.begin_rule(1, Some(20), Prefer::Nearest);
    builder.row(0, [0, 10]);
    builder.row(1, [20, 0]);
    let costs = builder.build();
    let one = crate::planning::MAX_NORMALIZED_COST;
    assert_eq!(costs.weight(), 4);
    assert_eq!(costs.get(0, 0), Some(0));
    assert_eq!(costs.get(0, 1), Some(one / 8));
    assert_eq!(costs.get(1, 0), Some(one));
    assert_eq!(costs.get(1, 1), None);
}

/// Returns random cases of up to three shapes.
fn cases() -> impl Strategy<Value = Case> {
    let node = (0..4_i64, 0..40_i64, 0..3_usize);
    let shape = (1..4_usize, 1..3_i64, 0..4_u8, any::<bool>());
    let nodes = prop::collection::vec(node, 1..7);
    let shapes = prop::collection::vec(shape, 1..3);
    (nodes, shapes, 0..40_i64, any::<u64>()).prop_map(|(nodes, shapes, limit, seed)| {
        let mut case = Case::default();
        for (at, (cpu, _, zone)) in nodes.iter().enumerate() {
            case.nodes.push(node_of(at, *cpu, *zone));
        }
        let at: Vec<i64> = nodes.iter().map(|n| n.1).collect();
        for (count, cpu, rules, limited) in shapes {
            let shape = case.shape();
            for i in 0..nodes.len() {
                let dice = seed >> (4 * i + 16 * shape) & 7;
                case.shapes[shape].alone[i] = (dice > 0).then_some(dice << 50);
                case.shapes[shape].room[i] = [1, 2, 3, u32::MAX][dice as usize % 4];
            }
            let key = ["host", "zone"][seed as usize % 2];
            let of = |shape: usize| Selector {
                match_labels: vec![("shape".into(), format!("{shape}"))],
                match_expressions: Vec::new(),
            };
            case.members(count, shape, cpu * 1000, |pod| {
                pod.labels = [("shape", format!("{shape}"))].into_iter().collect();
                match rules {
                    0 => pod.pod_terms = [apart(of(0), key)].into(),
                    1 => pod.rules = Some(Box::new(spread(of(shape), key))),
                    _ => {}
                }
            });
            if limited {
                case.pairs.push((shape, 0, line(&at, limit)));
            }
        }
        case
    })
}

fn node_of(at: usize, cpu: i64, zone: usize) -> Node {
    node(&format!("n{at}"), ["a", "b", "c"][zone], cpu * 1000)
}

/// Returns whether any assignment of all members is legal, by trying all.
fn exists(problem: &Problem<'_>, snapshot: &Snapshot, places: &mut Vec<usize>) -> bool {
    let Some(member) = problem.members.get(places.len()) else {
        return true;
    };
    let filter = NodeFilter::new(snapshot, &member.pod);
    for at in 0..problem.nodes.len() {
        let node = snapshot.node(&problem.nodes[at]).unwrap();
        let shape = &problem.shapes[member.shape];
        let mut part = 0.0;
        let mut is_legal = shape.alone[at].is_some() && filter.reason(node).is_none();
        for (m, i) in problem
            .members
            .iter()
            .zip(places.iter().copied().chain([at]))
        {
            if i == at {
                part += 1.0 / f64::from(problem.shapes[m.shape].room[at]);
            }
        }
        is_legal &= part <= 1.0 + 1e-6;
        for (m, i) in problem.members.iter().zip(&*places) {
            for pair in &problem.pairs {
                if (pair.of, pair.other) == (m.shape, member.shape) {
                    is_legal &= pair.costs.get(*i, at).is_some();
                }
                if (pair.of, pair.other) == (member.shape, m.shape) {
                    is_legal &= pair.costs.get(at, *i).is_some();
                }
            }
        }
        if is_legal {
            places.push(at);
            let next = snapshot.with_placed(&member.pod, &node.name);
            let found = exists(problem, &next, places);
            places.pop();
            if found {
                return true;
            }
        }
    }
    false
}

proptest! {
    /// A plan breaks no rule, and it is complete if and only if a legal placement exists.
    #[test]
    fn plan_is_legal_and_complete_if_possible(case in cases()) {
        let snapshot = case.index().snapshot();
        let problem = case.problem(&snapshot);
        let found = plan(&problem, STEPS);
        check(&problem, &found);
        // With topology spread the order of members decides.
        let is_ordered = problem.members.iter().any(|m| m.pod.rules.is_some());
        let exists = is_ordered || exists(&problem, &snapshot, &mut Vec::new());
        prop_assert!(found.is_complete() == exists || is_ordered, "{:?}", found);
        prop_assert!(!found.stopped_by.as_ref().is_some_and(|s| s.causes.iter().any(|(c, _)| *c == Cause::NotTried)));
        // The attempt that always runs is legal too.
        let short = plan(&problem, 0);
        prop_assert!(short.placed() <= found.placed() || !found.is_complete());
    }

    /// With more steps, a complete plan stays complete and never costs more.
    #[test]
    fn plan_with_more_steps_is_no_worse(case in cases(), steps in 0..3000_usize) {
        let snapshot = case.index().snapshot();
        let problem = case.problem(&snapshot);
        let (few, many) = (plan(&problem, steps), plan(&problem, STEPS));
        if few.is_complete() {
            prop_assert!(many.is_complete());
            prop_assert!(many.mean_cost <= few.mean_cost, "{:?} {:?}", few, many);
        }
    }
}
