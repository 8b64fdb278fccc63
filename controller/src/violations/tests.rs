//! Turns of violations, and the next step.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use tautline_core::{
    Reference,
    model::ViolationPolicy::{self, Evict, Ignore, Mediate},
};

use super::{
    Attempt, AttemptOutcome, AttemptResult, CoolDown, NextStep, Violation, ViolationEvent,
    ViolationTracker, decide_action,
};
use crate::{binding_spec::BindingSpec, clock::Now, eviction::EvictionRow};

const GRACE: Duration = Duration::from_secs(60);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn binding(offer: &str, name: &str) -> Arc<BindingSpec> {
    Arc::new(BindingSpec {
        namespace: "shop".into(),
        name: name.into(),
        offer: offer.into(),
        ..BindingSpec::default()
    })
}

fn raised(offer: &str, name: &str, since: u64) -> ViolationEvent {
    ViolationEvent::Raised {
        binding: binding(offer, name),
        since: secs(since),
        reason: format!("since {since}"),
        mitigated: None,
    }
}

fn cleared(name: &str) -> ViolationEvent {
    ViolationEvent::Cleared(binding("o", name))
}

struct World {
    tracker: ViolationTracker,
    now: Now,
}

impl World {
    fn new() -> Self {
        Self {
            tracker: ViolationTracker::default(),
            now: Now {
                instant: Instant::now(),
                unix: secs(10_000),
            },
        }
    }

    /// So many violations of the offer `o`, each older than the one before.
    fn with_violations(count: u64) -> Self {
        let mut world = Self::new();
        for i in 0..count {
            world.raise("o", &format!("b{i}"), 1000 - i);
        }
        world
    }

    fn raise(&mut self, offer: &str, name: &str, since: u64) {
        self.tracker.apply_event(raised(offer, name, since));
    }

    fn advance(&mut self, time: Duration) {
        self.now.instant += time;
        self.now.unix += time;
    }

    fn attempts(&mut self) -> Vec<Attempt> {
        self.tracker.next_attempts(self.now)
    }

    fn only_attempt(&mut self) -> Attempt {
        let mut attempts = self.attempts();
        assert_eq!(attempts.len(), 1, "{attempts:?}");
        attempts.remove(0)
    }

    /// Ends an attempt after which each of its violations waits for so long.
    fn finish(&mut self, attempt: &Attempt, wait: Duration) {
        let outcome = AttemptOutcome::NotBefore(self.now.instant + wait);
        self.finish_with(attempt, attempt.cool_down, outcome);
    }

    fn finish_with(&mut self, attempt: &Attempt, cool_down: CoolDown, outcome: AttemptOutcome) {
        let violations = attempt.violations.iter();
        let result = AttemptResult {
            cool_down,
            outcomes: violations.map(|v| (v.binding.key(), outcome)).collect(),
        };
        let now = self.now.instant;
        self.tracker.finish(&attempt.offer, Some(result), now);
    }
}

fn names(attempt: &Attempt) -> Vec<&str> {
    let violations = attempt.violations.iter();
    violations.map(|v| &*v.binding.name).collect()
}

#[test]
fn tracker_attempts_a_raised_violation() {
    let mut world = World::with_violations(1);
    let attempt = world.only_attempt();
    assert_eq!((&*attempt.offer, names(&attempt)), ("shop/o", vec!["b0"]));
}

#[test]
fn tracker_attempts_nothing_without_violations() {
    assert!(World::new().attempts().is_empty());
}

#[test]
fn tracker_forgets_a_cleared_violation() {
    let mut world = World::with_violations(1);
    world.tracker.apply_event(cleared("b0"));
    assert!(world.attempts().is_empty());
}

#[test]
fn tracker_takes_the_oldest_violations_first() {
    let mut world = World::with_violations(9);
    assert_eq!(names(&world.only_attempt()), ["b8", "b7", "b6", "b5"]);
}

#[test]
fn tracker_gives_every_violation_its_turn() {
    let mut world = World::with_violations(10);
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..3 {
        let attempt = world.only_attempt();
        seen.extend(names(&attempt).into_iter().map(str::to_owned));
        world.finish(&attempt, Duration::ZERO);
        world.advance(secs(1));
    }
    seen.truncate(10);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 10, "none is tried twice before all were tried");
}

