//! The times of evaluations, limits per provider, graces and violations.

use std::{sync::Arc, time::Duration};

use tautline_core::{
    Compliance,
    index::{Kind, Object},
    model::{Offer, Policy, Service, ViolationPolicy},
};

use super::fixture::{World, evaluation, offer, policy, rule, service, settings};
use crate::{
    binding_spec::{BindingSpec, BindingStatus},
    config::Config,
    reconciler::Evaluate,
    violations::ViolationEvent,
};

/// The number of evaluations in so many seconds, each of which ends at once.
fn evaluations_in(world: &mut World, secs: u64) -> usize {
    let mut count = 0;
    for _ in 0..secs * 10 {
        world.advance(Duration::from_millis(100));
        count += world.evaluate_all(Compliance::Compliant);
    }
    count
}

#[test]
fn evaluation_of_a_new_binding_begins_at_once() {
    let mut world = World::leading();
    world.add_pods(2);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    assert_eq!(world.evaluations.len(), 2);
}

#[test]
fn evaluation_repeats_every_period() {
    let mut world = World::with_bindings(4);
    let count = evaluations_in(&mut world, 200);
    assert!((4 * 19..=4 * 22).contains(&count), "{count}");
}

#[test]
fn evaluation_spreads_bindings_over_their_period() {
    let mut world = World::with_bindings(50);
    let mut by_second = Vec::new();
    for _ in 0..10 {
        by_second.push(evaluations_in(&mut world, 1));
    }
    assert!(by_second.iter().all(|n| *n < 20), "{by_second:?}");
}

#[test]
fn evaluation_is_no_more_frequent_than_the_shortest_period() {
    let mut world = World::leading();
    world.add_pods(1);
    world.put(Object::Offer(Offer {
        period: Duration::from_millis(1),
        ..offer("o")
    }));
    world.sync();
    world.settle();
    let count = evaluations_in(&mut world, 20);
    assert!((35..=45).contains(&count), "{count} in 20 s at 500 ms");
}

#[test]
fn evaluation_follows_a_changed_period() {
    let mut world = World::with_bindings(1);
    world.put(Object::Offer(Offer {
        period: Duration::from_secs(1),
        ..offer("o")
    }));
    world.sync();
    let count = evaluations_in(&mut world, 60);
    assert!(
        (55..=66).contains(&count),
        "{count}: the old period is void"
    );
}

#[test]
fn evaluation_skips_missed_turns() {
    let mut world = World::with_bindings(1);
    world.advance_secs(3600);
    assert_eq!(world.evaluate_all(Compliance::Compliant), 1);
    let count = evaluations_in(&mut world, 30);
    assert!(count <= 5, "{count}: an hour is not caught up");
}

#[test]
fn evaluation_of_a_binding_runs_once_at_a_time() {
    let mut world = World::with_bindings(1);
    world.advance_secs(100);
    world.advance_secs(100);
    assert_eq!(world.evaluations.len(), 1);
}

#[test]
fn evaluation_repeats_for_a_change_that_came_while_it_ran() {
    let mut world = World::with_bindings(1);
    world.advance_secs(11);
    assert_eq!(world.evaluations.len(), 1);
    world.put(Object::Policy(policy("fast", vec![rule("1ms")])));
    world.sync();
    assert_eq!(world.evaluations.len(), 1, "one is under way");
    world.evaluate_all(Compliance::Compliant);
    assert_eq!(world.evaluations.len(), 1, "once more, with the new rule");
    let rules = world.evaluations[0].question.policies[0].rules.clone();
    assert_eq!(rules.unwrap()[0].0.limit, "1ms");
}

#[test]
fn evaluation_of_a_deleted_binding_does_not_begin() {
    let mut world = World::with_bindings(1);
    world.delete(Kind::Pod, "web-0");
    world.sync();
    world.settle();
    world.advance_secs(60);
    assert!(world.evaluations.is_empty());
}

#[test]
fn evaluation_without_an_offer_does_not_begin() {
    let mut world = World::with_bindings(1);
    world.delete(Kind::Offer, "o");
    world.sync();
    world.advance_secs(60);
    assert!(world.evaluations.is_empty());
}

