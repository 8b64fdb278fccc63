//! Leadership gained and lapsed; restarts.

use tautline_core::{
    Compliance,
    index::{Kind, Object},
    model::Offer,
};

use super::fixture::{World, offer};
use crate::{
    binding_status::to_api_time,
    reconciler::{Leadership, Write},
    violations::ViolationEvent,
};

fn no_actions(world: &World) {
    assert!(world.writes.is_empty(), "{:?}", world.writes);
    assert!(world.evaluations.is_empty(), "{:?}", world.evaluations);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
    assert!(world.notes.is_empty(), "{:?}", world.notes);
}

/// The same cluster and API server, seen by a replica that has just started.
fn restarted(mut world: World) -> World {
    world.restart();
    world
}

#[test]
fn standby_writes_and_evaluates_nothing() {
    let mut world = World::standby();
    world.add_pods(3);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.advance_secs(600);
    no_actions(&world);
    assert_eq!(world.reconciler.next_time(), None);
}

#[test]
fn standby_acts_at_once_when_it_leads() {
    let mut world = World::standby();
    world.add_pods(3);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.lead(Leadership::Leading);
    assert_eq!(world.created().len(), 3);
    assert_eq!(world.offer_writes().len(), 1);
}

#[test]
fn standby_follows_the_statuses_of_the_leader() {
    let mut leader = World::with_bindings(1);
    leader.next_period(Compliance::Violation);
    leader.settle();
    let (spec, violated) = leader.api[&leader.only_key()].clone();
    let mut standby = restarted(leader);
    let mut compliant = violated;
    compliant.compliance = tautline_api::constraint::Compliance::Compliant;
    standby.observe(spec, compliant);
    standby.lead(Leadership::Leading);
    assert_eq!(standby.counts.bindings, [0, 1, 0, 0, 0]);
}

#[test]
fn suspended_lead_begins_nothing() {
    let mut world = World::with_bindings(2);
    world.lead(Leadership::Suspended);
    world.add_pods(9);
    world.sync();
    world.advance_secs(600);
    no_actions(&world);
    assert_eq!(world.reconciler.next_time(), None);
}

#[test]
fn suspended_lead_counts_results_of_work_under_way() {
    let mut world = World::leading();
    world.add_pods(1);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.lead(Leadership::Suspended);
    world.settle();
    world.lead(Leadership::Leading);
    assert!(world.created().is_empty(), "it exists");
    assert_eq!(world.bindings().len(), 1);
}

#[test]
fn suspended_lead_goes_on_when_the_lease_is_renewed() {
    let mut world = World::with_bindings(2);
    world.lead(Leadership::Suspended);
    world.add_pods(3);
    world.sync();
    no_actions(&world);
    world.lead(Leadership::Leading);
    assert_eq!(world.created().len(), 1);
}

#[test]
fn restart_compares_every_offer() {
    let mut world = restarted(World::with_bindings(2));
    world.add_pods(4);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    no_actions(&world);
    world.lead(Leadership::Leading);
    world.settle();
    assert_eq!(world.bindings().len(), 3);
}

#[test]
fn restart_repeats_creations_and_evaluations_that_were_in_progress() {
    let mut world = World::with_bindings(3);
    world.add_pods(20);
    world.sync();
    world.advance_secs(11);
    let mut world = restarted(world);
    world.lead(Leadership::Leading);
    world.settle();
    assert_eq!(world.bindings().len(), 20);
    world.advance_secs(11);
    assert_eq!(world.evaluations.len(), 20, "no slot is lost");
}

#[test]
fn restart_writes_offer_statuses_over_those_of_the_last_leader() {
    let mut world = World::with_bindings(1);
    world.advance_secs(2);
    world.settle();
    let mut world = restarted(world);
    world.lead(Leadership::Leading);
    let first = |w: &Write| matches!(w, Write::OfferStatus(w) if w.first);
    assert!(world.writes.iter().any(first), "{:?}", world.writes);
}

#[test]
fn restart_keeps_existing_bindings() {
    let mut world = restarted(World::with_bindings(5));
    world.lead(Leadership::Leading);
    world.advance_secs(2);
    assert!(world.created().is_empty() && world.deleted().is_empty());
    assert_eq!(world.counts.bindings, [0, 5, 0, 0, 0]);
}

#[test]
fn restart_evaluates_existing_bindings_within_a_period_and_not_all_at_once() {
    let mut world = restarted(World::with_bindings(40));
    world.lead(Leadership::Leading);
    assert!(world.evaluations.len() < 10, "{}", world.evaluations.len());
    world.advance_secs(10);
    assert_eq!(world.evaluations.len(), 40);
}

#[test]
fn restart_writes_no_status_that_has_not_changed() {
    let mut world = restarted(World::with_bindings(3));
    world.lead(Leadership::Leading);
    world.next_period(Compliance::Compliant);
    assert!(world.statuses().is_empty());
}

#[test]
fn restart_goes_on_with_the_grace() {
    let mut world = World::with_bindings(1);
    world.put(Object::Offer(Offer {
        grace: std::time::Duration::from_secs(60),
        ..offer("o")
    }));
    world.sync();
    world.evaluate_all(Compliance::Violation);
    world.settle();
    world.advance_secs(30);
    let mut world = restarted(world);
    world.lead(Leadership::Leading);
    world.advance_secs(31);
    world.evaluate_all(Compliance::Violation);
    assert_eq!(world.statuses(), ["Violation"]);
}

#[test]
fn restart_raises_the_violation_with_its_start() {
    let mut world = World::with_bindings(1);
    world.next_period(Compliance::Violation);
    let start = world.now.unix;
    world.settle();
    world.advance_secs(100);
    let mut world = restarted(world);
    world.lead(Leadership::Leading);
    world.next_period(Compliance::Violation);
    let [ViolationEvent::Raised { since, .. }] = &world.violations[..] else {
        panic!("{:?}", world.violations)
    };
    assert_eq!(to_api_time(*since), to_api_time(start));
}

#[test]
fn restart_without_bindings_known_waits_for_the_list() {
    let mut world = World::with_bindings(2);
    let all = std::mem::take(&mut world.api);
    let mut next = restarted(world);
    next.api = all;
    next.relist();
    next.lead(Leadership::Leading);
    assert!(next.created().is_empty());
}

#[test]
fn relist_removes_bindings_that_are_gone() {
    let mut world = World::with_bindings(3);
    let key = world.api.keys().next().cloned().unwrap();
    world.api.remove(&key);
    world.relist();
    assert_eq!(world.created().len(), 1, "it is still called for");
}
