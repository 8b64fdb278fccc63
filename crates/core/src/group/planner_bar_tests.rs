//! The share of random clusters in which a planted placement is found.

use super::*;

const CLUSTERS: u64 = 200;

/// A sequence of random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// Returns a cluster in which a placement exists: nodes are points in a plane in three zones, the
/// limit between members is the diameter of the planted set, and in half of the clusters its nodes
/// have just enough room.
fn planted(seed: u64) -> Case {
    let mut dice = Dice(seed);
    let (nodes, members) = (20 + dice.below(41), 4 + dice.below(13));
    let is_tight = dice.below(2) == 0;
    let has_leader = dice.below(3) == 0;
    let mut points = Vec::new();
    let mut case = Case::default();
    for at in 0..nodes {
        let zone = dice.below(3);
        let apart = [(0, 0), (350, 100), (150, 400)][zone];
        points.push((
            apart.0 + dice.below(500) as i64,
            apart.1 + dice.below(500) as i64,
        ));
        // Elsewhere there is room for at most two members.
        case.nodes.push(node_of(
            at,
            dice.below(if is_tight { 2 } else { 3 }) as i64,
            zone,
        ));
    }
    let distance = |a: usize, b: usize| {
        let (a, b) = (points[a], points[b]);
        (((a.0 - b.0).pow(2) + (a.1 - b.1).pow(2)) as f64).sqrt() as i64
    };
    // The planted nodes are some of those near a node.
    let center = dice.below(nodes);
    let mut near: Vec<usize> = (0..nodes).collect();
    near.sort_by_key(|at| distance(center, *at));
    let kinds = 2 + dice.below(members.min(6) - 1);
    near.truncate(kinds * 3 / 2 + 1);
    while near.len() > kinds {
        near.remove(dice.below(near.len()));
    }
    let pairs = near
        .iter()
        .flat_map(|a| near.iter().map(|b| distance(*a, *b)));
    let limit = pairs.max().unwrap();
    let mut planted = vec![0; nodes];
    for member in 0..members {
        let at = if member < near.len() {
            member
        } else {
            dice.below(near.len())
        };
        planted[near[at]] += 1;
    }
    let leader_cores = if has_leader { 3 } else { 1 };
    let (leader, worker) = (case.shape(), case.shape());
    case.members(1, leader, leader_cores * 1000, |_| {});
    case.members(members - 1, worker, 1000, |_| {});
    for (i, at) in near.iter().enumerate() {
        let leads = if i == 0 { leader_cores - 1 } else { 0 };
        let spare = if is_tight { 0 } else { dice.below(2) as i64 };
        case.nodes[*at] = node_of(*at, planted[*at] + leads + spare, dice.below(3));
    }
    // A provider has room for just the planted members in part of the nodes.
    for at in 0..nodes {
        let room = match (dice.below(3), planted[at]) {
            (0, 0) => dice.below(3) as u32,
            (0, planted) => planted as u32,
            _ => u32::MAX,
        };
        let alone = dice.below(1000) as u64;
        for shape in &mut case.shapes {
            shape.room[at] = room;
            shape.alone[at] = Some(alone * (crate::planning::MAX_NORMALIZED_COST / 1000));
        }
    }
    let costs = |a| {
        let cost = |b| match distance(a, b) {
            far if far > limit => -1,
            near => near,
        };
        (0..nodes).map(cost).collect()
    };
    let costs: Vec<Vec<i64>> = (0..nodes).map(costs).collect();
    case.pairs.push((leader, worker, costs.clone()));
    case.pairs.push((worker, worker, costs));
    case
}

/// Places one pod after another, each on its own best node within the limits of those before.
fn one_by_one(problem: &Problem<'_>) -> usize {
    let mut snapshot = problem.snapshot.clone();
    let mut placed: Vec<(usize, usize)> = Vec::new();
    for member in &problem.members {
        let shape = &problem.shapes[member.shape];
        let filter = NodeFilter::new(&snapshot, &member.pod);
        let is_usable = |at: &usize| {
            let node = snapshot.node(&problem.nodes[*at]).unwrap();
            let limits = placed.iter().all(|(s, i)| {
                let between = |p: &&Pair| (p.of, p.other) == (*s, member.shape);
                let mut pairs = problem.pairs.iter().filter(between);
                pairs.all(|p| p.costs.get(*i, *at).is_some())
            });
            let there = placed.iter().filter(|(_, i)| i == at).count();
            limits && there < shape.room[*at] as usize && filter.reason(node).is_none()
        };
        let cost = |at: &usize| {
            let pairs = placed.iter().flat_map(|(s, i)| {
                let between = |p: &&Pair| (p.of, p.other) == (*s, member.shape);
                let pairs = problem.pairs.iter().filter(between);
                pairs.map(|p| u128::from(p.costs.get(*i, *at).unwrap_or_default()))
            });
            let peers = placed.len().max(1) as u128;
            u128::from(shape.alone[*at].unwrap_or(u64::MAX)) + pairs.sum::<u128>() / peers
        };
        let usable = (0..problem.nodes.len()).filter(is_usable);
        let Some(at) = usable.min_by_key(cost) else {
            break;
        };
        drop(filter);
        snapshot = snapshot.with_placed(&member.pod, &problem.nodes[at]);
        placed.push((member.shape, at));
    }
    placed.len()
}

