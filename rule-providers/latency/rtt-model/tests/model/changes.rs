//! Networks without structure, networks that change, and the noise of measured pairs.

use crate::world::{Replay, World, errors, hashed, insert, quantile, quick};
use tautline_rtt_model::{Fit, Model, NodeId};

/// All nodes are on one switch.
fn flat(a: usize, b: usize) -> f32 {
    let height = |node: usize| 15.0 + 30.0 * hashed([5, 5, node as u64]);
    let path = 0.9 + 0.2 * hashed([6, a.min(b) as u64, a.max(b) as u64]);
    path * (80.0 + height(a) + height(b))
}

#[test]
fn on_a_flat_network_all_nodes_are_alike() {
    const NODES: usize = 150;
    let mut model = Model::new(quick(0));
    for node in 0..NODES {
        insert(&mut model, node, None);
    }
    let mut fit = model.fit();
    let mut targets = vec![Vec::new(); NODES];
    for round in 0..8 {
        for (from, targets) in targets.iter_mut().enumerate() {
            model.targets(Some(&fit), NodeId(from as u32), 8, &[], targets);
            for to in targets.iter() {
                let off = hashed([round, from as u64, u64::from(to.0)]) - 0.5;
                let micros = flat(from, to.0 as usize) * (1.0 + 0.04 * off);
                model.observe(NodeId(from as u32), *to, micros, None);
            }
        }
        fit = model.fit();
    }
    let (mut off, mut inside) = (Vec::new(), 0);
    for a in 0..NODES {
        let row = fit.row(NodeId(a as u32)).unwrap();
        for b in (0..a).filter(|b| fit.measured(NodeId(a as u32), NodeId(*b as u32)).is_none()) {
            let (estimate, truth) = (row.estimate(NodeId(b as u32)).unwrap(), flat(a, b));
            off.push((estimate.micros / truth).ln().abs());
            inside += usize::from(estimate.low <= truth && truth <= estimate.high);
        }
    }
    let part = inside as f32 / off.len() as f32;
    let median = quantile(off, 0.5);
    assert!(median < 0.06, "{median}");
    assert!((0.74..=0.90).contains(&part), "{part}");
}

/// The targets of all nodes on a node's side, or of all.
fn measure(world: &World, model: &mut Model, fit: &Fit, round: u64, cut: bool) {
    for from in 0..world.nodes {
        let mut targets = Vec::new();
        model.targets(Some(fit), NodeId(from as u32), 12, &[], &mut targets);
        for to in targets {
            let other = to.0 as usize;
            if !cut || from % 2 == other % 2 {
                let micros = world.sample(from, other, round);
                model.observe(NodeId(from as u32), to, micros, None);
            }
        }
    }
}

#[test]
fn after_a_partition_heals_a_few_fits_are_as_good_as_one_from_nothing() {
    let world = World::new(120, 6);
    let mut model = Model::new(quick(0));
    for node in 0..world.nodes {
        insert(&mut model, node, None);
    }
    let mut fit = model.fit();
    for round in 0..9 {
        measure(&world, &mut model, &fit, round, round < 6);
        fit = model.fit();
    }
    let warm = quantile(errors(&world, &fit), 0.5);
    model.forget_places();
    let cold = quantile(errors(&world, &model.fit()), 0.5);
    assert!(warm < 1.2 * cold, "{warm}, {cold}");
}

#[test]
fn a_network_that_stays_is_not_fitted_anew() {
    let world = World::new(80, 7);
    let (mut model, _) = Replay::new(&world, 10).run(quick(0));
    let before = errors(&world, &model.fit());
    for round in 10..16 {
        let fit = model.fit();
        measure(&world, &mut model, &fit, round, false);
    }
    let after = errors(&world, &model.fit());
    let [before, after] = [before, after].map(|errors| quantile(errors, 0.5));
    assert!(after < 1.1 * before, "{before}, {after}");
}
