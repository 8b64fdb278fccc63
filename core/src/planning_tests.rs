use proptest::prelude::*;

use super::*;

const NAMES: [&str; 6] = ["n0", "n1", "n2", "n3", "n4", "n5"];

/// A provider's answer as a test writes it: node, cost.
type Lines = Vec<(usize, i64)>;

#[derive(Clone, Debug)]
struct Case {
    offer: usize,
    rule: String,
    weight: u32,
    lines: Option<Lines>,
    reject: bool,
}

fn outcome(case: &Case, nodes: &NodeSet, factor: i64) -> Outcome {
    match &case.lines {
        None => Outcome::Unavailable {
            code: code::TIMEOUT,
            reject: case.reject,
        },
        Some(lines) => {
            let mut costs = Costs::new(nodes.len());
            for (node, cost) in lines {
                let name = NAMES.get(*node).copied().unwrap_or("elsewhere");
                costs.add(nodes, name, cost.saturating_mul(factor), Note::default());
            }
            Outcome::Costs(costs)
        }
    }
}

/// Verdicts by node name.
fn plan(order: &[&str], cases: &[Case], factors: &[i64]) -> Vec<(String, Verdict)> {
    let nodes: NodeSet = order.iter().copied().collect();
    let outcomes: Vec<Outcome> = cases
        .iter()
        .zip(factors)
        .map(|(c, f)| outcome(c, &nodes, *f))
        .collect();
    let answers: Vec<Answer<'_>> = cases
        .iter()
        .zip(&outcomes)
        .map(|(c, outcome)| Answer {
            offer: c.offer,
            rule: &c.rule,
            weight: c.weight,
            outcome,
        })
        .collect();
    let plan = Plan::make(nodes.len(), &answers);
    let mut verdicts: Vec<(String, Verdict)> =
        nodes.iter().map(str::to_owned).zip(plan.verdicts).collect();
    verdicts.sort_by(|a, b| a.0.cmp(&b.0));
    verdicts
}

fn case(rule: &str, lines: &[(usize, i64)]) -> Case {
    Case {
        offer: 0,
        rule: rule.into(),
        weight: 1,
        lines: Some(lines.to_vec()),
        reject: false,
    }
}

fn scores(cases: &[Case]) -> Vec<(String, u8)> {
    plan(&NAMES[..4], cases, &vec![1; cases.len()])
        .into_iter()
        .map(|(n, v)| (n, v.score()))
        .collect()
}

fn named(scores: [u8; 4]) -> Vec<(String, u8)> {
    NAMES.iter().map(|n| (*n).to_owned()).zip(scores).collect()
}

#[test]
fn the_best_alone_gets_ten_and_the_rest_by_their_cost() {
    let one = case("latency", &[(0, 10), (1, 20), (2, 15), (3, 11)]);
    assert_eq!(scores(&[one]), named([10, 0, 5, 8]));
    // All equal: the scheduler's own scores decide.
    assert_eq!(
        scores(&[case("latency", &[(0, 7), (1, 7), (2, 7), (3, 7)])]),
        named([10; 4])
    );
}

#[test]
fn units_do_not_weigh_weights_do() {
    let micros = case(
        "latency",
        &[(0, 0), (1, 1_000_000), (2, 500_000), (3, 900_000)],
    );
    let cards = case("gpu", &[(0, 2), (1, 0), (2, 1), (3, 2)]);
    assert_eq!(
        scores(&[micros.clone(), cards.clone()]),
        named([10, 10, 10, 0])
    );
    let heavy = Case {
        weight: 3,
        ..micros
    };
    assert_eq!(scores(&[heavy, cards]), named([10, 2, 5, 1]));
}

#[test]
fn an_offer_of_weight_zero_only_keeps_nodes_out() {
    let one = case("latency", &[(0, 10), (1, 20), (2, 15), (3, 11)]);
    let silent = Case {
        offer: 1,
        weight: 0,
        ..case("gpu", &[(0, 9), (1, 1), (2, 5), (3, -1)])
    };
    assert_eq!(scores(&[one, silent]), named([10, 0, 5, 0]));
}

