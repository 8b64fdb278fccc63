//! Evictions of pods that end together.

use super::*;

/// `web-0` and `web-1` are the pods of a Job; the offer says whether it evicts groups.
fn job(groups: bool) -> Fake {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.offer_with(ViolationPolicy::Evict, |offer| offer.evict_groups = groups);
    for name in ["web-0", "web-1"] {
        fake.change(name, |pod| {
            let owner = &mut pod.metadata.owner_references.as_mut().unwrap()[0];
            owner.api_version = "batch/v1".to_owned();
            owner.kind = "Job".to_owned();
            owner.name = "train".to_owned();
        });
    }
    fake.pod("other", &[]);
    fake.change("other", |pod| {
        pod.metadata.owner_references.as_mut().unwrap()[0].uid = "another".to_owned();
    });
    fake
}

/// A violation whose turn for a last resort has come.
fn last_resort() -> Vec<Violation> {
    vec![Violation {
        last_resort: true,
        ..violation("b", &["web-0"])
    }]
}

#[tokio::test]
async fn group_is_not_evicted_without_a_word_of_the_offer() {
    let fake = job(false);
    fake.attempt(last_resort()).await;
    assert_eq!(
        fake.calls(),
        [
            "reevaluate",
            "warning GroupMember: target t0: pod shop/web-0 belongs to Job train: a lost pod counts \
             against its backoffLimit, and may fail it; with evictGroups: true in the offer all its \
             pods are evicted together",
        ]
    );
}

#[tokio::test]
async fn group_is_evicted_as_a_whole() {
    let fake = job(true);
    fake.attempt(last_resort()).await;
    assert_eq!(
        fake.calls(),
        [
            "reevaluate",
            "list Job train",
            "plan web-0",
            "list budgets",
            "dry-run evict web-0",
            "dry-run evict web-1",
            "note eviction of uid-of-web-0",
            "evict web-0",
            "evict web-1",
            "Evicted: evicted pod shop/web-0 on n1, with all 2 pods of Job train: \
             latency/OverLimit; n2 would keep to every rule",
            "report on web-0 web-1: binding b of offer o was violated (31ms); n2 would keep to \
             every rule",
        ]
    );
}

#[tokio::test]
async fn group_is_a_last_resort() {
    let fake = job(true);
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert_eq!(result.outcomes[0].1, AttemptOutcome::LastResort);
}

#[tokio::test]
async fn group_with_a_protected_pod_is_not_evicted() {
    let mut fake = job(true);
    fake.change("web-1", |pod| {
        let key = "cluster-autoscaler.kubernetes.io/safe-to-evict";
        pod.metadata.annotations = Some([(key.to_owned(), "false".to_owned())].into());
    });
    fake.attempt(last_resort()).await;
    let text = "warning Protected: target t0: pod shop/web-1 has the annotation \
                cluster-autoscaler.kubernetes.io/safe-to-evict: \"false\"";
    assert_eq!(fake.outcome(), text);
}

#[tokio::test]
async fn group_that_is_not_up_is_not_evicted() {
    let mut fake = job(true);
    fake.change("web-1", |pod| pod.status = None);
    fake.attempt(last_resort()).await;
    let text = "warning ReplicaDown: pod web-1 of Job train is not ready";
    assert_eq!(fake.outcome(), text);
}

#[tokio::test]
async fn group_that_a_budget_keeps_in_part_is_not_evicted() {
    let mut fake = job(true);
    let budget = json!({
        "metadata": {"name": "one"}, "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1,
                   "expectedPods": 2},
    });
    fake.budgets = vec![serde_json::from_value(budget).unwrap()];
    fake.attempt(last_resort()).await;
    assert!(fake.outcome().starts_with("warning DisruptionBudget: "));
    assert!(!fake.calls().iter().any(|c| c.contains("evict web")));
}

#[tokio::test]
async fn group_whose_second_pod_is_refused_is_reported() {
    let fake = job(true);
    let refused = EvictAnswer::from_status("pod shop/web-1", 429, "budget");
    let done = || EvictAnswer::Done;
    fake.evictions
        .lock()
        .unwrap()
        .extend([done(), done(), done(), refused]);
    let result = fake.attempt(last_resort()).await;
    let calls = fake.calls();
    let text = "warning PartlyEvicted: evicted not all (pod shop/web-1: budget) of pod shop/web-0";
    assert!(calls.iter().any(|c| c.starts_with(text)), "{calls:?}");
    assert!(fake.outcome().starts_with("report on web-0: "));
    assert!(result.cool_down.row.is_some());
}

#[tokio::test]
async fn group_whose_owner_deletes_its_pods_first_is_evicted() {
    let fake = job(true);
    let gone = EvictAnswer::from_status("pod shop/web-1", 404, "gone");
    let done = || EvictAnswer::Done;
    fake.evictions
        .lock()
        .unwrap()
        .extend([done(), done(), done(), gone]);
    fake.attempt(last_resort()).await;
    assert!(fake.calls().iter().any(|c| c.starts_with("Evicted: ")));
}

#[tokio::test]
async fn group_stays_as_it_is_once_the_lead_is_lost() {
    let fake = job(true);
    // After the first eviction.
    fake.leads_for.store(8, Ordering::Relaxed);
    fake.attempt(last_resort()).await;
    let calls = fake.calls();
    assert!(!calls.contains(&"evict web-1".to_owned()), "{calls:?}");
    let text = "warning PartlyEvicted: evicted not all (this replica leads no more)";
    assert!(calls.iter().any(|c| c.starts_with(text)), "{calls:?}");
}
