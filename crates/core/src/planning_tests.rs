use proptest::prelude::*;

use super::*;
use crate::{
    answer::{Answer, AnswerMode},
    model::Prefer,
    nodes::NodeSet,
};

const NAMES: [&str; 6] = ["n0", "n1", "n2", "n3", "n4", "n5"];

/// Node, cost, tie-break.
type Lines = Vec<(usize, i64, i64)>;

#[derive(Clone, Debug)]
struct Case {
    offer: usize,
    rule: String,
    weight: u32,
    lines: Option<Lines>,
    reject: bool,
    resolution: i64,
    request_cost: Option<i64>,
    prefer: Prefer,
}

fn outcome(case: &Case, nodes: &NodeSet, factor: i64) -> RuleOutcome {
    match &case.lines {
        None => RuleOutcome::Unavailable {
            code: code::TIMEOUT,
            reject: case.reject,
        },
        Some(lines) => {
            let mut costs = Costs::new(nodes.len());
            costs.resolution = case.resolution.saturating_mul(factor);
            costs.request_cost = case.request_cost.map(|cost| cost.saturating_mul(factor));
            for (node, cost, tie_break) in lines {
                let name = NAMES.get(*node).copied().unwrap_or("elsewhere");
                let note = CostDetail {
                    tie_break: tie_break.saturating_mul(factor),
                    ..CostDetail::default()
                };
                costs.add(nodes, name, cost.saturating_mul(factor), note);
            }
            RuleOutcome::Costs(costs)
        }
    }
}

fn plan(order: &[&str], cases: &[Case], factors: &[i64]) -> Vec<(String, NodeVerdict)> {
    let nodes: NodeSet = order.iter().copied().collect();
    let outcomes: Vec<RuleOutcome> = cases
        .iter()
        .zip(factors)
        .map(|(c, f)| outcome(c, &nodes, *f))
        .collect();
    let answers: Vec<RuleAnswer<'_>> = cases
        .iter()
        .zip(&outcomes)
        .map(|(c, outcome)| RuleAnswer {
            offer: c.offer,
            rule: &c.rule,
            weight: c.weight,
            prefer: c.prefer,
            outcome,
        })
        .collect();
    let plan = Plan::new(nodes.len(), &answers);
    let mut verdicts: Vec<(String, NodeVerdict)> =
        nodes.iter().map(str::to_owned).zip(plan.verdicts).collect();
    verdicts.sort_by(|a, b| a.0.cmp(&b.0));
    verdicts
}

fn case(rule: &str, lines: &[(usize, i64)]) -> Case {
    Case {
        offer: 0,
        rule: rule.into(),
        weight: 1,
        lines: Some(lines.iter().map(|(node, cost)| (*node, *cost, 0)).collect()),
        reject: false,
        resolution: 0,
        request_cost: None,
        prefer: Prefer::default(),
    }
}

fn ones(cases: &[Case]) -> Vec<i64> {
    vec![1; cases.len()]
}

fn means(cases: &[Case]) -> Vec<(String, u64)> {
    let verdicts = plan(&NAMES, cases, &ones(cases)).into_iter();
    verdicts.map(|(node, v)| (node, v.rank().0)).collect()
}

fn scores(cases: &[Case]) -> Vec<(String, u8)> {
    plan(&NAMES[..4], cases, &ones(cases))
        .into_iter()
        .map(|(n, v)| (n, v.score()))
        .collect()
}

fn named(scores: [u8; 4]) -> Vec<(String, u8)> {
    NAMES.iter().map(|n| (*n).to_owned()).zip(scores).collect()
}

#[test]
fn plan_scores_only_the_best_ten() {
    let one = case("latency", &[(0, 10), (1, 20), (2, 15), (3, 11)]);
    assert_eq!(scores(&[one]), named([10, 0, 5, 8]));
    // All equal: the scheduler's own scores decide.
    assert_eq!(
        scores(&[case("latency", &[(0, 7), (1, 7), (2, 7), (3, 7)])]),
        named([10; 4])
    );
}