#[test]
fn evaluation_result_of_a_replaced_binding_does_not_count() {
    let mut world = World::with_bindings(1);
    world.advance_secs(11);
    let old = world.evaluations.remove(0);
    let key = world.only_key();
    world.vanish(&key);
    world.settle();
    let new = std::mem::take(&mut world.evaluations);
    world.finish(&old, Some(evaluation(Compliance::Violation, "old")));
    world.settle();
    assert!(world.violations.is_empty());
    assert_eq!(new.len(), 1);
}

#[test]
fn evaluation_that_panics_frees_its_slot_and_changes_nothing() {
    let mut world = World::leading_with(Config {
        provider_concurrency: 1,
        ..settings()
    });
    world.add_pods(2);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    let first = world.evaluations.remove(0);
    world.finish(&first, None);
    assert_eq!(world.evaluations.len(), 1, "the next one has the slot");
    assert!(world.statuses().is_empty());
    world.evaluate_all(Compliance::Compliant);
    world.settle();
    world.advance_secs(11);
    let again = |e: &Evaluate| Arc::ptr_eq(&e.spec, &first.spec);
    let all = std::iter::from_fn(|| {
        let next = world.evaluations.pop()?;
        world.finish(&next, Some(evaluation(Compliance::Compliant, "")));
        Some(next)
    });
    assert!(all.collect::<Vec<_>>().iter().any(again), "its next period");
}

#[test]
fn evaluation_is_limited_per_provider() {
    let mut world = World::leading_with(Config {
        provider_concurrency: 2,
        ..settings()
    });
    world.add_pods(5);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    assert_eq!(
        (world.evaluations.len(), world.reconciler.waiting()),
        (2, 3)
    );
    let first = world.evaluations.remove(0);
    world.finish(&first, Some(evaluation(Compliance::Compliant, "")));
    assert_eq!(
        (world.evaluations.len(), world.reconciler.waiting()),
        (2, 2)
    );
}

#[test]
fn evaluation_at_a_slow_provider_delays_no_other() {
    let mut world = World::leading_with(Config {
        provider_concurrency: 1,
        ..settings()
    });
    world.add_pods(2);
    world.put(Object::Service(Service {
        rules: vec!["jitter".into()],
        ..service("tautline-system", "other")
    }));
    let mut jitter = rule("1ms");
    jitter.name = "jitter".into();
    world.put(Object::Policy(Policy {
        name: "steady".into(),
        ..policy("", vec![jitter])
    }));
    world.put(Object::Offer(offer("slow")));
    world.put(Object::Offer(Offer {
        policies: vec!["steady".into()],
        ..offer("quick")
    }));
    world.sync();
    world.settle();
    let offers: Vec<&str> = world.evaluations.iter().map(|e| &*e.spec.offer).collect();
    assert_eq!(offers.len(), 2, "one at each provider");
    assert!(offers.contains(&"quick") && offers.contains(&"slow"));
}

#[test]
fn evaluation_waits_for_a_provider_and_begins_with_the_latest_question() {
    let mut world = World::leading_with(Config {
        provider_concurrency: 1,
        ..settings()
    });
    world.add_pods(2);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    world.put(Object::Policy(policy("fast", vec![rule("3ms")])));
    world.sync();
    let first = world.evaluations.remove(0);
    world.finish(&first, Some(evaluation(Compliance::Compliant, "")));
    let rules = world.evaluations[0].question.policies[0].rules.clone();
    assert_eq!(rules.unwrap()[0].0.limit, "3ms");
}

#[test]
fn evaluation_that_waits_for_a_deleted_binding_frees_its_slot() {
    let mut world = World::leading_with(Config {
        provider_concurrency: 1,
        ..settings()
    });
    world.add_pods(3);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    let first = world.evaluations.remove(0);
    let keys: Vec<_> = world.api.keys().cloned().collect();
    for key in keys.iter().filter(|k| **k != first.spec.key()) {
        world.vanish(key);
    }
    world.writes.clear();
    world.finish(&first, Some(evaluation(Compliance::Compliant, "")));
    assert_eq!(
        (world.evaluations.len(), world.reconciler.waiting()),
        (0, 0)
    );
}

