//! Offers, bindings and statuses of one namespace take nothing from others.

use std::{collections::BTreeSet, time::Duration};

use tautline_core::{
    Compliance,
    index::{Kind, Object},
    model::{Offer, Pod, Policy},
};

use super::fixture::{NS, World, limits, offer, pod, policy, rule, settings, target};
use crate::{
    binding_spec::{Key, key, namespace_of},
    config::Config,
    reconciler::Write,
};

const LOUD: &str = "loud";

fn pod_in(namespace: &str, name: &str) -> Object {
    Object::Pod(Pod {
        namespace: namespace.into(),
        ..pod(name, "web")
    })
}

fn offer_in(namespace: &str, name: &str, created_unix: i64) -> Object {
    Object::Offer(Offer {
        namespace: namespace.into(),
        created_unix,
        ..offer(name)
    })
}

fn of(world: &World, namespace: &str, offer: &str) -> usize {
    let bindings = world.api.values();
    let here =
        |s: &crate::binding_spec::BindingSpec| *s.namespace == *namespace && *s.offer == *offer;
    bindings.filter(|(s, _)| here(s)).count()
}

/// The reason of an offer's condition.
fn reason(world: &World, namespace: &str, name: &str) -> String {
    world.offer_statuses[&key(namespace, name)].conditions[0]
        .reason
        .clone()
}

fn flush(world: &mut World) {
    for _ in 0..3 {
        world.advance_secs(1);
        world.settle();
    }
}

#[test]
fn bindings_of_a_namespace_are_bounded_and_the_oldest_offers_keep_theirs() {
    let mut world = World::leading_with(Config {
        limits: limits(8, 10, 13),
        ..settings()
    });
    for i in 0..6 {
        world.put(pod_in(LOUD, &format!("p{i}")));
        world.put(pod_in(NS, &format!("p{i}")));
    }
    let fast = policy("fast", vec![rule("20ms")]);
    let namespace = LOUD.into();
    world.put(Object::Policy(Policy { namespace, ..fast }));
    for (name, created) in [("young", 30), ("old", 10), ("middle", 20)] {
        world.put(offer_in(LOUD, name, created));
    }
    world.sync();
    world.settle();
    flush(&mut world);
    let loud = |world: &World| ["old", "middle", "young"].map(|name| of(world, LOUD, name));
    assert_eq!(loud(&world), [6, 4, 0]);
    assert_eq!(reason(&world, LOUD, "old"), "InStep");
    assert_eq!(reason(&world, LOUD, "middle"), "NamespaceCapExceeded");
    let status = &world.offer_statuses[&key(LOUD, "young")];
    assert_eq!(
        status.conditions[0].message,
        "the targets make 6 bindings, and none exists: the offers of a namespace may have 10, and \
         earlier ones have the rest; select fewer objects, or raise --max-namespace-bindings"
    );
    assert_eq!(world.counts.withheld, [0, 8, 0]);

    // Another namespace has its own, up to the bound of all.
    world.put(offer_in(NS, "o", 40));
    world.sync();
    world.settle();
    flush(&mut world);
    assert_eq!(of(&world, NS, "o"), 3);
    assert_eq!(reason(&world, NS, "o"), "TotalCapExceeded");
    assert_eq!(world.counts.withheld, [0, 8, 3]);

    // An older offer, and more objects of an old one, take nothing from the others.
    world.put(offer_in(LOUD, "oldest", 1));
    world.put(pod_in(LOUD, "p9"));
    world.sync();
    assert!(world.deleted().is_empty(), "{:?}", world.deleted());
    world.settle();
    assert_eq!(loud(&world), [6, 4, 0]);

    // A new leader finds it so.
    let (api, index) = (world.api, world.index);
    let mut second = World::standby_with(Config {
        limits: limits(8, 10, 13),
        ..settings()
    });
    (second.api, second.index) = (api, index);
    second.relist();
    second.sync();
    second.lead(crate::reconciler::Leadership::Leading);
    assert!(second.deleted().is_empty() && second.created().is_empty());

    // What becomes free goes to the oldest: `oldest` has 7 pods.
    assert!(second.index.delete(Kind::Offer, &key(LOUD, "old")));
    second.sync();
    second.collect_garbage();
    second.settle();
    assert_eq!(of(&second, LOUD, "oldest"), 6);
    assert_eq!(of(&second, LOUD, "middle"), 4);
}

#[test]
fn permutations_of_eight_targets_are_bounded() {
    let mut world = World::leading_with(Config {
        limits: limits(500, 500, 500),
        ..settings()
    });
    world.add_pods(4);
    let targets = (0..8).map(|i| target(&format!("t{i}"), "web")).collect();
    world.put(Object::Offer(Offer {
        targets,
        ..offer("o")
    }));
    world.sync();
    world.settle();
    assert_eq!(world.bindings().len(), 161, "not 65,536");
}

/// A world with an offer of `pods` pods in the loud namespace, and one of one pod in the other.
fn loud_world(pods: usize) -> World {
    let mut world = World::leading_with(Config {
        limits: limits(5_000, 5_000, 10_000),
        ..settings()
    });
    let fast = policy("fast", vec![rule("20ms")]);
    let namespace = LOUD.into();
    world.put(Object::Policy(Policy { namespace, ..fast }));
    for i in 0..pods {
        world.put(pod_in(LOUD, &format!("p{i}")));
    }
    world.put(offer_in(LOUD, "o", 1));
    world.put(offer_in(NS, "o", 2));
    world.put(pod_in(NS, "victim"));
    world.sync();
    world.settle();
    while world.evaluate_all(Compliance::Compliant) > 0 {}
    world.settle();
    world
}

