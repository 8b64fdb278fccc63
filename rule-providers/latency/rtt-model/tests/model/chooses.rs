//! The choice of targets.

use crate::world::{Replay, World, insert, quick};
use tautline_rtt_model::{Labels, Model, NodeId, Options};

fn names(model: &Model, node: usize, k: usize, nodes: usize) -> Vec<usize> {
    let mut out = Vec::new();
    if let Some(id) = model.node(&format!("node-{node}")) {
        model.targets(None, id, k, &[], &mut out);
    }
    assert!(!out.is_empty());
    let name = |t: &NodeId| (0..nodes).find(|n| model.node(&format!("node-{n}")) == Some(*t));
    let mut names: Vec<usize> = out.iter().filter_map(name).collect();
    names.sort();
    names
}

#[test]
fn replicas_that_met_the_nodes_in_another_order_choose_alike() {
    let (mut one, mut two) = (
        Model::new(Options::default()),
        Model::new(Options::default()),
    );
    for n in 0..50 {
        insert(&mut one, n, None);
        insert(&mut two, 49 - n, None);
    }
    for n in 0..50 {
        assert_eq!(names(&one, n, 16, 50), names(&two, n, 16, 50));
    }
}

#[test]
fn a_node_that_comes_moves_few_targets() {
    let mut model = Model::new(Options::default());
    for n in 0..60 {
        insert(&mut model, n, None);
    }
    let before: Vec<_> = (0..60).map(|n| names(&model, n, 16, 61)).collect();
    insert(&mut model, 60, None);
    for (n, before) in before.iter().enumerate() {
        let after = names(&model, n, 16, 61);
        let unchanged = before.iter().filter(|t| after.contains(t)).count();
        assert!(unchanged + 2 >= before.len(), "{n}: {before:?} {after:?}");
    }
}

#[test]
fn excluded_nodes_are_no_targets_and_take_no_places() {
    let mut model = Model::new(Options::default());
    for n in 0..50 {
        insert(&mut model, n, None);
    }
    for n in 20..50 {
        let node = model.node(&format!("node-{n}")).unwrap();
        model.exclude(node);
        model.relabel(node, Labels::default());
    }
    let others: Vec<usize> = (0..20).filter(|n| *n != 7).collect();
    let mut targets = names(&model, 7, 32, 50);
    // Places for near targets stay free until a fit knows the node.
    assert!(targets.len() >= 16, "{targets:?}");
    targets.retain(|t| !others.contains(t));
    assert!(targets.is_empty(), "{targets:?}");
}

#[test]
fn half_of_a_labelled_nodes_targets_are_in_its_zone() {
    let world = World::new(200, 1);
    let mut model = Model::new(Options::default());
    for n in 0..200 {
        insert(&mut model, n, Some(world.site(n)));
    }
    let mut out = Vec::new();
    model.targets(None, NodeId(3), 16, &[], &mut out);
    let zone = |t: &&NodeId| world.site(t.0 as usize) == 3;
    assert_eq!(out.len(), 16);
    assert!(
        (8..=12).contains(&out.iter().filter(zone).count()),
        "{out:?}"
    );
}

#[test]
fn near_targets_are_found_and_retained() {
    let world = World::new(200, 2);
    let (mut model, fit) = Replay::new(&world, 16).run(quick(0));
    let near = |targets: &[NodeId], from: usize| {
        let same = |t: &&NodeId| world.site(t.0 as usize) == world.site(from);
        targets.iter().filter(same).count()
    };
    let (mut with, mut moved) = (0, 0);
    for from in 0..200 {
        let node = NodeId(from as u32);
        let mut first = Vec::new();
        model.targets(Some(&fit), node, 16, &[], &mut first);
        with += near(&first, from);
        let mut second = first.clone();
        let fit = if from == 0 { model.fit() } else { fit.clone() };
        model.targets(Some(&fit), node, 16, &[], &mut second);
        moved += second.iter().filter(|t| !first.contains(t)).count();
    }
    // At random 1.6 of 16 are at the same site; six more look near.
    assert!(with > 200 * 5, "{with}");
    assert!(moved <= 20, "{moved}");
}

#[test]
fn everybody_is_measured_where_nodes_are_few() {
    let mut model = Model::new(Options::default());
    for n in 0..4 {
        insert(&mut model, n, None);
    }
    let fit = model.fit();
    let mut out = Vec::new();
    model.targets(Some(&fit), NodeId(0), 0, &[], &mut out);
    assert!(out.is_empty());
    model.targets(Some(&fit), NodeId(0), 8, &[], &mut out);
    assert_eq!(out.len(), 3);
}

/// The targets of all nodes, each of which lost some.
fn chosen(model: &Model, lost: impl Fn(u32, u32) -> bool) -> Vec<Vec<NodeId>> {
    let all = 0..model.len() as u32;
    let of = |from: u32| {
        let lost = all.clone().filter(|to| *to != from && lost(from, *to));
        let lost: Vec<NodeId> = lost.map(NodeId).collect();
        let mut out = Vec::new();
        model.targets(None, NodeId(from), 16, &lost, &mut out);
        out
    };
    all.clone().map(of).collect()
}

#[test]
fn others_replace_landmarks_that_are_unreachable_and_random_targets_stay() {
    let mut model = Model::new(Options::default());
    for n in 0..60 {
        insert(&mut model, n, None);
    }
    let whole = chosen(&model, |_, _| false);
    let cut = chosen(&model, |a, b| a % 2 != b % 2);
    for (from, (whole, cut)) in whole.iter().zip(&cut).enumerate() {
        assert_eq!(whole.len(), cut.len());
        let (landmarks, random) = whole.split_at(2);
        let reached = |t: &&NodeId| t.0 as usize % 2 == from % 2;
        assert_eq!(cut.iter().take(2).filter(reached).count(), 2, "{cut:?}");
        assert!(landmarks.iter().filter(reached).all(|t| cut.contains(t)));
        // A landmark may be a random target too.
        let also = landmarks.iter().filter(|t| cut[2..].contains(t)).count();
        let gone = random.iter().filter(|t| !cut.contains(t)).count();
        assert!(gone <= also, "{whole:?} {cut:?}");
    }
    // All nodes of a side choose the same, except those that are landmarks themselves.
    for side in 0..2 {
        let lists: Vec<_> = cut.iter().skip(side).step_by(2).collect();
        let alike = |a: &&&Vec<NodeId>| a[..2] == lists[0][..2];
        assert!(lists.iter().filter(alike).count() >= 28, "{lists:?}");
    }
}

#[test]
fn near_targets_that_are_unreachable_stay_if_they_were_measured() {
    let world = World::new(200, 2);
    let (mut model, fit) = Replay::new(&world, 16).run(quick(0));
    let node = NodeId(3);
    let choose = |model: &Model, lost: &[NodeId], present: &[NodeId]| {
        let mut out = present.to_vec();
        model.targets(Some(&fit), node, 16, lost, &mut out);
        out
    };
    let first = choose(&model, &[], &[]);
    let near = &first[8..];
    assert_eq!(near.len(), 8);
    assert_eq!(choose(&model, near, &first)[8..], *near);
    model.forget(node, near[0]);
    let second = choose(&model, &near[..1], &first);
    assert!(second.len() == 16 && !second.contains(&near[0]));
    assert!(near[1..].iter().all(|t| second.contains(t)));
    let third = choose(&model, &[], &second);
    assert_eq!(third, second, "near ones stay");
}
