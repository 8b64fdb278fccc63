//! Attempts whose calls are answered without a server.

mod evictions;
mod groups;
mod mitigations;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::json;
use tautline_api::constraint::{ConstraintPolicyOfferStatus, LastEviction};
use tautline_core::{
    Compliance, Index, Reference, Snapshot,
    index::Object,
    model::{self, Offer, Service, ViolationPolicy, key},
    planning::{NodeVerdict, Plan},
    volumes::PodVolumes,
};
use tautline_provider_client::CallError;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    attempt::attempt,
    calls::{Calls, Level},
};
use crate::{
    binding_spec::BindingSpec,
    binding_status::to_api_time,
    clock::Now,
    config::Config,
    eviction::{EvictAnswer, Group, NodePlan, Refusal},
    mitigation::Mitigation,
    reconciler::WriteError,
    violations::{Attempt, AttemptOutcome, AttemptResult, CoolDown, Violation},
};

const COOL_DOWN: Duration = Duration::from_secs(120);

/// Answers, and a record of the calls.
struct Fake {
    config: Config,
    index: Index,
    now: Now,
    compliance: Compliance,
    status: Result<ConstraintPolicyOfferStatus, WriteError>,
    pods: BTreeMap<String, Pod>,
    /// Costs by node; `None`: the node is unusable.
    nodes: Vec<(&'static str, Option<u64>)>,
    workload: Result<(), Refusal>,
    budgets: Vec<PodDisruptionBudget>,
    /// The pods of the offer in violation.
    violating: usize,
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
            config: Config::new("tautline-system", "test".to_owned()),
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
            budgets: Vec::new(),
            violating: 1,
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
        fake.pod("web-1", &[]);
        fake
    }

    fn offer(&mut self, policy: ViolationPolicy) {
        self.offer_with(policy, |_| {});
    }

    fn offer_with(&mut self, policy: ViolationPolicy, change: impl FnOnce(&mut Offer)) {
        let mut offer = Offer {
            namespace: "shop".into(),
            name: "o".into(),
            uid: "uid-of-o".into(),
            grace: Duration::from_secs(60),
            violation_policy: policy,
            evict: ["t0", "t1"].map(Into::into).into(),
            ..Offer::default()
        };
        change(&mut offer);
        self.index.apply(Object::Offer(offer));
    }

    fn pod(&mut self, name: &str, underlay: &[&str]) {
        self.index.apply(Object::Pod(model::Pod {
            namespace: "shop".into(),
            name: name.into(),
            uid: format!("uid-of-{name}").into(),
            node: Some("n1".into()),
            owner: 1,
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
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods.insert(name.to_owned(), pod);
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        change(self.pods.get_mut(name).unwrap());
    }

    /// The offer's last eviction was so long ago, by another leader.
    fn evicted_before(&mut self, age: Duration) {
        let last = LastEviction {
            pod: "web-9".to_owned(),
            uid: "x".to_owned(),
            node: "n1".to_owned(),
            binding: "b".to_owned(),
            time: to_api_time(self.now.unix - age),
            group: None,
            since: None,
            next_time: None,
        };
        self.status = Ok(ConstraintPolicyOfferStatus {
            last_eviction: Some(last),
            ..ConstraintPolicyOfferStatus::default()
        });
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
            pods: [("t0".into(), self.violating)].into(),
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

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap()
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
    fn config(&self) -> &Config {
        &self.config
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
    fn report(
        &self,
        _: &Violation,
        _: &'static str,
        code: &'static str,
        level: Level,
        text: String,
    ) {
        let level = match level {
            Level::Warning => "warning ",
            Level::Normal | Level::Quiet => "",
        };
        self.record(format!("{level}{code}: {text}"));
    }
    fn report_no_underlay(&self, _: &Offer, _: &Violation) {
        self.record("NoUnderlay");
    }
    fn report_evicted_pods(&self, _: &Offer, pods: &[&Pod], because: &str, _: String) {
        let names: Vec<&str> = pods.iter().map(|pod| name_of(pod)).collect();
        self.record(format!("report on {}: {because}", names.join(" ")));
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
        mitigation: &Mitigation,
    ) -> Result<String, CallError> {
        let ids = &mitigation.request.ids;
        self.record(format!("mitigate at {} {ids:?}", underlay.name));
        self.mitigation.clone().map_err(CallError::Failed)
    }
    async fn hold_allocation(
        &self,
        pod: &model::Pod,
        underlay: &Service,
        id: &str,
    ) -> Result<(), WriteError> {
        let underlay = key(&underlay.namespace, &underlay.name);
        self.record(format!("{} holds {id} of {underlay}", pod.name));
        self.hold.clone().map_err(WriteError::Refused)
    }
    async fn release_allocation(&self, _: &Service, id: &str) -> Result<(), CallError> {
        self.record(format!("release {id}"));
        self.release.clone().map_err(CallError::Failed)
    }
    async fn get_pod(&self, namespace: &str, name: &str) -> Result<Pod, Refusal> {
        let pod = self.pods.get(name).cloned();
        pod.ok_or_else(|| Refusal::new("Failed", format!("pod {namespace}/{name}: not found")))
    }
    async fn plan(
        &self,
        _: &Snapshot,
        _: &Offer,
        pod: &model::Pod,
        volumes: PodVolumes,
    ) -> NodePlan {
        assert_eq!(pod.node, None, "planned as it would come again");
        let claims = volumes.claims.iter().map(|name| format!(" with {name}"));
        self.record(format!("plan {}{}", pod.name, claims.collect::<String>()));
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
            unplanned: None,
            allocates: false,
        }
    }
    async fn group_pods(&self, _: &str, group: &Group) -> Result<Vec<Pod>, Refusal> {
        self.record(format!("list {}", group.name));
        Ok(self
            .pods
            .values()
            .filter(|p| group.has(p))
            .cloned()
            .collect())
    }
    async fn budgets(&self, _: &str) -> Result<Vec<PodDisruptionBudget>, Refusal> {
        self.record("list budgets");
        Ok(self.budgets.clone())
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
    async fn evict(&self, pod: &Pod, dry_run: bool) -> EvictAnswer {
        let dry_run = if dry_run { "dry-run " } else { "" };
        self.record(format!("{dry_run}evict {}", name_of(pod)));
        let mut answers = self.evictions.lock().unwrap();
        match answers.is_empty() {
            true => EvictAnswer::Done,
            false => answers.remove(0),
        }
    }
}
