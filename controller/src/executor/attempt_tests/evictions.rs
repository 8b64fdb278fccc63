use super::*;
use crate::eviction::EvictionRow;

#[tokio::test]
async fn eviction_goes_through_every_check_in_order() {
    let fake = Fake::new(ViolationPolicy::Evict);
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert_eq!(
        fake.calls(),
        [
            "reevaluate",
            "plan web-0",
            "check workload",
            "dry-run evict web-0",
            "note eviction of uid-of-web-0",
            "evict web-0",
            "Evicted: evicted pod shop/web-0 on n1: latency/OverLimit; n2 would keep to every rule",
            "report on web-0: binding b of offer o was violated (31ms); n2 would keep to every rule",
        ]
    );
    assert_eq!(fake.wait(&result), COOL_DOWN);
    assert_eq!(next(&result), Some(COOL_DOWN));
}

/// The time to the offer's next eviction.
fn next(result: &AttemptResult) -> Option<Duration> {
    let row = result.cool_down.row?;
    Some(row.next - row.last)
}

#[tokio::test]
async fn eviction_waits_shorter_for_the_next_of_many_pods() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.violating = 12;
    assert_eq!(fake.attempt_once().await, Duration::from_secs(30));
}

/// Lets web-0 come back after the last of a row of evictions, which the offer's status has.
fn came_back(fake: &mut Fake) -> EvictionRow {
    let now = fake.now.unix;
    fake.change("web-0", |pod| {
        pod.metadata.creation_timestamp = Some(to_api_time(now - Duration::from_secs(20)));
    });
    let row = EvictionRow::with(None, now - Duration::from_secs(40), 12, COOL_DOWN);
    fake.status.as_mut().unwrap().last_eviction = Some(LastEviction {
        pod: "web-9".to_owned(),
        uid: "uid-of-web-9".to_owned(),
        node: "n1".to_owned(),
        binding: "b".to_owned(),
        time: to_api_time(row.last),
        group: None,
        since: None,
        next_time: Some(to_api_time(row.next)),
    });
    row
}

#[tokio::test]
async fn eviction_waits_the_whole_cool_down_after_a_pod_came_back() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    let row = came_back(&mut fake);
    let next = Attempt {
        offer: "shop/o".into(),
        violations: vec![violation("a", &["web-0"]), violation("b", &["web-1"])],
        pods: [("t0".into(), 12)].into(),
        cool_down: CoolDown {
            loaded: true,
            row: Some(row),
        },
    };
    let result = attempt(&fake, next).await;
    assert_eq!(result.cool_down.row.unwrap().next, row.last + COOL_DOWN);
    let calls = fake.calls();
    assert!(calls.iter().any(|c| c.starts_with("warning CameBack: ")));
    let noted = "note eviction of uid-of-web-9".to_owned();
    assert!(calls.contains(&noted), "{calls:?}");
    assert!(!calls.contains(&"evict web-1".to_owned()), "{calls:?}");
}

#[tokio::test]
async fn dry_run_records_no_slower_pace() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.config.dry_run = true;
    came_back(&mut fake);
    fake.attempt(vec![violation("a", &["web-0"])]).await;
    let calls = fake.calls();
    assert!(
        calls.iter().any(|c| c.starts_with("warning CameBack: ")),
        "{calls:?}"
    );
    assert!(
        !calls.iter().any(|c| c.starts_with("note eviction")),
        "{calls:?}"
    );
}

#[tokio::test]
async fn eviction_of_an_only_replica_comes_after_other_violations() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.index
        .delete(tautline_core::index::Kind::Pod, "shop/web-1");
    let mut only = violation("b", &["web-0"]);
    let result = fake.attempt(vec![only.clone()]).await;
    assert_eq!(result.outcomes[0].1, AttemptOutcome::LastResort);
    assert_eq!(fake.calls()[..2], ["reevaluate", "plan web-0"]);
    assert!(fake.outcome().starts_with("LastResort: "));
    only.last_resort = true;
    fake.attempt(vec![only]).await;
    assert!(fake.calls().contains(&"evict web-0".to_owned()));
}

#[tokio::test]
async fn eviction_is_of_targets_that_the_offer_names() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.offer_with(ViolationPolicy::Evict, |offer| {
        offer.evict = vec!["t1".into()]
    });
    fake.attempt(vec![violation("b", &["web-0", "web-1"])])
        .await;
    let calls = fake.calls();
    assert!(calls.contains(&"evict web-1".to_owned()), "{calls:?}");
    assert!(!calls.contains(&"plan web-0".to_owned()), "{calls:?}");
}