#[test]
fn plan_weighs_by_weight_and_not_by_unit() {
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
fn resolution_reduces_the_rule_weight() {
    let near = case("latency", &[(0, 0), (1, 2), (2, 1), (3, 4)]);
    let noisy = |resolution| Case {
        resolution,
        ..case("gpu", &[(0, 8), (1, 0), (2, 4), (3, 0)])
    };
    assert_eq!(scores(&[near.clone(), noisy(0)]), named([5, 10, 6, 5]));
    // Half of the difference counts: equal means of three nodes, which all of it orders.
    assert_eq!(scores(&[near.clone(), noisy(4)]), named([7, 10, 7, 5]));
    assert_eq!(scores(&[near.clone(), noisy(8)]), named([10, 7, 8, 5]));
    // The nearest are equal: the rest decides.
    let level = case("latency", &[(0, 0), (1, 0), (2, 0), (3, 4)]);
    assert_eq!(scores(&[level, noisy(8)]), named([9, 10, 9, 5]));
}

#[test]
fn nodes_within_the_request_are_equally_good() {
    let near = |prefer, request_cost| Case {
        request_cost,
        prefer,
        ..case("latency", &[(0, 0), (1, 300), (2, 1_000), (3, 1_001)])
    };
    let within = near(Prefer::WithinRequest, Some(1_000));
    assert_eq!(
        scores(std::slice::from_ref(&within)),
        named([10, 10, 10, 0])
    );
    // Other rules choose among them, and do not overrule the request here.
    let cards = case("gpu", &[(0, 5), (1, 0), (2, 5), (3, 5)]);
    assert_eq!(scores(&[within, cards]), named([5, 10, 5, 0]));
    // No node is within it: the nearest is best.
    let beyond = near(Prefer::WithinRequest, Some(-1));
    assert_eq!(scores(&[beyond]), named([10, 6, 0, 0]));
    let nearest = [
        near(Prefer::Nearest, Some(1_000)),
        near(Prefer::WithinRequest, None),
    ];
    for nearest in nearest {
        assert_eq!(scores(&[nearest]), named([10, 6, 0, 0]));
    }
}

#[test]
fn plan_uses_raw_costs_of_one_rule_in_two_offers() {
    let costs = [(0, 5), (3, 0), (9, 2), (9, 0), (9, 0), (9, 0)];
    let twice = [0, 1].map(|offer| Case {
        offer,
        ..case_of("gpu", 1, &costs, 0)
    });
    assert_eq!(scores(&twice)[1].1, MAX_SCORE, "3 is less than 0 and 5");
}

#[test]
fn offer_of_weight_zero_only_excludes_nodes() {
    let one = case("latency", &[(0, 10), (1, 20), (2, 15), (3, 11)]);
    let silent = Case {
        offer: 1,
        weight: 0,
        ..case("gpu", &[(0, 9), (1, 1), (2, 5), (3, -1)])
    };
    assert_eq!(scores(&[one, silent]), named([10, 0, 5, 0]));
}

#[test]
fn plan_reasons_have_rule_and_code() {
    let nodes: NodeSet = NAMES[..3].iter().copied().collect();
    let mut costs = Costs::new(3);
    let note = |code, freeable| CostDetail {
        code,
        detail: "31ms",
        freeable,
        ..CostDetail::default()
    };
    costs.add(&nodes, "n0", -1, note("Full", true));
    costs.add(&nodes, "n1", -5, note("31ms > 20ms", false));
    let costs = RuleOutcome::Costs(costs);
    let latency = RuleOutcome::Unavailable {
        code: code::TIMEOUT,
        reject: true,
    };
    let gpu = RuleAnswer {
        offer: 0,
        rule: "gpu",
        weight: 1,
        prefer: Prefer::default(),
        outcome: &costs,
    };
    let reason =
        |answers: &[RuleAnswer<'_>], at: usize| match Plan::new(3, answers).verdicts.remove(at) {
            NodeVerdict::Unusable { reason, freeable } => (reason, freeable),
            usable => panic!("{usable:?}"),
        };
    assert_eq!(reason(&[gpu], 0), ("gpu/Full".into(), true));
    assert_eq!(reason(&[gpu], 1), ("gpu/Unusable".into(), false));
    assert_eq!(reason(&[gpu], 2), ("gpu/NoCost".into(), false));
    // Reasons that preemption cannot fix come first.
    let both = [
        gpu,
        RuleAnswer {
            offer: 1,
            rule: "latency",
            weight: 1,
            prefer: Prefer::default(),
            outcome: &latency,
        },
    ];
    assert_eq!(reason(&both, 0), ("latency/ProviderTimeout".into(), false));
}

#[test]
fn costs_add_counts_unknown_and_duplicate_nodes() {
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
        costs.add(&nodes, node, cost, CostDetail::default());
    }
    assert_eq!((costs.get(0), costs.get(1)), (Some(9), Some(-1)));
    assert_eq!((costs.duplicate_nodes, costs.unknown_nodes), (4, 1));
}