#[test]
fn tracker_runs_one_attempt_per_offer() {
    let mut world = World::with_violations(9);
    let attempt = world.only_attempt();
    assert!(world.attempts().is_empty());
    world.finish(&attempt, Duration::ZERO);
    world.only_attempt();
}

#[test]
fn tracker_runs_8_attempts_at_once() {
    let mut world = World::new();
    for i in 0..20 {
        world.raise(&format!("o{i}"), &format!("b{i}"), 1000);
    }
    let attempts = world.attempts();
    assert_eq!(attempts.len(), 8);
    world.finish(&attempts[0], secs(60));
    assert_eq!(world.attempts().len(), 1);
}

#[test]
fn tracker_gives_every_offer_its_turn() {
    let mut world = World::new();
    for i in 0..20 {
        world.raise(&format!("o{i}"), &format!("b{i}"), 1000);
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        let attempts = world.attempts();
        world.advance(secs(1));
        for attempt in &attempts {
            seen.push(Arc::clone(&attempt.offer));
            world.finish(attempt, Duration::ZERO);
        }
    }
    seen.truncate(20);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 20);
}

#[test]
fn tracker_waits_as_an_outcome_says() {
    let mut world = World::with_violations(1);
    let attempt = world.only_attempt();
    world.finish(&attempt, secs(10));
    world.advance(secs(9));
    assert!(world.attempts().is_empty());
    world.advance(secs(1));
    world.only_attempt();
}

#[test]
fn tracker_frees_the_offer_of_an_attempt_that_panicked() {
    let mut world = World::with_violations(1);
    let attempt = world.only_attempt();
    let now = world.now.instant;
    world.tracker.finish(&attempt.offer, None, now);
    world.only_attempt();
}

/// A cool-down of 120 s from a time.
fn cooling_down(from: Duration) -> CoolDown {
    CoolDown {
        loaded: true,
        row: Some(EvictionRow::with(None, from, 1, secs(120))),
    }
}

#[test]
fn tracker_tries_violations_of_last_resort_after_all_others() {
    let mut world = World::with_violations(6);
    let attempt = world.only_attempt();
    assert_eq!(names(&attempt), ["b5", "b4", "b3", "b2"]);
    let instant = world.now.instant;
    let outcomes = attempt.violations.iter().map(|v| {
        let outcome = match &*v.binding.name {
            "b5" => AttemptOutcome::LastResort,
            _ => AttemptOutcome::NotBefore(instant + secs(10)),
        };
        (v.binding.key(), outcome)
    });
    let result = AttemptResult {
        cool_down: attempt.cool_down,
        outcomes: outcomes.collect(),
    };
    world.tracker.finish(&attempt.offer, Some(result), instant);
    // Those that were never tried come first, after their wait all others, and last b5.
    let attempt = world.only_attempt();
    assert_eq!(names(&attempt), ["b1", "b0"]);
    world.finish(&attempt, secs(60));
    world.advance(secs(10));
    let attempt = world.only_attempt();
    assert_eq!(names(&attempt), ["b4", "b3", "b2"]);
    world.finish(&attempt, secs(20));
    world.advance(secs(20));
    let attempt = world.only_attempt();
    assert_eq!(names(&attempt), ["b4", "b3", "b2", "b5"]);
    assert!(attempt.violations[3].last_resort);
}

#[test]
fn tracker_counts_the_pods_in_violation_by_target() {
    let mut world = World::new();
    for (i, (client, server)) in [("c0", "s0"), ("c0", "s1"), ("c1", "s0")]
        .iter()
        .enumerate()
    {
        let binding = BindingSpec {
            targets: [
                ("client".into(), Reference::pod("shop", client)),
                ("server".into(), Reference::pod("shop", server)),
                ("site".into(), Reference::default()),
            ]
            .into(),
            ..BindingSpec::clone(&binding("o", &format!("b{i}")))
        };
        world.tracker.apply_event(ViolationEvent::Raised {
            binding: Arc::new(binding),
            since: secs(1000),
            reason: String::new(),
            mitigated: None,
        });
    }
    let expected = [("client".into(), 2), ("server".into(), 2)];
    assert_eq!(world.only_attempt().pods, expected.into());
}

