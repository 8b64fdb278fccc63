//! Samples over removals.

use crate::world::{Replay, World, insert, quick};
use proptest::prelude::*;
use tautline_rtt_model::{Estimate, Fit, Labels, Model, NodeId, Options};

fn all(fit: &Fit, nodes: u32) -> Vec<Option<Estimate>> {
    let row = |a| fit.row(NodeId(a));
    let pairs = (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b)));
    pairs.map(|(a, b)| row(a)?.estimate(NodeId(b))).collect()
}

#[test]
fn garbage_is_refused() {
    let mut model = Model::new(Options::default());
    let (a, b) = (insert(&mut model, 0, None), insert(&mut model, 1, None));
    for micros in [0.0, -1.0, 10_000_001.0, f32::NAN, f32::INFINITY] {
        assert!(!model.observe(a, b, micros, None), "{micros}");
    }
    assert!(!model.observe(a, a, 100.0, None), "to itself");
    assert!(!model.observe(a, NodeId(9), 100.0, None), "to nobody");
    assert!(!model.observe(NodeId(9), a, 100.0, None), "of nobody");
    assert_eq!(model.sample(a, b), None);
    for spread in [f32::NAN, -1.0, f32::INFINITY, 1e9] {
        assert!(model.observe(a, b, 100.0, Some(spread)), "{spread}");
    }
    assert!(model.observe(a, b, 100.0, None));
    assert_eq!(
        (model.sample(a, b), model.sample(b, a)),
        (Some(100.0), None)
    );
}

#[test]
fn a_removed_node_is_forgotten_and_its_number_used_after_the_next_fit() {
    let world = World::new(30, 1);
    let (mut model, _) = Replay::new(&world, 6).run(quick(0));
    let gone = NodeId(4);
    model.remove(gone);
    assert_eq!((model.len(), model.node("node-4")), (29, None));
    assert!((0..30).all(|n| model.sample(NodeId(n), gone).is_none()));
    assert!(!model.observe(gone, NodeId(0), 5.0, None));
    let other = model.insert("other", Labels::default());
    assert_ne!(other, gone);
    let fit = model.fit();
    assert!(fit.row(gone).is_none() && !fit.knows(gone));
    let next = model.insert("next", Labels::default());
    assert_eq!(next, gone);
    assert!(model.fit().row(next).is_none());
}

#[test]
fn the_same_seed_and_samples_give_the_same_estimates() {
    let world = World::new(50, 2);
    let (_, one) = Replay::new(&world, 8).run(quick(3));
    let (_, two) = Replay::new(&world, 8).run(quick(3));
    assert_eq!(all(&one, 50), all(&two, 50));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u8),
    Relabel(u8, u8),
    Remove(u8),
    Observe(u8, u8, f32, Option<f32>),
    Forget(u8, u8),
    Targets(u8, usize),
    Fit,
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..12u8;
    let micros = prop_oneof![5 => 1.0..1e6f32, 1 => any::<f32>()];
    prop_oneof![
        4 => (node.clone(), 0..5u8).prop_map(|(n, l)| Step::Insert(n, l)),
        1 => (node.clone(), 0..5u8).prop_map(|(n, l)| Step::Relabel(n, l)),
        1 => node.clone().prop_map(Step::Remove),
        16 => (node.clone(), node.clone(), micros, any::<Option<f32>>())
            .prop_map(|(a, b, m, s)| Step::Observe(a, b, m, s)),
        1 => (node.clone(), node.clone()).prop_map(|(a, b)| Step::Forget(a, b)),
        1 => (node, 0..9usize).prop_map(|(n, k)| Step::Targets(n, k)),
        2 => Just(Step::Fit),
    ]
}

fn labels(of: u8) -> Labels<'static> {
    let part = |at: u8| ["a", "b", "c", "d", "e"].get(usize::from(at)).copied();
    Labels {
        region: part(of % 2).filter(|_| of > 0),
        zone: part(of).filter(|_| of > 1),
        rack: part(of).filter(|_| of > 3),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_order_of_events_panics_or_gives_nonsense(steps in prop::collection::vec(step(), 1..120)) {
        let options = Options { cold_rounds: 20, warm_rounds: 5, ..Options::default() };
        let mut model = Model::new(options);
        let mut fit = model.fit();
        for step in steps {
            let id = |n: u8| NodeId(n.into());
            match step {
                Step::Insert(n, l) => { model.insert(&n.to_string(), labels(l)); }
                Step::Relabel(n, l) => model.relabel(id(n), labels(l)),
                Step::Remove(n) => model.remove(id(n)),
                Step::Observe(a, b, micros, spread) => {
                    let took = model.observe(id(a), id(b), micros, spread);
                    prop_assert!(!took || micros > 0.0 && micros <= 10e6 && a != b);
                }
                Step::Forget(a, b) => {
                    model.forget(id(a), id(b));
                    prop_assert_eq!(model.sample(id(a), id(b)), None);
                }
                Step::Targets(n, k) => {
                    let mut out = vec![NodeId(3), NodeId(99), NodeId(3)];
                    let lost = [id(n), NodeId(2), NodeId(99), NodeId(2)];
                    let lost = &lost[..k % 5];
                    model.targets(Some(&fit), id(n), k, lost, &mut out);
                    let mut unique = out.clone();
                    unique.sort();
                    unique.dedup();
                    prop_assert_eq!(unique.len(), out.len());
                    prop_assert!(out.len() <= k && !out.contains(&id(n)));
                }
                Step::Fit => fit = model.fit(),
            }
            for estimate in all(&fit, 13).into_iter().flatten() {
                prop_assert!(estimate.micros > 0.0 && estimate.high.is_finite(), "{estimate:?}");
                prop_assert!(estimate.low <= estimate.micros && estimate.micros <= estimate.high);
            }
        }
    }
}