#[test]
fn statuses_and_bindings_of_a_namespace_wait_for_no_other() {
    let mut world = loud_world(1_000);
    world.advance_secs(11);
    while world.evaluate_all(Compliance::Violation) > 0 {}
    let of_bindings = |w: &Write| !matches!(w, Write::OfferStatus(_));
    world.writes.retain(of_bindings);
    assert_eq!(world.writes.len(), 16, "every slot is taken");
    // The victim's status is among the first, and so is the binding of its new pod.
    world.put(pod_in(NS, "late"));
    world.sync();
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let write = world.writes.remove(0);
        world.accept(write);
        for write in &world.writes {
            match write {
                Write::Create(new) if *new.offer.namespace == *NS => seen.insert("binding"),
                Write::Status(spec, _) if *spec.namespace == *NS => seen.insert("status"),
                _ => false,
            };
        }
    }
    assert_eq!(seen, BTreeSet::from(["binding", "status"]));
}

#[test]
fn evaluations_of_a_namespace_wait_for_no_other() {
    let mut world = loud_world(1_000);
    world.advance_secs(11);
    let at = |world: &World| {
        let mut evaluations = world.evaluations.iter();
        evaluations.position(|e| *e.spec.namespace == *NS)
    };
    for _ in 0..2 {
        if at(&world).is_some() {
            return;
        }
        let evaluate = world.evaluations.remove(0);
        world.finish(&evaluate, None);
    }
    assert!(at(&world).is_some(), "it has the second free slot");
}

#[test]
fn offer_statuses_of_a_namespace_wait_for_no_other() {
    let mut world = World::leading();
    for i in 0..100 {
        world.put(offer_in(LOUD, &format!("o{i}"), 1));
    }
    world.put(offer_in(NS, "z", 1));
    world.sync();
    world.advance_secs(1);
    let key_of = |w: &Write| match w {
        Write::OfferStatus(w) => Some(w.key.clone()),
        _ => None,
    };
    let first: Vec<Key> = world.writes.iter().filter_map(key_of).collect();
    let namespaces: BTreeSet<&str> = first.iter().map(|k| namespace_of(k)).collect();
    assert_eq!(namespaces, BTreeSet::from([LOUD, NS]));
}

/// Evaluates whatever is due each half second with another result than before; returns the
/// number of evaluations.
fn flap(world: &mut World, seconds: usize) -> usize {
    let mut count = 0;
    for i in 0..seconds * 2 {
        world.advance(Duration::from_millis(500));
        let compliance = match i % 2 {
            0 => Compliance::Violation,
            _ => Compliance::Compliant,
        };
        count += world.evaluate_all(compliance);
        world.settle();
    }
    count
}

fn fast_offer() -> Object {
    Object::Offer(Offer {
        period: Duration::from_millis(500),
        ..offer("o")
    })
}

#[test]
fn flapping_bindings_back_off_and_come_back() {
    let mut world = World::with_bindings(1);
    world.put(fast_offer());
    world.sync();
    world.evaluate_all(Compliance::Compliant);
    let early = flap(&mut world, 60);
    let notes = std::mem::take(&mut world.notes).len();
    assert!(notes <= 12, "{notes} events of {early} evaluations");
    flap(&mut world, 600);
    assert!(world.notes.len() <= 8, "{:?}", world.notes);
    assert_eq!(world.counts.backing_off, 1);

    // It is evaluated as often as before once it is stable, and forgiven ten minutes later.
    for _ in 0..300 {
        world.advance_secs(1);
        world.evaluate_all(Compliance::Compliant);
        world.settle();
    }
    world.advance_secs(1);
    assert_eq!(world.evaluate_all(Compliance::Compliant), 1);
    for _ in 0..600 {
        world.advance_secs(1);
        world.evaluate_all(Compliance::Compliant);
        world.settle();
    }
    assert_eq!(world.counts.backing_off, 0);
}

#[test]
fn flapping_bindings_are_not_evaluated_for_each_change_of_their_provider() {
    let mut world = World::with_bindings(1);
    world.put(fast_offer());
    world.sync();
    world.evaluate_all(Compliance::Compliant);
    flap(&mut world, 60);
    let mut count = 0;
    for i in 0..50 {
        let limit = format!("{}ms", 30 + i);
        world.put(Object::Policy(policy("fast", vec![rule(&limit)])));
        world.sync();
        count += world.evaluate_all(Compliance::Compliant);
    }
    assert!(count <= 1, "{count}");
    world.settle();
    world.advance_secs(121);
    assert_eq!(
        world.evaluate_all(Compliance::Compliant),
        1,
        "once, at the end"
    );
    // Nothing is left over from the changes.
    for _ in 0..10 {
        world.advance(Duration::from_millis(1));
        count += world.evaluate_all(Compliance::Compliant);
    }
    assert!(count <= 2, "{count}");
}

#[test]
fn flapping_is_forgotten_with_the_pod() {
    let mut world = World::with_bindings(1);
    world.put(fast_offer());
    world.sync();
    world.evaluate_all(Compliance::Compliant);
    flap(&mut world, 60);
    world.put(Object::Pod(Pod {
        uid: "second".into(),
        ..pod("web-0", "web")
    }));
    world.sync();
    assert_eq!(
        world.evaluations.len(),
        1,
        "the new pod is evaluated at once"
    );
}