#[test]
fn tracker_keeps_the_cool_down_of_an_offer_without_violations() {
    let mut world = World::with_violations(1);
    let attempt = world.only_attempt();
    let cool_down = cooling_down(world.now.unix);
    let outcome = AttemptOutcome::NotBefore(world.now.instant);
    world.finish_with(&attempt, cool_down, outcome);
    world.tracker.apply_event(cleared("b0"));
    world.advance(secs(100));
    assert!(world.attempts().is_empty());
    world.raise("o", "b1", 1000);
    assert_eq!(world.only_attempt().cool_down, cool_down);
}

#[test]
fn tracker_forgets_a_cool_down_that_is_over() {
    let mut world = World::with_violations(1);
    let attempt = world.only_attempt();
    let cool_down = cooling_down(world.now.unix);
    let outcome = AttemptOutcome::NotBefore(world.now.instant);
    world.finish_with(&attempt, cool_down, outcome);
    world.tracker.apply_event(cleared("b0"));
    world.advance(secs(120));
    world.attempts();
    world.raise("o", "b1", 1000);
    assert_eq!(world.only_attempt().cool_down, CoolDown::default());
}

#[test]
fn tracker_keeps_the_start_of_a_violation_through_an_error() {
    let mut world = World::new();
    world.raise("o", "b", 1000);
    world.raise("o", "b", 1060);
    let attempt = world.only_attempt();
    assert_eq!(attempt.violations[0].since, secs(1000));
    assert_eq!(attempt.violations[0].reason, "since 1060", "the latest");
}

#[test]
fn tracker_counts_mitigations() {
    let mut world = World::with_violations(1);
    for expected in 0..3 {
        let attempt = world.only_attempt();
        assert_eq!(attempt.violations[0].mitigations, expected);
        let outcome = AttemptOutcome::Mitigated(world.now.unix);
        world.finish_with(&attempt, attempt.cool_down, outcome);
        world.advance(secs(1));
    }
}

#[test]
fn tracker_counts_mitigations_of_a_new_violation_from_zero() {
    let mut world = World::with_violations(1);
    let attempt = world.only_attempt();
    let outcome = AttemptOutcome::Mitigated(world.now.unix);
    world.finish_with(&attempt, attempt.cool_down, outcome);
    world.tracker.apply_event(cleared("b0"));
    world.raise("o", "b0", 20_000);
    assert_eq!(world.only_attempt().violations[0].mitigations, 0);
}

#[test]
fn tracker_knows_the_mitigation_of_an_earlier_leader() {
    let mut world = World::new();
    let ViolationEvent::Raised {
        binding,
        since,
        reason,
        ..
    } = raised("o", "b", 1000)
    else {
        unreachable!()
    };
    world.tracker.apply_event(ViolationEvent::Raised {
        binding,
        since,
        reason,
        mitigated: Some(secs(1001)),
    });
    let attempt = world.only_attempt();
    assert_eq!(attempt.violations[0].mitigated, Some(secs(1001)));
}

#[test]
fn tracker_ignores_outcomes_of_violations_that_were_cleared() {
    let mut world = World::with_violations(1);
    let attempt = world.only_attempt();
    world.tracker.apply_event(cleared("b0"));
    world.finish(&attempt, secs(600));
    world.raise("o", "b0", 9000);
    world.only_attempt();
}

fn violation(mitigated: Option<u64>, mitigations: u32) -> Violation {
    Violation {
        since: secs(1000),
        mitigated: mitigated.map(secs),
        mitigations,
        ..Violation::default()
    }
}

/// The next step at a time, with an underlay controller.
fn with_underlay(policy: ViolationPolicy, violation: &Violation, at: u64) -> NextStep {
    decide_action(policy, true, GRACE, violation, secs(at))
}

fn without_underlay(policy: ViolationPolicy, at: u64) -> NextStep {
    decide_action(policy, false, GRACE, &violation(None, 0), secs(at))
}

#[test]
fn decide_ignores_under_the_policy_ignore() {
    let new = violation(None, 0);
    assert_eq!(with_underlay(Ignore, &new, 1001), NextStep::Nothing);
    assert_eq!(without_underlay(Ignore, 1001), NextStep::Nothing);
}