#[tokio::test]
async fn eviction_of_a_protected_pod_is_refused() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.config.protecting_annotations = vec!["example.com/pinned".parse().unwrap()];
    fake.change("web-0", |pod| {
        let annotation = ("example.com/pinned".to_owned(), "true".to_owned());
        pod.metadata.annotations = Some([annotation].into());
    });
    fake.attempt_once().await;
    let text = "warning Protected: target t0: pod shop/web-0 has the annotation \
                example.com/pinned: \"true\"";
    assert_eq!(fake.outcome(), text);
}

#[tokio::test]
async fn eviction_is_limited_to_one_per_cool_down() {
    let fake = Fake::new(ViolationPolicy::Evict);
    let both = vec![violation("a", &["web-0"]), violation("b", &["web-0"])];
    let result = fake.attempt(both).await;
    assert_eq!(result.outcomes.len(), 2);
    let evictions = fake.calls().iter().filter(|c| *c == "evict web-0").count();
    assert_eq!(evictions, 1);
}

#[tokio::test]
async fn eviction_waits_for_the_cool_down_of_an_earlier_leader() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.evicted_before(Duration::from_secs(50));
    assert_eq!(fake.attempt_once().await, Duration::from_secs(70));
    let text = "CoolDown: next eviction in 70 s, at 1970-01-02T03:47:50Z: the offer's cool-down";
    assert_eq!(fake.calls(), [text]);
}

#[tokio::test]
async fn eviction_of_a_pod_that_the_last_one_brought_is_refused() {
    for (age, outcome) in [(100, "warning CameBack: "), (200, "report on web-0: ")] {
        let mut fake = Fake::new(ViolationPolicy::Evict);
        fake.evicted_before(Duration::from_secs(130));
        let created = to_api_time(fake.now.unix - Duration::from_secs(age));
        let pod = fake.pods.get_mut("web-0").unwrap();
        pod.metadata.creation_timestamp = Some(created);
        fake.attempt_once().await;
        assert!(fake.outcome().starts_with(outcome), "{}", fake.outcome());
    }
}

#[tokio::test]
async fn eviction_waits_while_the_last_one_is_not_known() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.status = Err(WriteError::Refused("busy".to_owned()));
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert_eq!(fake.wait(&result), Duration::from_secs(10));
    assert!(!result.cool_down.loaded && fake.calls().is_empty());
}

#[tokio::test]
async fn eviction_of_a_violation_that_is_over_is_stale() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.compliance = Compliance::Compliant;
    assert_eq!(fake.attempt_once().await, Duration::from_secs(2));
    assert!(fake.outcome().starts_with("warning Stale: "));
}

#[tokio::test]
async fn eviction_without_an_answer_of_the_provider_is_not_made() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.compliance = Compliance::Error;
    assert_eq!(fake.attempt_once().await, Duration::from_secs(10));
    assert!(fake.outcome().starts_with("warning NotEvaluated: "));
}

#[tokio::test]
async fn eviction_stops_where_a_replica_is_down() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.workload = Err(Refusal::new("ReplicaDown", "pod shop/web-1 is not ready"));
    assert_eq!(fake.attempt_once().await, Duration::from_secs(2));
    assert!(!fake.calls().iter().any(|c| c.contains("evict web-0")));
}

#[tokio::test]
async fn eviction_that_a_budget_refuses_is_not_noted() {
    let fake = Fake::new(ViolationPolicy::Evict);
    let refusal = EvictAnswer::from_status("pod shop/web-0", 429, "budget");
    fake.evictions.lock().unwrap().push(refusal);
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert_eq!(fake.wait(&result), Duration::from_secs(5));
    assert_eq!(next(&result), None);
    assert!(!fake.calls().iter().any(|c| c.starts_with("note")));
}

#[tokio::test]
async fn eviction_that_cannot_be_recorded_is_not_made() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.note = Err(WriteError::Refused("busy".to_owned()));
    fake.attempt_once().await;
    assert!(
        fake.outcome()
            .starts_with("warning Failed: the eviction could not be recorded")
    );
    assert!(!fake.calls().contains(&"evict web-0".to_owned()));
}

