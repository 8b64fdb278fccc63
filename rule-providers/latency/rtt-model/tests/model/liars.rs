//! Nodes whose reports are wrong, on networks without labels.

use crate::world::{Replay, World, quantile, quick, unmeasured};
use tautline_rtt_model::{Contradiction, Fit, Model, NodeId};

/// One node in ten reports three times the truth, or a third.
fn lie(node: usize) -> f32 {
    match node % 20 {
        7 => 3.0,
        18 => 1.0 / 3.0,
        _ => 1.0,
    }
}

fn honest(node: usize) -> bool {
    lie(node) == 1.0
}

fn with_liars(world: &World) -> (Model, Fit) {
    Replay {
        report: &|from, _, micros| micros * lie(from),
        ..Replay::new(world, 16)
    }
    .run(quick(0))
}

/// The median error of pairs of honest nodes that neither measured.
fn error(world: &World, fit: &Fit) -> f32 {
    let pairs = unmeasured(world, fit).into_iter();
    let pairs = pairs.filter(|(a, b, _)| honest(*a) && honest(*b));
    let off = pairs.map(|(a, b, e)| (e.micros / world.truth(a, b)).ln().abs());
    quantile(off.collect(), 0.5)
}

#[test]
fn wrong_reports_are_found_without_labels() {
    let world = World::new(160, 11);
    let (_, truthful) = Replay::new(&world, 16).run(quick(0));
    assert_eq!(truthful.contradicted().count(), 0);
    let (_, fit) = with_liars(&world);
    let found: Vec<usize> = fit
        .contradicted()
        .map(|(node, what)| (node.0 as usize, what))
        .inspect(|(_, what)| assert_eq!(*what, Contradiction::Reports))
        .map(|(node, _)| node)
        .collect();
    assert!(found.iter().all(|node| !honest(*node)), "{found:?}");
    assert!(found.len() >= 8, "{found:?} of 16");
    let (without, with) = (error(&world, &truthful), error(&world, &fit));
    assert!(with < 1.25 * without, "{without}, {with}");
}

#[test]
fn nodes_that_lie_no_more_are_taken_back() {
    let world = World::new(160, 11);
    let (mut model, mut fit) = with_liars(&world);
    let liars = fit.contradicted().count();
    assert!(liars > 0);
    for round in 20..24 {
        for from in 0..world.nodes {
            let node = NodeId(from as u32);
            for to in 0..world.nodes {
                if model.sample(node, NodeId(to as u32)).is_some() {
                    let micros = world.sample(from, to, round);
                    model.observe(node, NodeId(to as u32), micros, None);
                }
            }
        }
        fit = model.fit();
    }
    assert_eq!(fit.contradicted().count(), 0, "of {liars}");
}