#[test]
fn decide_evicts_at_once_without_an_underlay() {
    assert_eq!(without_underlay(Evict, 1001), NextStep::Evict);
}

#[test]
fn decide_mitigates_before_it_evicts() {
    let new = violation(None, 0);
    assert_eq!(with_underlay(Evict, &new, 1001), NextStep::Mitigate);
}

#[test]
fn decide_evicts_one_grace_after_the_mitigation() {
    let tried = violation(Some(1000), 1);
    let wait = NextStep::Wait(secs(1060));
    assert_eq!(with_underlay(Evict, &tried, 1059), wait);
    assert_eq!(with_underlay(Evict, &tried, 1060), NextStep::Evict);
}

#[test]
fn decide_mitigates_again_for_a_new_violation() {
    let earlier = violation(Some(900), 1);
    assert_eq!(with_underlay(Evict, &earlier, 1001), NextStep::Mitigate);
}

#[test]
fn decide_takes_a_rounded_mitigation_time_for_this_violation() {
    // Noted as 999 where it began at 999.5.
    let rounded = violation(Some(999), 1);
    assert!(matches!(
        with_underlay(Evict, &rounded, 1001),
        NextStep::Wait(_)
    ));
}

#[test]
fn decide_reports_mediation_without_an_underlay() {
    assert_eq!(without_underlay(Mediate, 1001), NextStep::NoUnderlay);
}

#[test]
fn decide_mediates_at_once_and_again_after_a_grace() {
    let new = violation(None, 0);
    assert_eq!(with_underlay(Mediate, &new, 1001), NextStep::Mitigate);
    let tried = violation(Some(1000), 1);
    let wait = NextStep::Wait(secs(1060));
    assert_eq!(with_underlay(Mediate, &tried, 1059), wait);
    assert_eq!(with_underlay(Mediate, &tried, 1060), NextStep::Mitigate);
}

#[test]
fn decide_doubles_the_wait_of_mediation() {
    let often = violation(Some(1000), 3);
    let wait = NextStep::Wait(secs(1240));
    assert_eq!(with_underlay(Mediate, &often, 1239), wait);
    assert_eq!(with_underlay(Mediate, &often, 1240), NextStep::Mitigate);
}

#[test]
fn decide_waits_at_most_an_hour_for_mediation() {
    let very_often = violation(Some(1000), 60);
    let wait = NextStep::Wait(secs(4600));
    assert_eq!(with_underlay(Mediate, &very_often, 1001), wait);
}

#[test]
fn decide_waits_at_least_10_seconds_for_mediation() {
    let tried = violation(Some(1000), 1);
    let step = decide_action(Mediate, true, Duration::ZERO, &tried, secs(1001));
    assert_eq!(step, NextStep::Wait(secs(1010)));
}

#[test]
fn decide_waits_for_a_grace_longer_than_an_hour() {
    let tried = violation(Some(1000), 1);
    let step = decide_action(Mediate, true, secs(7200), &tried, secs(1001));
    assert_eq!(step, NextStep::Wait(secs(8200)));
}

proptest! {
    /// Mediation never evicts, eviction happens at most once per grace after a
    /// mitigation, and a wait always ends.
    #[test]
    fn decide_follows_the_policy(
        policy in 0usize..3, underlay: bool, grace in 0u64..10_000,
        mitigated in proptest::option::of(900u64..2000), count in 0u32..100, now in 1000u64..20_000,
    ) {
        let policy = [Ignore, Mediate, Evict][policy];
        let violation = violation(mitigated, count);
        let step = decide_action(policy, underlay, secs(grace), &violation, secs(now));
        match step {
            NextStep::Evict => prop_assert_eq!(policy, Evict),
            NextStep::Mitigate => prop_assert!(underlay && policy != Ignore),
            NextStep::NoUnderlay => prop_assert!(!underlay && policy == Mediate),
            NextStep::Wait(until) => {
                prop_assert!(until > secs(now));
                let later = decide_action(policy, underlay, secs(grace), &violation, until);
                prop_assert!(!matches!(later, NextStep::Wait(_)));
            }
            NextStep::Nothing => prop_assert_eq!(policy, Ignore),
        }
    }
}