#[test]
fn plan_finds_planted_placements() {
    let (mut joint, mut single, mut steps) = (0, 0, Vec::new());
    for seed in 0..CLUSTERS {
        let case = planted(seed);
        let snapshot = case.index().snapshot();
        let problem = case.problem(&snapshot);
        let found = plan(&problem, STEPS);
        check(&problem, &found);
        steps.push(found.steps);
        joint += u64::from(found.is_complete());
        single += u64::from(one_by_one(&problem) == problem.members.len());
    }
    steps.sort_unstable();
    println!(
        "of {CLUSTERS} clusters: group {joint}, one by one {single}; steps: median {}, most {}",
        steps[steps.len() / 2],
        steps[steps.len() - 1]
    );
    assert!(joint * 100 >= CLUSTERS * 95, "{joint}");
    assert!(single * 2 < CLUSTERS, "the clusters are too easy: {single}");
}

/// Returns nodes of which each two are within the limit by chance, in `tenths` of the cases, and a
/// planted set of nodes that all are.
fn clique(seed: u64, nodes: usize, size: usize, tenths: usize) -> Case {
    let mut dice = Dice(seed);
    let mut case = Case::default();
    for at in 0..nodes {
        case.nodes.push(node_of(at, 1, 0));
    }
    let mut planted: Vec<usize> = (0..nodes).collect();
    while planted.len() > size {
        planted.remove(dice.below(planted.len()));
    }
    let mut costs = vec![vec![-1; nodes]; nodes];
    for (a, b) in (0..nodes).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let both = planted.contains(&a) && planted.contains(&b);
        if both || dice.below(10) < tenths {
            let cost = dice.below(100) as i64;
            (costs[a][b], costs[b][a]) = (cost, cost);
        }
    }
    let shape = case.shape();
    case.members(size, shape, 1000, |_| {});
    case.pairs.push((shape, shape, costs));
    case
}

#[test]
fn plan_goes_back_on_choices_that_lead_nowhere() {
    // With seed 11 every greedy attempt fails.
    for seed in 9..13 {
        let plan = clique(seed, 100, 16, 7).plan();
        assert!(plan.is_complete(), "{seed}");
    }
}

/// Measures a large group: `cargo test --release -- --ignored --nocapture large`.
#[test]
#[ignore = "a measurement"]
fn large_group() {
    for (name, nodes, members, per_node, shapes) in [
        ("512 x 512, one per node", 512, 512, 1, 1),
        ("512 x 512, eight per node", 512, 512, 8, 1),
        ("512 x 512, four shapes", 512, 512, 8, 4),
        ("512 x 512, no room", 512, 512, 0, 1),
        ("16 on 512", 512, 16, 1, 1),
    ] {
        let mut dice = Dice(7);
        let mut case = Case::default();
        let points: Vec<(i64, i64)> = (0..nodes)
            .map(|_| (dice.below(1000) as i64, dice.below(1000) as i64))
            .collect();
        for at in 0..nodes {
            let cpu = if per_node == 0 {
                i64::from(at % 9 > 0)
            } else {
                per_node
            };
            case.nodes.push(node_of(at, cpu, dice.below(3)));
        }
        let limit = if members < 100 {
            300
        } else if per_node == 1 {
            2000
        } else {
            600
        };
        for shape in 0..shapes {
            case.shape();
            case.members(members / shapes, shape, 1000, |_| {});
            for other in 0..=shape {
                let cost = |a: &(i64, i64), b: &(i64, i64)| {
                    let d = (((a.0 - b.0).pow(2) + (a.1 - b.1).pow(2)) as f64).sqrt() as i64;
                    if d > limit { -1 } else { d }
                };
                let row = |a| points.iter().map(|b| cost(a, b)).collect();
                case.pairs
                    .push((shape, other, points.iter().map(row).collect()));
            }
        }
        let snapshot = case.index().snapshot();
        let problem = case.problem(&snapshot);
        for steps in [0, 2_000_000, 10_000_000] {
            let begin = std::time::Instant::now();
            let found = plan(&problem, steps);
            println!(
                "{name}: max {steps}: {} placed, cost {:.4}, {} steps, {:?}",
                found.placed(),
                found.mean_cost as f64 / (1_u64 << 62) as f64,
                found.steps,
                begin.elapsed()
            );
        }
    }
}
