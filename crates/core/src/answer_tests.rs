use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    costs::{CostDetail, Costs},
    index::{Index, Object},
    model::{Node, Pod, Prefer},
    rule_answer::{RuleAnswer, RuleOutcome},
};

/// Nodes `n0`, `n1`, ... with these costs of one rule.
fn planned(costs: &[i64]) -> (Plan, NodeSet) {
    let names: Vec<String> = (0..costs.len()).map(|i| format!("n{i}")).collect();
    let nodes: NodeSet = names.iter().map(String::as_str).collect();
    let mut found = Costs::new(costs.len());
    for (name, cost) in names.iter().zip(costs) {
        found.add(&nodes, name, *cost, CostDetail::default());
    }
    let outcome = RuleOutcome::Costs(found);
    let answer = RuleAnswer {
        offer: 0,
        rule: "r",
        weight: 1,
        prefer: Prefer::default(),
        outcome: &outcome,
    };
    (Plan::new(costs.len(), &[answer]), nodes)
}

fn answer(costs: &[i64], mode: AnswerMode, uid: &str) -> Answer {
    let (plan, nodes) = planned(costs);
    Answer::new(&plan, &nodes, mode, uid, |_| 0)
}

/// Distinct answers for 50 pods.
fn answers(costs: &[i64], mode: AnswerMode) -> BTreeSet<Vec<usize>> {
    let one = |i| answer(costs, mode, &format!("uid-{i}")).nodes;
    (0..50).map(one).collect()
}

#[test]
fn ties_returns_the_nodes_that_tie_for_best() {
    let ties = |costs: &[i64]| answer(costs, AnswerMode::Ties, "uid");
    assert_eq!(ties(&[5, 1, 9, 1, -1]).nodes, [1, 3]);
    assert_eq!(ties(&[5, 1, 9, 1, -1]).tied, 2);
    assert_eq!(ties(&[7, 3]).nodes, [1]);
    assert_eq!(ties(&[-1, -1]), Answer::default());
    assert_eq!(ties(&[]), Answer::default());
}

#[test]
fn ties_returns_at_most_64_nodes_which_vary_by_pod() {
    let many = answer(&[4; 200], AnswerMode::Ties, "uid");
    assert_eq!((many.nodes.len(), many.tied), (MAX_TIES, 200));
    assert!(answers(&[4; 200], AnswerMode::Ties).len() > 40);
}

#[test]
fn decisive_returns_one_of_the_best_which_varies_by_pod() {
    let list = answers(&[5, 5, 9, 5], AnswerMode::Decisive);
    assert_eq!(list, BTreeSet::from([vec![0], vec![1], vec![3]]));
    assert_eq!(answer(&[5, 5, 9, 5], AnswerMode::Decisive, "u").tied, 3);
    assert_eq!(answer(&[-1], AnswerMode::Decisive, "u"), Answer::default());
}

#[test]
fn decisive_prefers_the_node_with_more_free_resources() {
    let (plan, nodes) = planned(&[5, 5, 1, 5, 1]);
    let free = |name: &str| match name {
        "n4" => 2,
        "n1" => 9,
        _ => 1,
    };
    for i in 0..20 {
        let uid = format!("uid-{i}");
        let answer = Answer::new(&plan, &nodes, AnswerMode::Decisive, &uid, free);
        assert_eq!(answer.nodes, [4], "n1 has more, but is not the best");
    }
}

#[test]
fn shortlist_has_the_best_and_varies_by_pod() {
    let costs = [5, 5, 5, 0, 5, 5];
    assert_eq!(answer(&costs, AnswerMode::Shortlist(0), "u").nodes.len(), 6);
    let picks = answers(&costs, AnswerMode::Shortlist(2));
    assert!(picks.iter().all(|p| p.len() == 2 && p.contains(&3)));
    assert_eq!(picks.len(), 5, "every equal node has its turn: {picks:?}");
}

#[test]
fn least_allocated_is_the_mean_free_part_of_cpu_and_memory() {
    let resources = |cpu: i64, memory: i64| -> Resources {
        [("cpu", cpu), ("memory", memory)].into_iter().collect()
    };
    let mut index = Index::default();
    for (name, cpu) in [("small", 4_000), ("large", 8_000)] {
        index.apply(Object::Node(Node {
            name: name.into(),
            allocatable: resources(cpu, 1_000),
            ..Node::default()
        }));
    }
    index.apply(Object::Pod(Pod {
        namespace: "shop".into(),
        name: "web".into(),
        node: Some("large".into()),
        requests: resources(3_000, 500),
        ..Pod::default()
    }));
    let snapshot = index.snapshot();
    let free = |node: &str, cpu| least_allocated(&snapshot, node, &resources(cpu, 0));
    assert_eq!(free("small", 0), 10_000);
    assert_eq!(free("small", 1_000), 8_750);
    assert_eq!(free("large", 1_000), 5_000);
    assert_eq!(
        free("small", 9_000),
        5_000,
        "CPU is overcommitted: none is free"
    );
    assert_eq!(free("gone", 0), 0);
}

proptest! {
    /// Whatever the mode, nodes are usable, sorted and no worse than any other usable node that is
    /// not returned, and ties has the best ones only.
    #[test]
    fn answers_have_the_best_nodes(
        costs in prop::collection::vec(-2..6i64, 0..90),
        most in 0..10usize,
        uid in "[a-f0-9]{1,8}",
    ) {
        let (plan, nodes) = planned(&costs);
        for mode in [AnswerMode::Ties, AnswerMode::Decisive, AnswerMode::Shortlist(most)] {
            let answer = Answer::new(&plan, &nodes, mode, &uid, |_| 0);
            prop_assert!(answer.nodes.is_sorted_by(|a, b| a < b));
            prop_assert!(answer.nodes.iter().all(|at| costs[*at] >= 0));
            let best = costs.iter().filter(|c| **c >= 0).min();
            prop_assert_eq!(answer.tied, costs.iter().filter(|c| Some(*c) == best).count());
            prop_assert_eq!(answer.nodes.is_empty(), best.is_none());
            let worst = answer.nodes.iter().map(|at| costs[*at]).max();
            let missing = (0..costs.len()).filter(|at| costs[*at] >= 0 && !answer.contains(*at));
            prop_assert!(missing.map(|at| costs[at]).min().is_none_or(|m| Some(m) >= worst));
            if mode != AnswerMode::Shortlist(most) {
                prop_assert_eq!(worst, best.copied());
            }
        }
    }
}
