//! Laws that hold for every order of events.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tautline_core::{
    Compliance,
    binding::desired_bindings,
    index::{Kind, Object},
    model::Offer,
};

use super::fixture::{NS, World, offer, pod, settings, target};
use crate::{
    config::Config,
    reconciler::{Event, Leadership, Write, WriteError},
};

/// A step in the life of a cluster.
#[derive(Clone, Debug)]
enum Step {
    AddPod(u8, bool),
    DeletePod(u8),
    PutOffer(u8, bool),
    DeleteOffer(u8),
    Accept(u8),
    Fail(u8),
    Vanish(u8),
    Advance(u8),
    Evaluate(u8),
    Restart,
    Relist,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..6, any::<bool>()).prop_map(|(i, web)| Step::AddPod(i, web)),
        2 => (0u8..6).prop_map(Step::DeletePod),
        2 => (0u8..3, any::<bool>()).prop_map(|(i, pair)| Step::PutOffer(i, pair)),
        1 => (0u8..3).prop_map(Step::DeleteOffer),
        6 => any::<u8>().prop_map(Step::Accept),
        2 => any::<u8>().prop_map(Step::Fail),
        1 => any::<u8>().prop_map(Step::Vanish),
        3 => (0u8..40).prop_map(Step::Advance),
        3 => (0u8..5).prop_map(Step::Evaluate),
        1 => Just(Step::Restart),
        1 => Just(Step::Relist),
    ]
}

fn play(world: &mut World, step: &Step) {
    match step {
        Step::AddPod(i, web) => {
            let app = if *web { "web" } else { "db" };
            world.put(Object::Pod(pod(&format!("p{i}"), app)));
            world.sync();
        }
        Step::DeletePod(i) => {
            world.index.delete(Kind::Pod, &format!("{NS}/p{i}"));
            world.sync();
        }
        Step::PutOffer(i, pair) => {
            let mut targets = vec![target("a", "web")];
            targets.extend(pair.then(|| target("b", "db")));
            let name = format!("o{i}");
            let uid = match world.index.snapshot().offer(NS, &name) {
                Some(entry) => entry.offer.uid.clone(),
                None => world.unique().into(),
            };
            world.put(Object::Offer(Offer {
                targets,
                uid,
                ..offer(&name)
            }));
            world.sync();
        }
        Step::DeleteOffer(i) => {
            // The garbage collector takes its bindings.
            world.index.delete(Kind::Offer, &format!("{NS}/o{i}"));
            world.sync();
            world.collect_garbage();
        }
        Step::Accept(n) => {
            if !world.writes.is_empty() {
                let at = usize::from(*n) % world.writes.len();
                let write = world.writes.remove(at);
                accept(world, write);
            }
        }
        Step::Fail(n) => {
            if !world.writes.is_empty() {
                let at = usize::from(*n) % world.writes.len();
                let write = world.writes.remove(at);
                let error = WriteError::Refused("busy".to_owned());
                world.apply(Event::Written(write, Err(error)));
            }
        }
        Step::Vanish(n) => {
            if !world.api.is_empty() {
                let at = usize::from(*n) % world.api.len();
                let key = world.api.keys().nth(at).cloned().unwrap();
                world.vanish(&key);
            }
        }
        Step::Advance(secs) => world.advance_secs(u64::from(*secs)),
        Step::Evaluate(n) => {
            world.evaluate_all(Compliance::ALL[usize::from(*n)]);
        }
        Step::Restart => {
            world.restart();
            world.lead(Leadership::Leading);
        }
        Step::Relist => world.relist(),
    }
}

/// Takes a write, unless its object is gone at the API server.
fn accept(world: &mut World, write: Write) {
    let exists = match &write {
        Write::Create(new) => !world.api.contains_key(&new.key()),
        Write::Delete(spec) | Write::Status(spec, _) => {
            let there = world.api.get(&spec.key());
            there.is_some_and(|(s, _)| s.uid == spec.uid)
        }
        Write::OfferStatus(_) => true,
    };
    if exists {
        world.accept(write);
    } else {
        world.apply(Event::Written(write, Err(WriteError::Gone)));
    }
}

/// The API server takes everything, for as long as retries may take.
fn come_to_rest(world: &mut World) {
    for _ in 0..150 {
        while !world.writes.is_empty() {
            let write = world.writes.remove(0);
            accept(world, write);
        }
        world.collect_garbage();
        world.advance_secs(1);
        while world.evaluate_all(Compliance::Compliant) > 0 {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens: in the end the bindings are those that the offers call for.
    #[test]
    fn bindings_converge_to_the_desired_ones(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::leading();
        for step in &steps {
            play(&mut world, step);
        }
        come_to_rest(&mut world);
        let snapshot = world.index.snapshot();
        let mut desired = BTreeSet::new();
        for entry in snapshot.offers() {
            desired.extend(desired_bindings(entry, 100).into_keys());
        }
        let existing: BTreeSet<String> = world.bindings().into_iter().collect();
        prop_assert_eq!(existing, desired);
    }

    /// The counts are those of the bindings, and never run away.
    #[test]
    fn counts_are_those_of_the_bindings(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::leading();
        for step in &steps {
            play(&mut world, step);
        }
        come_to_rest(&mut world);
        prop_assert_eq!(world.counts.bindings.iter().sum::<usize>(), world.api.len());
        prop_assert_eq!(world.counts.bindings[Compliance::Compliant as usize], world.api.len());
    }

    /// An object has one write at a time, and writes are limited.
    #[test]
    fn writes_of_an_object_do_not_overlap(steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World::leading();
        for step in &steps {
            play(&mut world, step);
            let key = |w: &Write| match w {
                Write::Create(new) => format!("binding {}", new.key()),
                Write::Delete(spec) => format!("binding {}", spec.key()),
                Write::Status(spec, _) => format!("status {} {}", spec.key(), spec.uid),
                Write::OfferStatus(w) => format!("offer {} {}", w.key, w.uid),
            };
            let all: Vec<String> = world.writes.iter().map(key).collect();
            let distinct: BTreeSet<&String> = all.iter().collect();
            prop_assert_eq!(all.len(), distinct.len(), "{:?}", all);
            let offers = all.iter().filter(|k| k.starts_with("offer ")).count();
            prop_assert!(offers <= 4 && all.len() - offers <= 16);
        }
    }

    /// A standby does nothing, whatever it sees.
    #[test]
    fn standby_never_acts(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::standby();
        for step in steps.iter().filter(|s| !matches!(s, Step::Restart)) {
            play(&mut world, step);
            prop_assert!(world.writes.is_empty() && world.evaluations.is_empty());
            prop_assert!(world.violations.is_empty() && world.notes.is_empty());
        }
    }

    /// A binding is evaluated once at a time, and every slot is free in the end.
    #[test]
    fn evaluations_do_not_overlap(steps in proptest::collection::vec(step(), 1..60), limit in 1usize..4) {
        let mut world = World::leading_with(Config { provider_concurrency: limit, ..settings() });
        for step in &steps {
            play(&mut world, step);
            let keys: BTreeSet<_> = world.evaluations.iter().map(|e| (e.spec.key(), &e.spec.uid)).collect();
            prop_assert_eq!(keys.len(), world.evaluations.len());
        }
        come_to_rest(&mut world);
        prop_assert_eq!(world.reconciler.waiting(), 0);
    }
}
