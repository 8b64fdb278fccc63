use super::*;

#[tokio::test]
async fn mitigation_is_noted_before_it_is_requested() {
    let mut fake = Fake::new(ViolationPolicy::Mediate);
    fake.underlay();
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert_eq!(
        fake.calls(),
        [
            "reevaluate",
            "note mitigation",
            "mitigate at path []",
            "Mitigated: tautline-system/path was asked to mitigate",
        ]
    );
    let at = fake.now.unix;
    assert_eq!(result.outcomes[0].1, AttemptOutcome::Mitigated(at));
}

#[tokio::test]
async fn mitigation_comes_before_eviction() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.underlay();
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert!(matches!(result.outcomes[0].1, AttemptOutcome::Mitigated(_)));
    assert!(!fake.calls().contains(&"evict web-0".to_owned()));
}

#[tokio::test]
async fn mitigation_without_an_underlay_is_reported() {
    let fake = Fake::new(ViolationPolicy::Mediate);
    assert_eq!(fake.attempt_once().await, Duration::from_secs(10));
    assert_eq!(fake.calls(), ["NoUnderlay"]);
}

#[tokio::test]
async fn mitigation_of_a_violation_that_is_over_is_not_requested() {
    let mut fake = Fake::new(ViolationPolicy::Mediate);
    fake.underlay();
    fake.compliance = Compliance::Limit;
    fake.attempt_once().await;
    assert_eq!(fake.calls(), ["reevaluate"]);
}

#[tokio::test]
async fn mitigation_that_cannot_be_recorded_is_not_requested() {
    let mut fake = Fake::new(ViolationPolicy::Mediate);
    fake.underlay();
    fake.note = Err(WriteError::Gone);
    assert_eq!(fake.attempt_once().await, Duration::from_secs(10));
    assert!(
        fake.outcome()
            .starts_with("warning Failed: the mitigation could not be recorded")
    );
}

#[tokio::test]
async fn mitigation_is_not_requested_once_the_lead_is_lost() {
    for calls in 0..=2 {
        let mut fake = Fake::new(ViolationPolicy::Mediate);
        fake.underlay();
        fake.leads_for.store(calls, Ordering::Relaxed);
        fake.attempt(vec![violation("b", &["web-0"])]).await;
        assert!(!fake.calls().iter().any(|c| c.starts_with("mitigate")));
    }
}

#[tokio::test]
async fn mitigation_that_fails_counts_as_tried() {
    let mut fake = Fake::new(ViolationPolicy::Mediate);
    fake.underlay();
    fake.mitigation = Err("no path".to_owned());
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert!(matches!(result.outcomes[0].1, AttemptOutcome::Mitigated(_)));
    let text = "warning MitigationFailed: tautline-system/path did not mitigate: no path";
    assert_eq!(fake.outcome(), text);
}

#[tokio::test]
async fn mitigation_lets_the_pod_hold_a_new_allocation() {
    let mut fake = Fake::new(ViolationPolicy::Mediate);
    fake.underlay();
    fake.mitigation = Ok("p7".to_owned());
    fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert_eq!(fake.outcome(), "web-0 holds p7 of tautline-system/path");
}

#[tokio::test]
async fn mitigation_by_an_allocation_that_the_pod_holds_adds_none() {
    let mut fake = Fake::new(ViolationPolicy::Mediate);
    fake.underlay();
    fake.pod("web-0", &["p7"]);
    fake.mitigation = Ok("p7".to_owned());
    fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert_eq!(
        fake.outcome(),
        "Mitigated: tautline-system/path mitigated by p7"
    );
}

#[tokio::test]
async fn mitigation_releases_an_allocation_that_no_pod_can_hold() {
    let mut fake = Fake::new(ViolationPolicy::Mediate);
    fake.underlay();
    fake.mitigation = Ok("p7".to_owned());
    fake.hold = Err("pod is gone".to_owned());
    fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert!(fake.calls().contains(&"release p7".to_owned()));
    let text =
        "warning MitigationNotKept: p7 was released again, no pod could hold it: pod is gone";
    assert_eq!(fake.outcome(), text);
}

#[tokio::test]
async fn mitigation_reports_an_allocation_that_is_lost() {
    let mut fake = Fake::new(ViolationPolicy::Mediate);
    fake.underlay();
    fake.mitigation = Ok("p7".to_owned());
    fake.hold = Err("pod is gone".to_owned());
    fake.release = Err("down".to_owned());
    fake.attempt(vec![violation("b", &["web-0"])]).await;
    let text = "warning MitigationNotKept: no pod holds p7 (pod is gone), and it could not be \
                released: down";
    assert_eq!(fake.outcome(), text);
}

#[tokio::test]
async fn mitigation_in_a_dry_run_is_reported_and_not_requested() {
    let mut fake = Fake::new(ViolationPolicy::Mediate);
    fake.underlay();
    fake.config.dry_run = true;
    fake.attempt(vec![violation("b", &["web-0"])]).await;
    let text = "WouldMediate: would ask tautline-system/path to mitigate";
    assert_eq!(fake.calls(), ["reevaluate", text]);
}