#[test]
fn evaluation_that_waits_for_a_replaced_binding_does_not_begin() {
    let mut world = World::leading_with(Config {
        provider_concurrency: 1,
        ..settings()
    });
    world.add_pods(2);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    let first = world.evaluations.remove(0);
    let other = |k: &&crate::binding_spec::Key| **k != first.spec.key();
    let key = world.api.keys().find(other).cloned().unwrap();
    world.vanish(&key);
    world.settle();
    assert_eq!(world.reconciler.waiting(), 2, "one of each UID");
    world.finish(&first, Some(evaluation(Compliance::Compliant, "")));
    world.evaluate_all(Compliance::Compliant);
    assert_eq!(
        (world.evaluations.len(), world.reconciler.waiting()),
        (0, 0)
    );
}

#[test]
fn violation_is_raised_at_once_without_a_grace() {
    let mut world = World::with_bindings(1);
    world.next_period(Compliance::Violation);
    let [ViolationEvent::Raised { since, reason, .. }] = &world.violations[..] else {
        panic!("{:?}", world.violations)
    };
    assert_eq!((*since, reason.as_str()), (world.now.unix, "reason"));
}

#[test]
fn violation_is_raised_again_with_each_evaluation() {
    let mut world = World::with_bindings(1);
    world.next_period(Compliance::Violation);
    world.next_period(Compliance::Violation);
    assert_eq!(world.violations.len(), 2);
}

fn with_grace(grace: u64) -> World {
    let mut world = World::with_bindings(1);
    world.put(Object::Offer(Offer {
        grace: Duration::from_secs(grace),
        period: Duration::from_secs(3600),
        ..offer("o")
    }));
    world.sync();
    world.evaluate_all(Compliance::Compliant);
    world.settle();
    world
}

/// Makes the pod's binding due at once.
fn provoke(world: &mut World, compliance: Compliance) {
    let limit = world.unique();
    world.put(Object::Policy(policy("fast", vec![rule(&limit)])));
    world.sync();
    assert_eq!(world.evaluate_all(compliance), 1);
}

#[test]
fn grace_ends_with_an_evaluation_and_not_a_period_later() {
    let mut world = with_grace(30);
    provoke(&mut world, Compliance::Violation);
    assert_eq!(world.statuses(), ["Limit"]);
    world.settle();
    world.advance_secs(29);
    assert!(world.evaluations.is_empty());
    world.advance_secs(1);
    assert_eq!(world.evaluate_all(Compliance::Violation), 1);
    assert_eq!(world.statuses(), ["Violation"]);
    assert_eq!(world.violations.len(), 1);
}

#[test]
fn grace_raises_no_violation_while_it_runs() {
    let mut world = with_grace(30);
    provoke(&mut world, Compliance::Violation);
    world.advance_secs(10);
    provoke(&mut world, Compliance::Violation);
    assert!(world.violations.is_empty());
}

#[test]
fn grace_starts_again_after_compliance() {
    let mut world = with_grace(30);
    provoke(&mut world, Compliance::Violation);
    world.advance_secs(20);
    provoke(&mut world, Compliance::Compliant);
    provoke(&mut world, Compliance::Violation);
    world.advance_secs(20);
    provoke(&mut world, Compliance::Violation);
    assert!(world.violations.is_empty(), "20 of 30 s");
}

#[test]
fn grace_pauses_during_an_error() {
    let mut world = with_grace(30);
    provoke(&mut world, Compliance::Violation);
    world.advance_secs(10);
    provoke(&mut world, Compliance::Error);
    world.advance_secs(100);
    world.evaluations.clear();
    provoke_running(&mut world, Compliance::Violation);
    assert!(world.violations.is_empty(), "10 of 30 s have counted");
}

/// As [`provoke`], where an evaluation was dropped.
fn provoke_running(world: &mut World, compliance: Compliance) {
    let spec = world.api[&world.only_key()].0.clone();
    let evaluate = Evaluate {
        spec: Arc::new(spec),
        due: world.now.instant,
        question: Arc::new(crate::question::Question {
            policies: Vec::new(),
            providers: Vec::new(),
            fingerprint: 0,
        }),
        providers: Vec::new(),
        snapshot: Arc::new(world.index.snapshot()),
        grace: Duration::from_secs(30),
    };
    world.finish(&evaluate, Some(evaluation(compliance, "reason")));
}

