//! Bindings' statuses are written when they differ.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tautline_core::{Compliance, index::Object};

use super::fixture::{World, offer};
use crate::{
    binding_spec::{BindingSpec, BindingStatus},
    binding_status::to_api_time,
    reconciler::{Event, Write, WriteError, Written},
    violations::ViolationEvent,
};

fn only_status(world: &World) -> &BindingStatus {
    &world.api[&world.only_key()].1
}

/// Ends the period's evaluation with this reason.
fn evaluate(world: &mut World, compliance: Compliance, reason: &str) {
    world.advance_secs(11);
    assert_eq!(world.evaluate_all_as(compliance, reason), 1);
}

#[test]
fn status_is_written_after_the_first_evaluation() {
    let mut world = World::leading();
    world.add_pods(1);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    assert!(world.statuses().is_empty(), "nothing is known yet");
    world.evaluate_all(Compliance::Compliant);
    assert_eq!(world.statuses(), ["Compliant"]);
}

#[test]
fn status_is_not_written_while_nothing_changes() {
    let mut world = World::with_bindings(1);
    for _ in 0..20 {
        evaluate(&mut world, Compliance::Compliant, "reason");
        assert!(world.statuses().is_empty());
    }
}

#[test]
fn status_is_written_when_compliance_changes() {
    let mut world = World::with_bindings(1);
    evaluate(&mut world, Compliance::Limit, "reason");
    assert_eq!(world.statuses(), ["Limit"]);
}

#[test]
fn status_is_written_for_other_figures_once_a_minute() {
    let mut world = World::with_bindings(1);
    let mut written = 0;
    for i in 0..60 {
        evaluate(&mut world, Compliance::Compliant, &format!("{i}ms"));
        written += world.statuses().len();
        world.settle();
    }
    assert!((10..=11).contains(&written), "{written} in 660 s");
}

#[test]
fn status_is_written_at_once_for_another_code() {
    let mut world = World::with_bindings(1);
    evaluate(&mut world, Compliance::Error, "ProviderTimeout: 10.0.0.1");
    world.settle();
    evaluate(&mut world, Compliance::Error, "ProviderFailed: 10.0.0.1");
    assert_eq!(world.statuses(), ["Error"]);
}

#[test]
fn status_writes_of_a_binding_follow_each_other() {
    let mut world = World::with_bindings(1);
    evaluate(&mut world, Compliance::Limit, "a");
    let first = world.take_status();
    evaluate(&mut world, Compliance::Violation, "b");
    assert!(world.statuses().is_empty(), "one is under way");
    world.accept(first);
    assert_eq!(world.statuses(), ["Violation"], "then the latest");
    world.settle();
    assert_eq!(only_status(&world).first_reason, "b");
}

#[test]
fn status_that_returned_to_its_value_while_it_was_written_is_written_again() {
    let mut world = World::with_bindings(1);
    evaluate(&mut world, Compliance::Limit, "a");
    evaluate(&mut world, Compliance::Compliant, "reason");
    world.settle();
    assert_eq!(format!("{:?}", only_status(&world).compliance), "Compliant");
}

#[test]
fn status_write_is_retried_after_a_refusal() {
    let mut world = World::with_bindings(1);
    evaluate(&mut world, Compliance::Limit, "a");
    world.fail_writes(&WriteError::Refused("busy".to_owned()));
    world.advance_secs(1);
    assert!(world.statuses().is_empty());
    world.advance_secs(1);
    assert_eq!(world.statuses(), ["Limit"]);
}

#[test]
fn status_write_is_retried_after_a_timeout_with_the_latest_status() {
    let mut world = World::with_bindings(1);
    evaluate(&mut world, Compliance::Limit, "a");
    let write = world.take_status();
    let timeout = WriteError::Timeout(std::time::Duration::from_secs(10));
    world.apply(Event::Written(write, Err(timeout)));
    evaluate(&mut world, Compliance::Violation, "b");
    world.settle();
    assert_eq!(only_status(&world).first_reason, "b");
}

