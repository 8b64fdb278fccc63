//! Offers' statuses.

use std::time::Duration;

use tautline_core::{
    Compliance,
    index::{Kind, Object},
    model::{Offer, TargetKind},
};

use super::{
    bindings::{foreign, name_of},
    fixture::{NS, World, offer, policy, rule, target},
};
use crate::{
    binding_spec::{BindingSpec, BindingStatus, key},
    reconciler::{KindState, KindStates, Write, WriteError},
};

/// Lets the statuses of offers be written.
pub(super) fn flush(world: &mut World) {
    for _ in 0..3 {
        world.advance_secs(1);
        world.settle();
    }
}

fn ready_of(offer: Offer, pods: usize) -> String {
    let mut world = World::leading();
    world.add_pods(pods);
    world.put(Object::Offer(offer));
    world.sync();
    world.settle();
    flush(&mut world);
    world.ready()
}

#[test]
fn offer_status_is_in_step_when_all_bindings_exist() {
    assert_eq!(ready_of(offer("o"), 2), "True: InStep: ");
}

#[test]
fn offer_status_names_the_generation_that_it_is_about() {
    let mut world = World::with_bindings(1);
    let mut observed = |generation| {
        world.put(Object::Offer(Offer {
            generation,
            ..offer("o")
        }));
        world.sync();
        flush(&mut world);
        world.offer_statuses[&key(NS, "o")].observed_generation
    };
    assert_eq!(observed(1), Some(1));
    assert_eq!(observed(2), Some(2), "nothing else changed");
    assert_eq!(observed(0), None, "unknown");
}

#[test]
fn offer_status_counts_bindings_and_compliant_ones() {
    let mut world = World::with_bindings(3);
    world.advance_secs(11);
    let evaluate = world.evaluations.remove(0);
    world.finish(
        &evaluate,
        Some(super::fixture::evaluation(Compliance::Violation, "x")),
    );
    world.evaluate_all(Compliance::Compliant);
    flush(&mut world);
    let status = &world.offer_statuses[&key(NS, "o")];
    assert_eq!(
        (status.binding_count, status.compliant_binding_count),
        (3, 2)
    );
    let selector = "constraint.ciena.io/constraintPolicyOffer=o";
    assert_eq!(status.binding_selector, selector);
    assert_eq!(status.last_eviction, None, "another field manager's");
}

#[test]
fn offer_status_counts_by_its_selector() {
    let mut world = World::with_bindings(2);
    // Somebody's binding that names the offer, but lacks the label: it is left alone.
    let unlabelled = BindingSpec {
        labelled: false,
        ..foreign("mine", "o", "uid-of-o")
    };
    world.observe(unlabelled, BindingStatus::default());
    flush(&mut world);
    assert_eq!(world.bindings().len(), 3);
    assert_eq!(world.offer_statuses[&key(NS, "o")].binding_count, 2);
    assert_eq!(world.ready(), "True: InStep: ");

    // One that does as well as a binding of the offer is not counted either, and nothing is missing.
    let made = name_of("o", &[("default", "web-0")]);
    let (mut spec, status) = world.api[&key(NS, &made)].clone();
    spec.labelled = false;
    world.observe(spec, status);
    flush(&mut world);
    assert_eq!(world.offer_statuses[&key(NS, "o")].binding_count, 1);
    assert_eq!(world.ready(), "True: InStep: ");
    assert_eq!(world.bindings().len(), 3);
}

#[test]
fn offer_status_says_that_one_object_has_no_binding_with_itself() {
    let targets = vec![target("a", "web"), target("b", "web")];
    let ready = ready_of(
        Offer {
            targets,
            ..offer("o")
        },
        1,
    );
    assert_eq!(
        ready,
        "True: NothingSelected: all targets select one and the same object, which has no binding \
         with itself"
    );
}

#[test]
fn offer_status_names_a_missing_policy() {
    let missing = Offer {
        policies: vec!["fast".into(), "absent".into()],
        ..offer("o")
    };
    let text = "False: PolicyMissing: ConstraintPolicy absent does not exist in this namespace";
    assert_eq!(ready_of(missing, 1), text);
}