#[test]
fn costs_add_keeps_the_worst_line() {
    let nodes: NodeSet = NAMES[..3].iter().copied().collect();
    let mut costs = Costs::new(3);
    let note = |code, detail| CostDetail {
        code,
        detail,
        ..CostDetail::default()
    };
    costs.add(&nodes, "n0", 5, note("", "near"));
    assert_eq!(costs.detail(1), None);
    costs.add(&nodes, "n1", -1, note("Full", "8 of 8"));
    costs.add(&nodes, "n2", -1, note("Full", "9 of 9"));
    costs.add(&nodes, "n0", 9, CostDetail::default());
    costs.add(&nodes, "n1", -2, note("Far", ""));
    costs.add(&nodes, "n2", 7, note("", "well"));
    let actual = [0, 1, 2].map(|at| (costs.get(at), costs.detail(at)));
    assert_eq!(
        actual,
        [
            (Some(9), None),
            (Some(-2), Some(note("Far", ""))),
            (Some(-1), Some(note("Full", "9 of 9"))),
        ]
    );
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

/// A resolution or a tie-break: often none, at times nonsense.
fn noise() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        0..20i64,
        -1..1_000_000i64,
        Just(i64::MAX),
        Just(i64::MIN)
    ]
}

fn all_nodes(cost: std::ops::Range<i64>) -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec((cost, 0..2_000_000i64), NAMES.len())
}

fn case_of(rule: &str, weight: u32, costs: &[(i64, i64)], resolution: i64) -> Case {
    let line = |(at, (net, tie_break)): (usize, &(i64, i64))| (at, net + tie_break, *tie_break);
    Case {
        weight,
        lines: Some(costs.iter().enumerate().map(line).collect()),
        resolution,
        ..case(rule, &[])
    }
}

fn cases(cost: impl Strategy<Value = i64>) -> impl Strategy<Value = Vec<Case>> {
    let (resolution, tie_break) = (noise(), noise());
    let lines = prop::collection::vec((0..8usize, cost, tie_break), 0..12);
    let lines = prop::option::weighted(0.9, lines);
    let request = (prop::option::of(-1..1_000i64), any::<bool>());
    let one = (
        0..3usize,
        "[ab]",
        0..4u32,
        lines,
        any::<bool>(),
        resolution,
        request,
    );
    let one = one.prop_map(
        |(offer, rule, weight, lines, reject, resolution, (request_cost, nearest))| Case {
            offer,
            rule,
            weight,
            lines,
            reject,
            resolution,
            request_cost,
            prefer: match nearest {
                true => Prefer::Nearest,
                false => Prefer::WithinRequest,
            },
        },
    );
    prop::collection::vec(one, 0..5)
}