#[test]
fn reasons_name_the_rule_and_a_stable_code() {
    let nodes: NodeSet = NAMES[..3].iter().copied().collect();
    let mut costs = Costs::new(3);
    let note = |code, freeable| Note {
        code,
        detail: "31ms",
        freeable,
    };
    costs.add(&nodes, "n0", -1, note("Full", true));
    costs.add(&nodes, "n1", -5, note("31ms > 20ms", false));
    let costs = Outcome::Costs(costs);
    let latency = Outcome::Unavailable {
        code: code::TIMEOUT,
        reject: true,
    };
    let gpu = Answer {
        offer: 0,
        rule: "gpu",
        weight: 1,
        outcome: &costs,
    };
    let reason =
        |answers: &[Answer<'_>], at: usize| match Plan::make(3, answers).verdicts.remove(at) {
            Verdict::Unusable { reason, freeable } => (reason, freeable),
            usable => panic!("{usable:?}"),
        };
    assert_eq!(reason(&[gpu], 0), ("gpu/Full".into(), true));
    assert_eq!(reason(&[gpu], 1), ("gpu/Unusable".into(), false));
    assert_eq!(reason(&[gpu], 2), ("gpu/NoCost".into(), false));
    // What preemption cannot help is said before what it can.
    let both = [
        gpu,
        Answer {
            offer: 1,
            rule: "latency",
            weight: 1,
            outcome: &latency,
        },
    ];
    assert_eq!(reason(&both, 0), ("latency/ProviderTimeout".into(), false));
}

#[test]
fn duplicates_and_unknown_nodes_are_counted_and_the_worst_counts() {
    let nodes: NodeSet = NAMES[..2].iter().copied().collect();
    let mut costs = Costs::new(2);
    for (node, cost) in [
        ("n0", 5),
        ("n0", 9),
        ("n0", 7),
        ("n1", 4),
        ("n1", -1),
        ("n1", 8),
        ("x", 1),
    ] {
        costs.add(&nodes, node, cost, Note::default());
    }
    assert_eq!((costs.get(0), costs.get(1)), (Some(9), Some(-1)));
    assert_eq!((costs.duplicate_nodes, costs.unknown_nodes), (4, 1));
}

#[test]
fn the_worst_line_of_a_node_leaves_its_note() {
    let nodes: NodeSet = NAMES[..3].iter().copied().collect();
    let mut costs = Costs::new(3);
    let note = |code, detail| Note {
        code,
        detail,
        freeable: false,
    };
    costs.add(&nodes, "n0", 5, note("", "near"));
    assert_eq!(costs.note(1), None);
    costs.add(&nodes, "n1", -1, note("Full", "8 of 8"));
    costs.add(&nodes, "n2", -1, note("Full", "9 of 9"));
    costs.add(&nodes, "n0", 9, Note::default());
    costs.add(&nodes, "n1", -2, note("Far", ""));
    costs.add(&nodes, "n2", 7, note("", "well"));
    let said = [0, 1, 2].map(|at| (costs.get(at), costs.note(at)));
    assert_eq!(
        said,
        [
            (Some(9), None),
            (Some(-2), Some(note("Far", ""))),
            (Some(-1), Some(note("Full", "9 of 9"))),
        ]
    );
}

#[test]
fn a_shortlist_keeps_the_best_and_spreads_equals() {
    let nodes: NodeSet = NAMES.iter().copied().collect();
    let mut costs = Costs::new(6);
    for (i, name) in NAMES.iter().enumerate() {
        costs.add(&nodes, name, if i == 3 { 0 } else { 5 }, Note::default());
    }
    let outcome = Outcome::Costs(costs);
    let plan = Plan::make(
        6,
        &[Answer {
            offer: 0,
            rule: "r",
            weight: 1,
            outcome: &outcome,
        }],
    );
    assert_eq!(plan.shortlist(&nodes, 0, "u").len(), 6);
    let picks: std::collections::BTreeSet<Vec<usize>> = (0..50)
        .map(|u| {
            let list = plan.shortlist(&nodes, 2, &format!("uid-{u}"));
            assert!(list.contains(&3) && list.len() == 2, "{list:?}");
            list
        })
        .collect();
    assert_eq!(picks.len(), 5, "every equal node has its turn: {picks:?}");
}