#[test]
fn offer_status_names_an_offer_without_policies() {
    let none = Offer {
        policies: Vec::new(),
        ..offer("o")
    };
    let ready = ready_of(none, 1);
    assert!(ready.starts_with("False: NoPolicies: "), "{ready}");
}

#[test]
fn offer_status_names_targets_that_select_nothing() {
    assert_eq!(
        ready_of(offer("o"), 0),
        "True: NothingSelected: target default selects nothing"
    );
}

#[test]
fn offer_status_joins_several_problems_under_the_first_reason() {
    let mut target = target("fleet", "x");
    (target.kind, target.api_version) = (TargetKind::Cluster, "fleet.io/v1".to_owned());
    let mut kinds = KindStates::default();
    kinds.insert(
        &target,
        KindState {
            listed: true,
            missing: Some("it is not served".to_owned()),
        },
    );
    let mut world = World::leading();
    world.kinds(kinds);
    world.put(Object::Offer(Offer {
        targets: vec![target],
        policies: vec!["absent".into()],
        ..offer("o")
    }));
    world.sync();
    flush(&mut world);
    assert_eq!(
        world.ready(),
        "False: KindNotServed: target fleet: it is not served; ConstraintPolicy absent does not \
         exist in this namespace"
    );
}

#[test]
fn offer_status_is_in_progress_until_the_bindings_exist() {
    let mut world = World::leading();
    world.add_pods(2);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.advance_secs(1);
    let text = "shop/o InProgress: 0 bindings exist, 2 are called for";
    assert_eq!(world.offer_writes(), [text]);
}

#[test]
fn offer_status_of_an_offer_that_could_never_be_read_is_invalid() {
    let mut world = World::leading();
    world.sync_with(false, Some(&[("bad", "spec.period: nonsense")]));
    world.advance_secs(1);
    assert_eq!(
        world.offer_writes(),
        ["shop/bad Invalid: spec.period: nonsense"]
    );
    let Write::OfferStatus(write) = &world.writes[0] else {
        panic!("{:?}", world.writes)
    };
    assert!(write.uid.is_empty(), "it is not known");
}

#[test]
fn offer_status_recovers_when_the_offer_can_be_read_again() {
    let mut world = World::with_bindings(1);
    world.sync_with(false, Some(&[("o", "bad")]));
    flush(&mut world);
    assert_eq!(world.ready(), "False: Invalid: bad");
    world.sync_with(false, Some(&[]));
    flush(&mut world);
    assert_eq!(world.ready(), "True: InStep: ");
}

#[test]
fn offer_status_is_not_written_while_nothing_changes() {
    let mut world = World::with_bindings(2);
    flush(&mut world);
    for _ in 0..30 {
        world.advance_secs(1);
        world.evaluate_all(Compliance::Compliant);
        assert!(world.offer_writes().is_empty());
    }
}

#[test]
fn offer_status_is_written_at_most_once_a_second() {
    let mut world = World::with_bindings(1);
    flush(&mut world);
    let mut written = 0;
    for i in 0..100 {
        let name = if i % 2 == 0 { "absent" } else { "fast" };
        world.put(Object::Offer(Offer {
            policies: vec![name.into()],
            ..offer("o")
        }));
        world.sync();
        world.advance(Duration::from_millis(100));
        written += world.offer_writes().len();
        world.settle();
    }
    assert!(written <= 11, "{written} in 10 s");
}

#[test]
fn offer_statuses_use_4_slots_and_all_come() {
    let mut world = World::leading();
    for i in 0..10 {
        world.put(Object::Offer(offer(&format!("o{i}"))));
    }
    world.sync();
    world.advance_secs(1);
    assert_eq!(world.offer_writes().len(), 4);
    world.settle();
    assert_eq!(world.offer_statuses.len(), 10, "without another second");
}

#[test]
fn offer_status_is_not_delayed_by_thousands_of_bindings() {
    let mut world = World::leading();
    world.add_pods(90);
    world.put(Object::Offer(offer("o")));
    world.sync();
    assert_eq!(world.created().len(), 16, "every slot of bindings is taken");
    world.advance_secs(1);
    assert_eq!(world.offer_writes().len(), 1);
}

