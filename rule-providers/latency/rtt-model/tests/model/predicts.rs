//! What is predicted, and how surely, on a world whose truth is known.

use crate::world::{Replay, World, errors, insert, quantile, quick, unmeasured};
use tautline_rtt_model::{Fit, NodeId};

/// How much the estimates that leave out a node moved between two fits of the
/// pairs that neither measured, as the logarithm's size.
fn moved(world: &World, one: &Fit, other: &Fit, without: usize) -> Vec<f32> {
    let pairs = unmeasured(world, one).into_iter();
    let pairs = pairs.filter(|(a, b, _)| *a != without && *b != without);
    pairs
        .filter_map(|(a, b, before)| {
            let after = other.row(NodeId(a as u32))?.estimate(NodeId(b as u32))?;
            Some((after.micros / before.micros).ln().abs())
        })
        .collect()
}

#[test]
fn pairs_that_were_not_measured_are_predicted() {
    let world = World::new(150, 1);
    let (_, fit) = Replay::new(&world, 12).run(quick(0));
    let off = errors(&world, &fit);
    assert!(off.len() > 9_000);
    let (median, p90) = (quantile(off.clone(), 0.5), quantile(off, 0.9));
    assert!(median < 0.06 && p90 < 0.25, "median {median}, p90 {p90}");
}

#[test]
fn four_in_five_error_bars_hold_the_truth() {
    for labelled in [false, true] {
        let (mut inside, mut all) = (0, 0);
        for seed in 0..3 {
            let world = World::new(120, seed);
            let mut replay = Replay::new(&world, 12);
            let site = |node| Some(world.site(node));
            if labelled {
                replay.site = &site;
            }
            let (_, fit) = replay.run(quick(seed));
            for (a, b, e) in unmeasured(&world, &fit) {
                let truth = world.truth(a, b);
                inside += usize::from(e.low <= truth && truth <= e.high);
                all += 1;
            }
        }
        let part = inside as f32 / all as f32;
        assert!((0.75..=0.90).contains(&part), "labelled {labelled}: {part}");
    }
}

#[test]
fn an_estimate_is_the_same_both_ways_and_within_its_bar() {
    let world = World::new(60, 2);
    let site = |node| (node % 3 > 0).then(|| world.site(node));
    let (_, fit) = Replay {
        site: &site,
        ..Replay::new(&world, 8)
    }
    .run(quick(0));
    let rows: Vec<_> = (0..60).map(|n| fit.row(NodeId(n)).unwrap()).collect();
    for (a, row) in rows.iter().enumerate() {
        assert!(row.estimate(NodeId(a as u32)).is_none(), "a node to itself");
        for (b, back) in rows.iter().enumerate().filter(|(b, _)| *b != a) {
            let there = row.estimate(NodeId(b as u32)).unwrap();
            let back = back.estimate(NodeId(a as u32)).unwrap();
            assert!((there.micros / back.micros - 1.0).abs() < 1e-3, "{a} {b}");
            assert!((there.high / back.high - 1.0).abs() < 1e-2, "{a} {b}");
            assert!(there.low <= there.micros && there.micros <= there.high);
        }
    }
}

#[test]
fn a_measured_pair_is_answered_with_its_own_time() {
    let world = World::new(40, 3);
    let (model, fit) = Replay::new(&world, 8).run(quick(0));
    let (a, b) = (NodeId(0), NodeId(1));
    let mut model = model;
    model.forget(a, b);
    model.forget(b, a);
    model.observe(a, b, 777.0, None);
    assert_ne!(fit.measured(a, b), Some(777.0));
    let fit = model.fit();
    let estimate = fit.row(b).unwrap().estimate(a).unwrap();
    assert!((estimate.micros - 777.0).abs() < 0.1, "{estimate:?}");
}

#[test]
fn a_measured_pair_has_the_bar_of_its_own_samples() {
    let world = World::new(40, 3);
    let (mut model, _) = Replay::new(&world, 8).run(quick(0));
    let spread = |to: u32| if to.is_multiple_of(2) { 0.2 } else { 0.03 };
    for to in 1..9 {
        let micros = world.truth(0, to as usize);
        model.observe(NodeId(0), NodeId(to), micros, Some(spread(to)));
    }
    let row = model.fit().row(NodeId(0)).unwrap();
    let bar = |to: u32| {
        let estimate = row.estimate(NodeId(to)).unwrap();
        (estimate.high / estimate.micros).ln()
    };
    for (noisy, quiet) in [(2, 1), (4, 3), (6, 5), (8, 7)] {
        assert!(
            bar(noisy) > 2.0 * bar(quiet),
            "{} {}",
            bar(noisy),
            bar(quiet)
        );
    }
}

