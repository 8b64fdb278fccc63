//! Bindings that cannot be written.

use std::time::Duration;

use tautline_core::{
    Compliance,
    index::{Kind, Object},
    model::Offer,
};

use super::fixture::{World, offer};
use crate::{
    binding_spec::{BindingSpec, BindingStatus},
    reconciler::{Event, Write, WriteError, Written},
};

fn refused() -> WriteError {
    WriteError::Refused("quota exceeded".to_owned())
}

/// A leader with an offer of so many pods whose first writes are under way.
fn creating(pods: usize) -> World {
    let mut world = World::leading();
    world.add_pods(pods);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world
}

#[test]
fn refused_creation_is_reported_on_the_offer() {
    let mut world = creating(1);
    let name = world.created().remove(0);
    world.fail_writes(&refused());
    let text =
        format!("WriteRefused: ConstraintPolicyBinding {name} cannot be made: quota exceeded");
    assert_eq!(world.warnings, [text.as_str()]);
    for _ in 0..2 {
        world.advance(Duration::from_millis(900));
        world.writes.retain(|w| matches!(w, Write::OfferStatus(_)));
        world.settle();
    }
    assert_eq!(world.ready(), format!("False: {text}"));
}

#[test]
fn refused_creation_is_retried_with_a_doubling_wait() {
    let mut world = creating(1);
    let mut waits = Vec::new();
    for _ in 0..9 {
        world.fail_writes(&refused());
        let before = world.now.instant;
        while world.created().is_empty() {
            world.advance(Duration::from_millis(500));
        }
        waits.push((world.now.instant - before).as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[test]
fn refused_creation_waits_a_second_again_after_a_success() {
    let mut world = creating(1);
    for _ in 0..5 {
        world.fail_writes(&refused());
        world.advance_secs(60);
    }
    world.settle();
    let key = world.only_key();
    world.vanish(&key);
    world.fail_writes(&refused());
    world.advance_secs(1);
    assert_eq!(world.created().len(), 1);
}

#[test]
fn refused_creation_waits_alone() {
    let mut world = creating(3);
    let write = world.writes.remove(0);
    world.apply(Event::Written(write, Err(refused())));
    world.settle();
    assert_eq!(world.bindings().len(), 2, "the others exist");
    world.advance_secs(2);
    world.settle();
    assert_eq!(world.bindings().len(), 3);
}

#[test]
fn refusals_of_all_bindings_try_each_once_per_wait() {
    let mut world = creating(60);
    let mut tried = 0;
    while !world.created().is_empty() {
        tried += world.created().len();
        world.fail_writes(&refused());
    }
    assert_eq!(tried, 60);
    world.advance(Duration::from_millis(900));
    assert!(world.created().is_empty());
    world.advance(Duration::from_millis(100));
    assert_eq!(world.created().len(), 16);
}

#[test]
fn refusals_of_one_offer_do_not_stop_another() {
    let mut world = creating(20);
    world.fail_writes(&refused());
    world.fail_writes(&refused());
    world.put(Object::Offer(offer("other")));
    world.sync();
    assert!(world.created().iter().any(|n| n.starts_with("other-")));
}

#[test]
fn refusals_together_cause_one_retry() {
    let mut world = creating(10);
    world.fail_writes(&refused());
    world.advance_secs(1);
    assert_eq!(world.created().len(), 10);
    world.settle();
    world.advance_secs(60);
    assert_eq!(world.bindings().len(), 10);
}

#[test]
fn creation_that_times_out_is_retried() {
    let mut world = creating(1);
    world.fail_writes(&WriteError::Timeout(Duration::from_secs(10)));
    assert!(world.warnings[0].contains("did not answer within 10s"));
    world.advance_secs(1);
    world.settle();
    assert_eq!(world.bindings().len(), 1);
}

#[test]
fn creation_in_a_namespace_that_is_gone_says_so() {
    let mut world = creating(1);
    world.fail_writes(&WriteError::Gone);
    let text = &world.warnings[0];
    assert!(
        text.ends_with("its namespace or its offer is gone"),
        "{text}"
    );
}

#[test]
fn creation_is_retried_at_once_when_the_offer_changes() {
    let mut world = creating(1);
    for _ in 0..6 {
        world.fail_writes(&refused());
        world.advance_secs(60);
    }
    world.fail_writes(&refused());
    assert!(world.created().is_empty());
    world.put(Object::Offer(Offer {
        grace: Duration::from_secs(1),
        ..offer("o")
    }));
    world.sync();
    assert_eq!(world.created().len(), 1);
}

#[test]
fn success_ends_the_report_of_a_refusal() {
    let mut world = creating(1);
    world.fail_writes(&refused());
    for _ in 0..4 {
        world.advance_secs(1);
        world.settle();
    }
    assert_eq!(world.ready(), "True: InStep: ");
}

#[test]
fn refused_deletion_is_reported_and_retried() {
    let mut world = World::with_bindings(1);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    world.fail_writes(&refused());
    assert!(world.warnings[0].contains("cannot be deleted: quota exceeded"));
    assert!(world.deleted().is_empty());
    world.advance_secs(1);
    assert_eq!(world.deleted().len(), 1);
    world.settle();
    assert!(world.bindings().is_empty());
}

#[test]
fn deletion_of_a_binding_that_is_gone_counts_as_done() {
    let mut world = World::with_bindings(1);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    world.api.clear();
    world.fail_writes(&WriteError::Gone);
    world.advance_secs(60);
    assert!(world.deleted().is_empty() && world.warnings.is_empty());
    assert_eq!(world.counts.bindings, [0; 5]);
}

#[test]
fn deletion_that_the_watch_reports_first_is_done_once() {
    let mut world = World::with_bindings(1);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    let write = world.writes.remove(0);
    let key = world.only_key();
    world.vanish(&key);
    assert!(world.deleted().is_empty());
    world.apply(Event::Written(write, Err(WriteError::Gone)));
    world.advance_secs(5);
    assert!(world.deleted().is_empty() && world.created().is_empty());
}

#[test]
fn creation_that_the_watch_reports_first_counts_once() {
    let mut world = creating(1);
    let write = world.writes.remove(0);
    let Write::Create(new) = &write else {
        panic!("{write:?}")
    };
    let spec = BindingSpec {
        namespace: "shop".into(),
        name: new.name.as_str().into(),
        uid: "u".into(),
        offer: "o".into(),
        owner: "uid-of-o".into(),
        labelled: true,
        terminating: false,
        targets: new.targets.clone(),
    };
    world.observe(spec.clone(), BindingStatus::default());
    let binding = Box::new((spec, BindingStatus::default()));
    let result = Ok(Written::Binding(binding, false));
    world.apply(Event::Written(write, result));
    world.advance_secs(1);
    assert_eq!(world.counts.bindings[Compliance::Pending as usize], 1);
    assert_eq!(world.evaluations.len(), 1);
    assert!(world.created().is_empty() && world.deleted().is_empty());
}
