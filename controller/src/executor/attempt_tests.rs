//! Attempts whose calls are answered without a server.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::json;
use tautline_api::constraint::{ConstraintPolicyOfferStatus, LastEviction};
use tautline_core::{
    Compliance, Index, Reference, Snapshot, TrustedNamespaces,
    index::Object,
    model::{self, Offer, Service, ViolationPolicy, key},
    planning::{NodeVerdict, Plan},
};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    attempt::attempt,
    calls::{AttemptSettings, Calls, Report},
};
use crate::{
    binding_spec::BindingSpec,
    binding_status::to_api_time,
    clock::Now,
    eviction::{Candidate, EvictAnswer, NodePlan, Refusal},
    mitigation::MitigationRequest,
    violations::{Attempt, AttemptOutcome, AttemptResult, CoolDown, Violation},
    write_error::WriteError,
};

const COOL_DOWN: Duration = Duration::from_secs(120);

/// Answers, and a record of the calls.
struct Fake {
    settings: AttemptSettings,
    index: Index,
    now: Now,
    compliance: Compliance,
    status: Result<ConstraintPolicyOfferStatus, WriteError>,
    pods: BTreeMap<String, Pod>,
    /// Costs by node; `None`: the node is unusable.
    nodes: Vec<(&'static str, Option<u64>)>,
    workload: Result<(), Refusal>,
    note: Result<(), WriteError>,
    evictions: Mutex<Vec<EvictAnswer>>,
    mitigation: Result<String, String>,
    hold: Result<(), String>,
    release: Result<(), String>,
    turn: Semaphore,
    calls: Mutex<Vec<String>>,
    /// The lead is lost after so many calls.
    leads_for: AtomicUsize,
}

impl Fake {
    fn new(policy: ViolationPolicy) -> Self {
        let mut fake = Self {
            settings: AttemptSettings {
                dry_run: false,
                eviction_cool_down: COOL_DOWN,
                exempt_namespaces: ["kube-system".to_owned()].into(),
                trusted: TrustedNamespaces::default(),
            },
            index: Index::default(),
            now: Now {
                instant: Instant::now(),
                unix: Duration::from_secs(100_000),
            },
            compliance: Compliance::Violation,
            status: Ok(ConstraintPolicyOfferStatus::default()),
            pods: BTreeMap::new(),
            nodes: vec![("n1", None), ("n2", Some(5))],
            workload: Ok(()),
            note: Ok(()),
            evictions: Mutex::new(Vec::new()),
            mitigation: Ok(String::new()),
            hold: Ok(()),
            release: Ok(()),
            turn: Semaphore::new(1),
            calls: Mutex::new(Vec::new()),
            leads_for: AtomicUsize::new(usize::MAX),
        };
        fake.offer(policy);
        fake.pod("web-0", &[]);
        fake
    }

    fn offer(&mut self, policy: ViolationPolicy) {
        self.index.apply(Object::Offer(Offer {
            namespace: "shop".into(),
            name: "o".into(),
            uid: "uid-of-o".into(),
            grace: Duration::from_secs(60),
            violation_policy: policy,
            ..Offer::default()
        }));
    }

    fn pod(&mut self, name: &str, underlay: &[&str]) {
        self.index.apply(Object::Pod(model::Pod {
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("uid-of-{name}").into(),
            node: Some("n1".into()),
            underlay: underlay.iter().map(|id| (*id).into()).collect(),
            ..model::Pod::default()
        }));
        let pod = json!({
            "metadata": {
                "namespace": "shop", "name": name, "uid": format!("uid-of-{name}"),
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
                                     "name": "web", "uid": "rs", "controller": true}],
            },
            "spec": {"nodeName": "n1", "containers": []},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods.insert(name.to_owned(), pod);
    }

    fn underlay(&mut self) {
        self.index.apply(Object::Service(Service {
            namespace: "tautline-system".into(),
            name: "path".into(),
            underlay: true,
            ..Service::default()
        }));
    }