#[test]
fn misreporting_node_moves_the_others_little() {
    let world = World::new(100, 4);
    let (_, honest) = Replay::new(&world, 12).run(quick(0));
    for lie in [1.0, 9e6] {
        let report = |from: usize, _: usize, micros: f32| if from == 7 { lie } else { micros };
        let (_, fit) = Replay {
            report: &report,
            ..Replay::new(&world, 12)
        }
        .run(quick(0));
        let moved = moved(&world, &honest, &fit, 7);
        let median = quantile(moved, 0.5);
        let off: Vec<f32> = unmeasured(&world, &fit)
            .iter()
            .filter(|(a, b, _)| *a != 7 && *b != 7)
            .map(|(a, b, e)| (e.micros / world.truth(*a, *b) - 1.0).abs())
            .collect();
        let p90 = quantile(off, 0.9);
        assert!(median < 0.08 && p90 < 0.35, "lie {lie}: {median} {p90}");
    }
}

#[test]
fn a_wrong_label_is_found_and_moves_the_others_little() {
    let world = World::new(120, 5);
    let right = |node: usize| Some(world.site(node));
    let wrong = |node: usize| Some(world.site(if node == 7 { 8 } else { node }));
    let with = |site: &dyn Fn(usize) -> Option<usize>| {
        Replay {
            site,
            ..Replay::new(&world, 12)
        }
        .run(quick(0))
        .1
    };
    let (before, after) = (with(&right), with(&wrong));
    assert_eq!(before.with_contradicted_labels().count(), 0);
    let contradicted: Vec<NodeId> = after.with_contradicted_labels().collect();
    assert_eq!(contradicted, [NodeId(7)]);
    let moved = moved(&world, &before, &after, 7);
    let (median, p99) = (quantile(moved.clone(), 0.5), quantile(moved, 0.99));
    assert!(median < 0.02 && p99 < 0.3, "{median} {p99}");
    let row = after.row(NodeId(7)).unwrap();
    let off = (0..120).filter(|n| *n != 7).map(|n| {
        let estimate = row.estimate(NodeId(n)).unwrap().micros;
        (estimate / world.truth(7, n as usize) - 1.0).abs()
    });
    assert!(quantile(off.collect(), 0.5) < 0.2);
}

#[test]
fn fits_that_go_on_are_as_good_as_one_from_nothing() {
    let world = World::new(100, 6);
    let (mut model, warm) = Replay::new(&world, 12).run(quick(0));
    model.forget_places();
    let cold = model.fit();
    let median = |fit| quantile(errors(&world, fit), 0.5);
    assert!(median(&warm) < 1.25 * median(&cold) + 0.005);
}

#[test]
fn a_node_that_comes_is_placed_by_the_next_fit() {
    let world = World::new(101, 7);
    let first = World::new(100, 7);
    let (mut model, _) = Replay::new(&first, 12).run(quick(0));
    let new = insert(&mut model, 100, None);
    for to in (0..100).step_by(7) {
        model.observe(new, NodeId(to as u32), world.sample(100, to, 0), None);
    }
    let row = model.fit().row(new).unwrap();
    let off = (0..100).map(|n| {
        let estimate = row.estimate(NodeId(n)).unwrap().micros;
        (estimate / world.truth(100, n as usize) - 1.0).abs()
    });
    let median = quantile(off.collect(), 0.5);
    assert!(median < 0.15, "{median}");
}

#[test]
fn unmeasured_node_is_estimated_from_labels() {
    let world = World::new(100, 8);
    let site = |node| Some(world.site(node));
    let (mut model, fit) = Replay {
        site: &site,
        ..Replay::new(&world, 12)
    }
    .run(quick(0));
    assert!(fit.row(NodeId(100)).is_none());
    let new = insert(&mut model, 100, Some(world.site(100)));
    let fit = model.fit();
    assert!(!fit.knows(new));
    let estimate = fit.row(NodeId(3)).unwrap().estimate(new).unwrap();
    let truth = world.truth(3, 100);
    assert!(
        (estimate.micros / truth).ln().abs() < 0.4,
        "{estimate:?} {truth}"
    );
}