proptest! {
    #[test]
    fn plan_is_independent_of_order(
        (all, shuffled) in cases(cost()).prop_flat_map(|c| (Just(c.clone()), Just(c).prop_shuffle())),
        order in Just(NAMES.to_vec()).prop_shuffle(),
        most in 1..6usize,
    ) {
        let shuffled: Vec<Case> = shuffled.into_iter().map(|mut c| {
            if let Some(lines) = &mut c.lines { lines.reverse(); }
            c
        }).collect();
        let ones = ones(&all);
        let a = plan(&NAMES, &all, &ones);
        prop_assert_eq!(&a, &plan(&order, &shuffled, &ones));

        let short = |names: &[&str], cases: &[Case]| {
            let nodes: NodeSet = names.iter().copied().collect();
            let verdicts = plan(names, cases, &ones);
            let by_name = |n: &str| verdicts.iter().find(|(m, _)| m == n).unwrap().1.clone();
            let plan = Plan { verdicts: nodes.iter().map(by_name).collect() };
            let mode = AnswerMode::Shortlist(most);
            let answer = Answer::new(&plan, &nodes, mode, "uid", |_| 0);
            let mut list: Vec<String> = answer.nodes.into_iter()
                .map(|at| nodes.name(at).to_owned()).collect();
            list.sort();
            list
        };
        prop_assert_eq!(short(&NAMES, &all), short(&order, &shuffled));
    }

    /// Scores are 0..=10, and some usable node has 10.
    #[test]
    fn plan_requires_a_cost_from_every_rule(all in cases(cost())) {
        let verdicts = plan(&NAMES, &all, &ones(&all));
        for (at, (_, verdict)) in verdicts.iter().enumerate() {
            let admitted = all.iter().all(|c| match &c.lines {
                None => !c.reject,
                Some(lines) => {
                    let mut own = lines.iter().filter(|(n, ..)| *n == at).peekable();
                    own.peek().is_some() && own.all(|(_, cost, _)| *cost >= 0)
                }
            });
            prop_assert_eq!(verdict.is_usable(), admitted);
            prop_assert!(verdict.score() <= MAX_SCORE);
            let (mean, tie_break) = verdict.rank();
            prop_assert!(!admitted || mean <= FIXED_POINT_ONE && tie_break <= FIXED_POINT_ONE);
        }
        let best = verdicts.iter().filter(|(_, v)| v.is_usable()).map(|(_, v)| v.score()).max();
        prop_assert!(best.is_none_or(|b| b == MAX_SCORE));
    }

    /// Without resolution and tie-breaks nothing but the weighted mean orders nodes.
    #[test]
    fn plan_without_resolution_counts_every_difference(
        rules in prop::collection::vec((1..4u32, prop::collection::vec(0..99i64, 6), -5..=0i64), 1..4),
    ) {
        let all: Vec<Case> = rules.iter().map(|(weight, costs, resolution)| {
            let costs: Vec<(i64, i64)> = costs.iter().map(|cost| (*cost, 0)).collect();
            case_of("r", *weight, &costs, *resolution)
        }).collect();
        let weights: u128 = rules.iter().map(|(weight, ..)| u128::from(*weight)).sum();
        for (at, (_, verdict)) in plan(&NAMES, &all, &ones(&all)).iter().enumerate() {
            let sum: u128 = rules.iter().map(|(weight, costs, _)| {
                let (low, high) = (*costs.iter().min().unwrap(), *costs.iter().max().unwrap());
                let (above, span) = ((costs[at] - low) as u128, (high - low).max(1) as u128);
                u128::from(*weight) * (above * u128::from(FIXED_POINT_ONE) / span)
            }).sum();
            prop_assert_eq!(verdict.rank(), ((sum / weights) as u64, 0));
        }
    }

    /// A rule that decides alone orders nodes by its costs as they are.
    #[test]
    fn plan_keeps_the_cost_order_of_a_single_rule(
        costs in all_nodes(0..1_000_000),
        resolution in noise(),
        equal in any::<bool>(),
    ) {
        let mut all = vec![case_of("gpu", 2, &costs, resolution)];
        let others: Vec<(i64, i64)> = costs.iter().map(|_| (7, 0)).collect();
        all.extend(equal.then(|| case_of("latency", 1, &others, 0)));
        let ranks: Vec<(u64, u64)> =
            plan(&NAMES, &all, &ones(&all)).iter().map(|(_, v)| v.rank()).collect();
        for (a, (net_a, tie_a)) in costs.iter().enumerate() {
            for (b, (net_b, tie_b)) in costs.iter().enumerate() {
                prop_assert_eq!(ranks[a].cmp(&ranks[b]), (net_a + tie_a).cmp(&(net_b + tie_b)));
            }
        }
    }

    /// Whatever its resolution and tie-breaks are: a node within the request beats one beyond it,
    /// those within it tie, and those beyond it keep their order.
    #[test]
    fn a_node_within_the_request_beats_one_beyond_it(
        costs in all_nodes(0..40),
        request in -1..41i64,
        resolution in noise(),
        equal in any::<bool>(),
    ) {
        let mut all = vec![Case {
            request_cost: Some(request),
            ..case_of("latency", 2, &costs, resolution)
        }];
        let others: Vec<(i64, i64)> = costs.iter().map(|_| (7, 0)).collect();
        all.extend(equal.then(|| case_of("gpu", 1, &others, 0)));
        let verdicts = plan(&NAMES, &all, &ones(&all));
        let expected = |at: usize| match costs[at] {
            (net, _) if net <= request => (false, 0),
            (net, tie_break) => (true, net + tie_break),
        };
        for a in 0..NAMES.len() {
            for b in 0..NAMES.len() {
                let (va, vb) = (&verdicts[a].1, &verdicts[b].1);
                prop_assert_eq!(va.rank().cmp(&vb.rank()), expected(a).cmp(&expected(b)));
                prop_assert!(expected(a) >= expected(b) || va.score() >= vb.score());
            }
        }
    }

    #[test]
    fn resolution_hides_small_differences(
        other in cases(-1..1_000i64),
        costs in all_nodes(0..500),
        weight in 0..1000u32,
        resolution in 499..i64::MAX,
    ) {
        let equal: Vec<(i64, i64)> = costs.iter().map(|_| (1, 0)).collect();
        let with = |case: Case| [&other[..], &[case]].concat();
        let noisy = with(case_of("c", weight, &costs, resolution));
        let equal = with(case_of("c", weight, &equal, 0));
        prop_assert_eq!(means(&noisy), means(&equal));
    }

    #[test]
    fn tie_break_overrules_no_other_rule(
        costs in all_nodes(0..20),
        other in all_nodes(0..20),
        weight in 1..1000u32,
        resolution in 0..10i64,
    ) {
        let net: Vec<(i64, i64)> = costs.iter().map(|(net, _)| (*net, 0)).collect();
        let spread = |costs: &[(i64, i64)]| {
            let costs = || costs.iter().map(|(net, _)| *net);
            costs().max().unwrap() - costs().min().unwrap()
        };
        prop_assume!(spread(&costs) > resolution && spread(&other) > 0);
        let with = |costs: &[(i64, i64)]| {
            [case_of("gpu", weight, costs, resolution), case_of("latency", 1, &other, 0)]
        };
        prop_assert_eq!(means(&with(&costs)), means(&with(&net)));
    }

    #[test]
    fn plan_is_independent_of_units(
        mut all in cases(-1..1_000_000i64),
        factors in prop::collection::vec(1..1_000_000i64, 5),
    ) {
        for case in &mut all {
            case.resolution = case.resolution.min(1_000_000);
        }
        prop_assert_eq!(plan(&NAMES, &all, &[1; 5]), plan(&NAMES, &all, &factors));
    }
}