#[test]
fn offer_status_write_is_retried_after_a_failure() {
    let mut world = World::with_bindings(1);
    flush(&mut world);
    world.delete(Kind::Policy, "fast");
    world.sync();
    world.advance_secs(1);
    assert_eq!(world.offer_writes().len(), 1);
    world.fail_writes(&WriteError::Refused("busy".to_owned()));
    flush(&mut world);
    assert!(world.ready().starts_with("False: PolicyMissing"));
}

#[test]
fn offer_status_write_is_not_retried_for_an_offer_that_is_gone() {
    let mut world = World::with_bindings(1);
    flush(&mut world);
    world.delete(Kind::Policy, "fast");
    world.sync();
    world.advance_secs(1);
    world.fail_writes(&WriteError::Gone);
    world.advance_secs(5);
    assert!(world.offer_writes().is_empty());
}

#[test]
fn offer_status_of_a_second_offer_of_the_name_is_written_in_full() {
    let mut world = World::with_bindings(1);
    flush(&mut world);
    world.put(Object::Offer(Offer {
        uid: "second".into(),
        ..offer("o")
    }));
    world.sync();
    world.advance_secs(1);
    let first = |w: &Write| matches!(w, Write::OfferStatus(w) if w.first && &*w.uid == "second");
    assert!(world.writes.iter().any(first), "{:?}", world.writes);
}

#[test]
fn offer_status_result_of_an_earlier_offer_does_not_count() {
    let mut world = World::with_bindings(1);
    flush(&mut world);
    world.delete(Kind::Policy, "fast");
    world.sync();
    world.advance_secs(1);
    let Some(Write::OfferStatus(earlier)) = world.writes.pop() else {
        panic!("{:?}", world.writes)
    };
    world.delete(Kind::Offer, "o");
    world.sync();
    world.collect_garbage();
    world.put(Object::Offer(Offer {
        uid: "second".into(),
        ..offer("o")
    }));
    world.sync();
    world.advance_secs(1);
    assert_eq!(world.offer_writes().len(), 1);
    world.accept(Write::OfferStatus(earlier));
    world.put(Object::Policy(policy("fast", vec![rule("20ms")])));
    world.sync();
    world.advance_secs(1);
    assert_eq!(world.offer_writes().len(), 1, "one is under way");
    world.fail_writes(&WriteError::Refused("busy".to_owned()));
    world.advance_secs(1);
    let first = |w: &Write| matches!(w, Write::OfferStatus(w) if w.first && &*w.uid == "second");
    assert!(world.writes.iter().any(first), "{:?}", world.writes);
}

#[test]
fn offer_status_keeps_the_time_of_the_last_transition() {
    let mut world = World::with_bindings(1);
    flush(&mut world);
    let time = |world: &World| {
        let status = &world.offer_statuses[&key(NS, "o")];
        status.conditions[0].last_transition_time.clone()
    };
    let before = time(&world);
    world.add_pods(2);
    world.sync();
    flush(&mut world);
    assert_eq!(world.offer_statuses[&key(NS, "o")].binding_count, 2);
    let after = time(&world);
    // Not ready for a moment, while the second binding was created.
    assert!(after >= before);
    world.put(Object::Policy(policy("fast", vec![rule("1ms")])));
    world.sync();
    world.evaluate_all(Compliance::Limit);
    flush(&mut world);
    let status = &world.offer_statuses[&key(NS, "o")];
    assert_eq!(status.compliant_binding_count, 0);
    assert_eq!(
        time(&world),
        after,
        "the figures changed, the state did not"
    );
}

#[test]
fn offer_status_of_a_terminating_offer_is_not_written() {
    let mut world = World::leading();
    world.put(Object::Offer(Offer {
        terminating: true,
        ..offer("o")
    }));
    world.sync();
    world.advance_secs(5);
    assert!(world.offer_writes().is_empty());
}

#[test]
fn offer_status_cleans_control_characters_of_tenants() {
    let mut world = World::leading();
    world.sync_with(false, Some(&[("bad", "a\u{1b}[2Jb\nc")]));
    world.advance_secs(1);
    assert_eq!(world.offer_writes(), ["shop/bad Invalid: a\u{fffd}[2Jb c"]);
}