#[tokio::test]
async fn eviction_whose_answer_is_lost_counts_as_made() {
    let fake = Fake::new(ViolationPolicy::Evict);
    let lost = EvictAnswer::Lost("timeout".to_owned());
    fake.evictions
        .lock()
        .unwrap()
        .extend([EvictAnswer::Done, lost]);
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert!(fake.outcome().starts_with("warning Unknown: "));
    assert_eq!(next(&result), Some(COOL_DOWN));
}

#[tokio::test]
async fn eviction_check_whose_answer_is_lost_is_a_failure() {
    let fake = Fake::new(ViolationPolicy::Evict);
    let lost = EvictAnswer::Lost("timeout".to_owned());
    fake.evictions.lock().unwrap().push(lost);
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert!(fake.outcome().starts_with("warning Failed: "));
    assert_eq!(next(&result), None);
}

#[tokio::test]
async fn eviction_changes_nothing_once_the_lead_is_lost() {
    // After each call in turn: no note and no eviction follows.
    for calls in 0..6 {
        let fake = Fake::new(ViolationPolicy::Evict);
        fake.leads_for.store(calls, Ordering::Relaxed);
        fake.attempt(vec![violation("b", &["web-0"])]).await;
        let all = fake.calls();
        let later = &all[calls.min(all.len())..];
        let changes = |c: &&String| c.starts_with("evict ") || c.starts_with("note ");
        // The call after which the lead is lost may itself be the note.
        assert!(!later.iter().any(|c| changes(&c)), "after {calls}: {all:?}");
    }
}

#[tokio::test]
async fn eviction_in_a_dry_run_is_reported_and_not_made() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.config.dry_run = true;
    assert_eq!(fake.attempt_once().await, COOL_DOWN);
    assert!(
        fake.outcome()
            .starts_with("WouldEvict: would evict pod shop/web-0")
    );
    assert!(!fake.calls().contains(&"evict web-0".to_owned()));
    assert!(!fake.calls().iter().any(|c| c.starts_with("note")));
}

#[tokio::test]
async fn eviction_of_an_exempt_namespace_is_refused() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.config.exempt_namespaces = ["shop".to_owned()].into();
    fake.attempt_once().await;
    let text = "warning Exempt: target t0: namespace shop is exempt";
    assert_eq!(fake.outcome(), text);
}

#[tokio::test]
async fn eviction_of_a_binding_without_pods_is_refused() {
    let fake = Fake::new(ViolationPolicy::Evict);
    fake.attempt(vec![violation("b", &[])]).await;
    assert!(fake.outcome().starts_with("warning NoPodTarget: "));
}

#[tokio::test]
async fn eviction_of_a_pod_that_is_gone_is_stale() {
    let fake = Fake::new(ViolationPolicy::Evict);
    fake.attempt(vec![violation("b", &["web-7"])]).await;
    assert!(
        fake.outcome()
            .starts_with("warning Stale: target t0: pod shop/web-7 is gone")
    );
}

#[tokio::test]
async fn eviction_names_the_problems_of_all_targets() {
    let fake = Fake::new(ViolationPolicy::Evict);
    fake.attempt(vec![violation("b", &["web-7", "web-8"])])
        .await;
    let text =
        "warning Stale: target t0: pod shop/web-7 is gone; target t1: pod shop/web-8 is gone";
    assert_eq!(fake.outcome(), text);
}

#[tokio::test]
async fn eviction_without_a_better_node_is_refused() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.nodes = vec![("n1", None), ("n2", None)];
    fake.attempt_once().await;
    let outcome = fake.outcome();
    let text = "warning NoBetterNode: target t0: none of the 1 other nodes that fit the pod is within the rules: 1 latency/OverLimit";
    assert!(outcome.starts_with(text), "{outcome}");
}

#[tokio::test]
async fn eviction_waits_for_the_turn_of_another() {
    let fake = Fake::new(ViolationPolicy::Evict);
    let permit = fake.turn.acquire().await.unwrap();
    let violations = vec![violation("b", &["web-0"])];
    let mut attempt = std::pin::pin!(fake.attempt(violations));
    assert!(futures::poll!(&mut attempt).is_pending());
    assert_eq!(fake.calls(), ["reevaluate", "plan web-0"]);
    drop(permit);
    attempt.await;
    assert!(fake.calls().contains(&"evict web-0".to_owned()));
}

#[tokio::test]
async fn attempt_without_its_offer_waits() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.index = Index::default();
    assert_eq!(fake.attempt_once().await, Duration::from_secs(10));
    assert!(fake.calls().is_empty());
}