fn is_cleared(events: &[ViolationEvent], key: &str) -> bool {
    matches!(events, [ViolationEvent::Cleared(binding)] if *binding.key() == *key)
}

#[test]
fn violation_is_cleared_by_compliance() {
    let mut world = World::with_bindings(1);
    world.next_period(Compliance::Violation);
    world.next_period(Compliance::Compliant);
    assert!(is_cleared(&world.violations[1..], &world.only_key()));
    world.next_period(Compliance::Compliant);
    assert_eq!(world.violations.len(), 2, "cleared once");
}

#[test]
fn violation_is_not_cleared_by_an_error() {
    let mut world = World::with_bindings(1);
    world.next_period(Compliance::Violation);
    world.next_period(Compliance::Error);
    assert_eq!(world.violations.len(), 1);
}

#[test]
fn violation_is_cleared_when_its_binding_is_deleted() {
    let mut world = World::with_bindings(1);
    world.next_period(Compliance::Violation);
    let key = world.only_key();
    world.vanish(&key);
    assert!(is_cleared(&world.violations[1..], &key));
}

#[test]
fn violation_is_cleared_when_its_binding_is_replaced() {
    let mut world = World::with_bindings(1);
    world.next_period(Compliance::Violation);
    let key = world.only_key();
    let spec = BindingSpec {
        uid: "second".into(),
        ..world.api[&key].0.clone()
    };
    world.observe(spec, BindingStatus::default());
    assert!(is_cleared(&world.violations[1..], &key));
    world.advance_secs(1);
    assert_eq!(world.counts.bindings, [1, 0, 0, 0, 0]);
}

#[test]
fn violation_is_not_raised_where_the_policy_is_ignore() {
    let mut world = World::with_bindings(1);
    world.put(Object::Offer(Offer {
        violation_policy: ViolationPolicy::Ignore,
        ..offer("o")
    }));
    world.sync();
    world.evaluate_all(Compliance::Violation);
    assert!(world.violations.is_empty());
    assert_eq!(world.statuses(), ["Violation"]);
}

#[test]
fn violation_is_cleared_when_the_policy_becomes_ignore() {
    let mut world = World::with_bindings(1);
    world.next_period(Compliance::Violation);
    world.put(Object::Offer(Offer {
        violation_policy: ViolationPolicy::Ignore,
        ..offer("o")
    }));
    world.sync();
    world.evaluate_all(Compliance::Violation);
    assert_eq!(world.violations.len(), 2);
    assert!(matches!(world.violations[1], ViolationEvent::Cleared(_)));
}

#[test]
fn transition_to_violation_is_an_event() {
    let mut world = World::with_bindings(1);
    world.advance_secs(11);
    world.evaluate_all_as(Compliance::Violation, "31ms");
    assert_eq!(world.notes, ["Violation: Compliant became Violation: 31ms"]);
}

#[test]
fn transition_of_a_new_binding_to_compliant_is_no_event() {
    let world = World::with_bindings(1);
    assert!(world.notes.is_empty(), "{:?}", world.notes);
}

#[test]
fn transition_of_a_new_binding_to_error_is_an_event() {
    let mut world = World::leading();
    world.add_pods(1);
    world.put(Object::Offer(offer("o")));
    world.sync();
    world.settle();
    world.evaluate_all(Compliance::Error);
    assert_eq!(world.notes, ["Error: Pending became Error: reason"]);
}

#[test]
fn transition_to_pending_is_no_event() {
    let mut world = World::with_bindings(1);
    world.next_period(Compliance::Pending);
    assert!(world.notes.is_empty());
}

#[test]
fn reconciler_names_the_time_of_its_next_work() {
    let mut world = World::with_bindings(1);
    world.advance_secs(11);
    world.evaluate_all(Compliance::Compliant);
    world.settle();
    for _ in 0..100 {
        let next = world.reconciler.next_time().unwrap();
        assert!(next > world.now.instant, "no busy loop");
        world.advance(next - world.now.instant);
        world.evaluate_all(Compliance::Compliant);
        world.settle();
    }
}