    fn record(&self, call: impl Into<String>) {
        self.calls.lock().unwrap().push(call.into());
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    /// The last call, which reports the outcome.
    fn outcome(&self) -> String {
        self.calls().pop().unwrap_or_default()
    }

    async fn attempt(&self, violations: Vec<Violation>) -> AttemptResult {
        let next = Attempt {
            offer: "shop/o".into(),
            violations,
            cool_down: CoolDown::default(),
        };
        attempt(self, next).await
    }

    /// An attempt for one violation of one pod; returns the wait.
    async fn attempt_once(&self) -> Duration {
        self.wait(&self.attempt(vec![violation("b", &["web-0"])]).await)
    }

    fn wait(&self, result: &AttemptResult) -> Duration {
        match result.outcomes[..] {
            [(_, AttemptOutcome::NotBefore(at))] => at - self.now.instant,
            _ => panic!("{:?}", result.outcomes),
        }
    }
}

fn violation(name: &str, pods: &[&str]) -> Violation {
    let targets = pods.iter().enumerate();
    let binding = BindingSpec {
        namespace: "shop".into(),
        name: name.into(),
        offer: "o".into(),
        targets: targets
            .map(|(i, pod)| (format!("t{i}").into(), Reference::pod("shop", pod)))
            .collect(),
        ..BindingSpec::default()
    };
    Violation {
        binding: Arc::new(binding),
        since: Duration::from_secs(99_000),
        reason: "31ms".to_owned(),
        ..Violation::default()
    }
}

impl Calls for Fake {
    fn settings(&self) -> &AttemptSettings {
        &self.settings
    }
    fn now(&self) -> Now {
        self.now
    }
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(self.index.snapshot())
    }
    fn leads(&self) -> bool {
        self.calls().len() < self.leads_for.load(Ordering::Relaxed)
    }
    fn report(&self, _: &Violation, report: Report) {
        let level = if report.warning { "warning " } else { "" };
        self.record(format!("{level}{}: {}", report.code, report.text));
    }
    fn report_no_underlay(&self, _: &Offer, _: &Violation, _: &str) {
        self.record("NoUnderlay");
    }
    fn report_evicted_pod(&self, _: &Offer, pod: &model::Pod, because: String, _: String) {
        self.record(format!("report on {}: {because}", pod.name));
    }
    async fn reevaluate(&self, _: &BindingSpec) -> Compliance {
        self.record("reevaluate");
        self.compliance
    }
    async fn offer_status(&self, _: &Offer) -> Result<ConstraintPolicyOfferStatus, WriteError> {
        self.status.clone()
    }
    async fn note_mitigation(&self, _: &BindingSpec, _: &Time) -> Result<(), WriteError> {
        self.record("note mitigation");
        self.note.clone()
    }
    async fn mitigate(
        &self,
        underlay: &Service,
        request: &MitigationRequest,
    ) -> Result<String, String> {
        self.record(format!("mitigate at {} {:?}", underlay.name, request.ids));
        self.mitigation.clone()
    }
    async fn hold_allocation(
        &self,
        pod: &model::Pod,
        underlay: &Service,
        id: &str,
    ) -> Result<(), String> {
        let underlay = key(&underlay.namespace, &underlay.name);
        self.record(format!("{} holds {id} of {underlay}", pod.name));
        self.hold.clone()
    }
    async fn release_allocation(&self, _: &Service, id: &str) -> Result<(), String> {
        self.record(format!("release {id}"));
        self.release.clone()
    }
    async fn get_pod(&self, _: &str, name: &str) -> Result<Pod, String> {
        let pod = self.pods.get(name).cloned();
        pod.ok_or_else(|| "not found".to_owned())
    }
    async fn plan(&self, _: &Snapshot, pod: &model::Pod) -> NodePlan {
        assert_eq!(pod.node, None, "planned as it would come again");
        let verdict = |(_, cost): &(&str, Option<u64>)| match cost {
            Some(cost) => NodeVerdict::Usable {
                normalized_cost: *cost,
                tie_break: 0,
                score: 1,
            },
            None => NodeVerdict::Unusable {
                reason: "latency/OverLimit".into(),
                freeable: false,
            },
        };
        NodePlan {
            nodes: Arc::new(self.nodes.iter().map(|(name, _)| *name).collect()),
            plan: Plan {
                verdicts: self.nodes.iter().map(verdict).collect(),
            },
            unanswered: None,
        }
    }
    async fn check_workload(&self, _: &Pod) -> Result<(), Refusal> {
        self.record("check workload");
        self.workload.clone()
    }
    async fn eviction_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turn.acquire().await.ok()
    }
    async fn note_eviction(&self, _: &Offer, eviction: &LastEviction) -> Result<(), WriteError> {
        self.record(format!("note eviction of {}", eviction.uid));
        self.note.clone()
    }
    async fn evict(&self, candidate: &Candidate, dry_run: bool) -> EvictAnswer {
        let dry_run = if dry_run { "dry-run " } else { "" };
        self.record(format!("{dry_run}evict {}", candidate.pod.name));
        let mut answers = self.evictions.lock().unwrap();
        match answers.is_empty() {
            true => EvictAnswer::Done,
            false => answers.remove(0),
        }
    }
}