#[test]
fn status_write_is_dropped_when_the_binding_is_gone() {
    let mut world = World::with_bindings(1);
    evaluate(&mut world, Compliance::Limit, "a");
    world.api.clear();
    world.fail_writes(&WriteError::Gone);
    assert!(world.statuses().is_empty());
    assert_eq!(world.created().len(), 1, "it is created again");
}

#[test]
fn status_result_of_a_replaced_binding_does_not_count() {
    let mut world = World::with_bindings(1);
    evaluate(&mut world, Compliance::Limit, "a");
    let old = world.take_status();
    let key = world.only_key();
    world.vanish(&key);
    world.settle();
    world.apply(Event::Written(old, Err(WriteError::Gone)));
    world.advance_secs(5);
    assert!(world.created().is_empty() && world.deleted().is_empty());
}

#[test]
fn status_write_of_a_replaced_binding_does_not_end_that_of_the_new_one() {
    for ended in [
        Ok(Written::Done),
        Err(WriteError::Refused("busy".to_owned())),
    ] {
        let mut world = World::with_bindings(1);
        evaluate(&mut world, Compliance::Limit, "a");
        let old = world.take_status();
        let key = world.only_key();
        world.vanish(&key);
        world.settle();
        world.evaluate_all(Compliance::Compliant);
        assert_eq!(world.statuses(), ["Compliant"]);
        world.apply(Event::Written(old, ended));
        evaluate(&mut world, Compliance::Violation, "b");
        assert_eq!(world.statuses(), ["Compliant"], "one is under way");
        world.settle();
        assert_eq!(only_status(&world).first_reason, "b");
    }
}

#[test]
fn status_keeps_the_time_of_the_last_transition() {
    let mut world = World::with_bindings(1);
    evaluate(&mut world, Compliance::Violation, "a");
    world.settle();
    let at = to_api_time(world.now.unix);
    evaluate(&mut world, Compliance::Violation, "ProviderX: b");
    world.advance_secs(61);
    world.evaluate_all_as(Compliance::Violation, "c");
    world.settle();
    let status = only_status(&world);
    assert_eq!(status.first_reason, "c");
    assert_eq!(status.conditions[1].last_transition_time, at);
    assert_eq!(status.last_compliance_change_timestamp, Some(at));
}

#[test]
fn status_from_the_watch_does_not_overrule_an_evaluation() {
    let mut world = World::with_bindings(1);
    let (spec, stale) = world.api[&world.only_key()].clone();
    evaluate(&mut world, Compliance::Violation, "a");
    world.settle();
    world.observe(spec, stale);
    world.advance_secs(1);
    assert_eq!(world.counts.bindings, [0, 0, 0, 1, 0]);
}

#[test]
fn status_from_the_watch_brings_the_mitigation() {
    let mut world = World::with_bindings(1);
    let (spec, mut status) = world.api[&world.only_key()].clone();
    let at: Time = to_api_time(world.now.unix);
    status.last_mitigated_timestamp = Some(at);
    world.observe(spec, status);
    evaluate(&mut world, Compliance::Violation, "a");
    let [ViolationEvent::Raised { mitigated, .. }] = &world.violations[..] else {
        panic!("{:?}", world.violations)
    };
    assert!(mitigated.is_some());
}

#[test]
fn status_writes_come_before_new_bindings() {
    let mut world = World::with_bindings(1);
    world.advance_secs(11);
    world.add_pods(80);
    world.sync();
    world.evaluate_all(Compliance::Limit);
    let create = world
        .writes
        .iter()
        .position(|w| matches!(w, Write::Create(_)));
    let write = world.writes.remove(create.unwrap());
    world.accept(write);
    assert_eq!(world.statuses(), ["Limit"], "the first free slot");
}

#[test]
fn status_write_of_an_unknown_binding_is_ignored() {
    let mut world = World::with_bindings(1);
    let unknown = BindingSpec {
        namespace: "shop".into(),
        name: "unknown".into(),
        uid: "x".into(),
        ..BindingSpec::default()
    };
    let write = Write::Status(unknown.into(), std::sync::Arc::default());
    world.apply(Event::Written(write, Ok(Written::Done)));
    assert!(world.writes.is_empty());
}