fn cost() -> impl Strategy<Value = i64> {
    prop_oneof![
        0..20i64,
        Just(-1),
        any::<i64>(),
        Just(i64::MAX),
        Just(i64::MIN)
    ]
}

fn cases(cost: impl Strategy<Value = i64>) -> impl Strategy<Value = Vec<Case>> {
    let lines = prop::option::weighted(0.9, prop::collection::vec((0..8usize, cost), 0..12));
    let one = (0..3usize, "[ab]", 0..4u32, lines, any::<bool>()).prop_map(
        |(offer, rule, weight, lines, reject)| Case {
            offer,
            rule,
            weight,
            lines,
            reject,
        },
    );
    prop::collection::vec(one, 0..5)
}

proptest! {
    /// Neither the order of rules, of nodes nor of a provider's lines matters.
    #[test]
    fn order_never_matters(
        (all, shuffled) in cases(cost()).prop_flat_map(|c| (Just(c.clone()), Just(c).prop_shuffle())),
        order in Just(NAMES.to_vec()).prop_shuffle(),
        most in 1..6usize,
    ) {
        let shuffled: Vec<Case> = shuffled.into_iter().map(|mut c| {
            if let Some(lines) = &mut c.lines { lines.reverse(); }
            c
        }).collect();
        let ones = vec![1; all.len()];
        let a = plan(&NAMES, &all, &ones);
        prop_assert_eq!(&a, &plan(&order, &shuffled, &ones));

        let short = |names: &[&str], cases: &[Case]| {
            let nodes: NodeSet = names.iter().copied().collect();
            let verdicts = plan(names, cases, &ones);
            let by_name = |n: &str| verdicts.iter().find(|(m, _)| m == n).unwrap().1.clone();
            let plan = Plan { verdicts: nodes.iter().map(by_name).collect() };
            let mut list: Vec<String> = plan.shortlist(&nodes, most, "uid").into_iter()
                .map(|at| nodes.name(at).to_owned()).collect();
            list.sort();
            list
        };
        prop_assert_eq!(short(&NAMES, &all), short(&order, &shuffled));
    }

    /// A node with a negative or missing cost is never usable; scores are 0..=10
    /// and some usable node has 10.
    #[test]
    fn usable_means_a_cost_from_every_rule(all in cases(cost())) {
        let verdicts = plan(&NAMES, &all, &vec![1; all.len()]);
        for (at, (_, verdict)) in verdicts.iter().enumerate() {
            let admitted = all.iter().all(|c| match &c.lines {
                None => !c.reject,
                Some(lines) => {
                    let mut own = lines.iter().filter(|(n, _)| *n == at).peekable();
                    own.peek().is_some() && own.all(|(_, cost)| *cost >= 0)
                }
            });
            prop_assert_eq!(verdict.is_usable(), admitted);
            prop_assert!(verdict.score() <= MAX_SCORE);
        }
        let best = verdicts.iter().filter(|(_, v)| v.is_usable()).map(|(_, v)| v.score()).max();
        prop_assert!(best.is_none_or(|b| b == MAX_SCORE));
    }

    /// Milliseconds or microseconds: a rule's unit changes no decision.
    #[test]
    fn the_unit_of_a_rule_changes_nothing(
        all in cases(-1..1_000_000i64),
        factors in prop::collection::vec(1..1_000_000i64, 5),
    ) {
        prop_assert_eq!(plan(&NAMES, &all, &[1; 5]), plan(&NAMES, &all, &factors));
    }
}