#[tokio::test]
async fn eviction_goes_through_every_check_in_order() {
    let fake = Fake::new(ViolationPolicy::Evict);
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert_eq!(
        fake.calls(),
        [
            "reevaluate",
            "check workload",
            "dry-run evict web-0",
            "note eviction of uid-of-web-0",
            "evict web-0",
            "Evicted: evicted pod shop/web-0 on n1: latency/OverLimit; n2 would keep to every rule",
            "report on web-0: binding b of offer o was violated (31ms); n2 would keep to every rule",
        ]
    );
    assert_eq!(fake.wait(&result), COOL_DOWN);
    assert_eq!(result.cool_down.until, Some(fake.now.unix + COOL_DOWN));
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
    let last = LastEviction {
        pod: "web-9".to_owned(),
        uid: "x".to_owned(),
        node: "n1".to_owned(),
        binding: "b".to_owned(),
        time: to_api_time(fake.now.unix - Duration::from_secs(50)),
    };
    fake.status = Ok(ConstraintPolicyOfferStatus {
        last_eviction: Some(last),
        ..ConstraintPolicyOfferStatus::default()
    });
    assert_eq!(fake.attempt_once().await, Duration::from_secs(70));
    assert!(fake.calls().is_empty());
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
    assert_eq!(result.cool_down.until, None);
    assert!(!fake.calls().iter().any(|c| c.starts_with("note")));
}

#[tokio::test]
async fn eviction_that_cannot_be_noted_is_not_made() {
    let mut fake = Fake::new(ViolationPolicy::Evict);
    fake.note = Err(WriteError::Refused("busy".to_owned()));
    fake.attempt_once().await;
    assert!(
        fake.outcome()
            .starts_with("warning Failed: the eviction could not be noted")
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
    assert_eq!(result.cool_down.until, Some(fake.now.unix + COOL_DOWN));
}

#[tokio::test]
async fn eviction_check_whose_answer_is_lost_is_a_failure() {
    let fake = Fake::new(ViolationPolicy::Evict);
    let lost = EvictAnswer::Lost("timeout".to_owned());
    fake.evictions.lock().unwrap().push(lost);
    let result = fake.attempt(vec![violation("b", &["web-0"])]).await;
    assert!(fake.outcome().starts_with("warning Failed: "));
    assert_eq!(result.cool_down.until, None);
}

#[tokio::test]
async fn eviction_changes_nothing_once_the_lead_is_lost() {
    // After each call in turn: no note and no eviction follows.
    for calls in 0..5 {
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
    fake.settings.dry_run = true;
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
    fake.settings.exempt_namespaces = ["shop".to_owned()].into();
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
    let text = "warning NoBetterNode: target t0: no other of 2 nodes that would take the pod keeps";
    assert!(outcome.starts_with(text), "{outcome}");
}

#[tokio::test]
async fn eviction_waits_for_the_turn_of_another() {
    let fake = Fake::new(ViolationPolicy::Evict);
    let permit = fake.turn.acquire().await.unwrap();
    let violations = vec![violation("b", &["web-0"])];
    let mut attempt = std::pin::pin!(fake.attempt(violations));
    assert!(futures::poll!(&mut attempt).is_pending());
    assert_eq!(fake.calls(), ["reevaluate"]);
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
async fn mitigation_that_cannot_be_noted_is_not_requested() {
    let mut fake = Fake::new(ViolationPolicy::Mediate);
    fake.underlay();
    fake.note = Err(WriteError::Gone);
    assert_eq!(fake.attempt_once().await, Duration::from_secs(10));
    assert!(
        fake.outcome()
            .starts_with("warning Failed: the mitigation could not be noted")
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
    fake.settings.dry_run = true;
    fake.attempt(vec![violation("b", &["web-0"])]).await;
    let text = "WouldMediate: would ask tautline-system/path to mitigate";
    assert_eq!(fake.calls(), ["reevaluate", text]);
}
