//! A cluster in memory: its index, its bindings as the API server has them, and the
//! actions of the reconciler that are under way.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_api::constraint::ConstraintPolicyOfferStatus;
use tautline_core::{
    Compliance, Index,
    binding_quota::BindingLimits,
    index::{Kind, Object},
    model::{
        EndpointSlice, Offer, Pod, Policy, Rule, Service, Target, TargetKind, ViolationPolicy,
    },
    selector::Selector,
};

use crate::{
    binding_spec::{BindingSpec, BindingStatus, Key, key},
    clock::Now,
    config::Config,
    evaluation::{Evaluation, policy_detail, rule_detail},
    reconciler::{
        Action, BindingEvent, BindingReconciler, ClusterChange, Counts, Evaluate, Event,
        KindStates, Leadership, Write, WriteError, Written,
    },
    violations::ViolationEvent,
};

pub(super) const NS: &str = "shop";

pub(super) struct World {
    pub reconciler: BindingReconciler,
    pub index: Index,
    pub now: Now,
    /// Bindings at the API server.
    pub api: BTreeMap<Key, (BindingSpec, BindingStatus)>,
    pub offer_statuses: BTreeMap<Key, ConstraintPolicyOfferStatus>,
    /// Actions under way.
    pub writes: Vec<Write>,
    pub evaluations: Vec<Evaluate>,
    /// Other actions, in order.
    pub violations: Vec<ViolationEvent>,
    pub notes: Vec<String>,
    pub warnings: Vec<String>,
    pub counts: Counts,
    uids: usize,
}

pub(super) fn settings() -> Config {
    Config {
        limits: limits(100, 1_000, 10_000),
        ..Config::new("tautline-system", "test".to_owned())
    }
}

pub(super) fn limits(offer: usize, namespace: usize, total: usize) -> BindingLimits {
    BindingLimits {
        offer,
        namespace,
        total,
    }
}

pub(super) fn target(name: &str, app: &str) -> Target {
    Target {
        name: name.into(),
        kind: TargetKind::Pod,
        api_version: String::new(),
        selector: Selector {
            match_labels: vec![("app".into(), app.to_owned())],
            ..Selector::default()
        },
    }
}

/// An offer whose only target selects the pods with `app=web`.
pub(super) fn offer(name: &str) -> Offer {
    Offer {
        namespace: NS.into(),
        name: name.into(),
        uid: format!("uid-of-{name}").into(),
        targets: vec![target("default", "web")],
        policies: vec!["fast".into()],
        period: Duration::from_secs(10),
        violation_policy: ViolationPolicy::Evict,
        ..Offer::default()
    }
}

pub(super) fn pod(name: &str, app: &str) -> Pod {
    Pod {
        namespace: NS.into(),
        name: name.into(),
        uid: format!("uid-of-{name}").into(),
        labels: [("app", app)].into_iter().collect(),
        node: Some("n1".into()),
        ..Pod::default()
    }
}

pub(super) fn service(namespace: &str, name: &str) -> Service {
    Service {
        namespace: namespace.into(),
        name: name.into(),
        rules: vec!["latency".into()],
        ..Service::default()
    }
}

pub(super) fn slice(service: &Service, addresses: &[&str]) -> EndpointSlice {
    EndpointSlice {
        namespace: Arc::clone(&service.namespace),
        name: Arc::clone(&service.name),
        service: Arc::clone(&service.name),
        ready: addresses.iter().map(|a| (*a).to_owned()).collect(),
        ..EndpointSlice::default()
    }
}

pub(super) fn rule(limit: &str) -> Rule {
    Rule {
        name: "latency".into(),
        request: "5ms".into(),
        limit: limit.into(),
        weight: 1,
        ..Rule::default()
    }
}

pub(super) fn policy(name: &str, rules: Vec<Rule>) -> Policy {
    Policy {
        namespace: NS.into(),
        name: name.into(),
        rules,
    }
}

pub(super) fn evaluation(compliance: Compliance, reason: &str) -> Evaluation {
    let rule = rule_detail("latency", "tautline-system/net", compliance, reason);
    Evaluation::new(vec![policy_detail("fast", vec![rule])])
}

impl World {
    /// A standby that has listed everything: a policy with one rule, and its provider.
    pub fn standby_with(settings: Config) -> Self {
        let mut world = Self {
            reconciler: BindingReconciler::new(settings),
            index: Index::default(),
            now: Now {
                instant: Instant::now(),
                unix: Duration::from_secs(1_000_000),
            },
            api: BTreeMap::new(),
            offer_statuses: BTreeMap::new(),
            writes: Vec::new(),
            evaluations: Vec::new(),
            violations: Vec::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
            counts: Counts::default(),
            uids: 0,
        };
        let net = service("tautline-system", "net");
        world.put(Object::EndpointSlice(slice(&net, &["10.0.0.1"])));
        world.put(Object::Service(net));
        world.put(Object::Policy(policy("fast", vec![rule("20ms")])));
        world.sync();
        world
    }

    pub fn standby() -> Self {
        Self::standby_with(settings())
    }

    pub fn leading_with(settings: Config) -> Self {
        let mut world = Self::standby_with(settings);
        world.lead(Leadership::Leading);
        world
    }

    pub fn leading() -> Self {
        Self::leading_with(settings())
    }

    /// A leader with an offer `o` and one binding per pod, all of them evaluated.
    pub fn with_bindings(pods: usize) -> Self {
        let mut world = Self::leading();
        world.add_pods(pods);
        world.put(Object::Offer(offer("o")));
        world.sync();
        world.settle();
        world.evaluate_all(Compliance::Compliant);
        world.settle();
        world
    }

    pub fn add_pods(&mut self, pods: usize) {
        for i in 0..pods {
            self.put(Object::Pod(pod(&format!("web-{i}"), "web")));
        }
    }

    pub fn put(&mut self, object: Object) {
        self.index.apply(object);
    }

    pub fn delete(&mut self, kind: Kind, name: &str) {
        let key = tautline_core::model::key(NS, name);
        assert!(self.index.delete(kind, &key), "{key} exists");
    }

    pub fn apply(&mut self, event: Event) {
        for action in self.reconciler.apply(event, self.now) {
            match action {
                Action::Evaluate(action) => self.evaluations.push(action),
                Action::Write(write) => self.writes.push(write),
                Action::Violation(event) => self.violations.push(event),
                Action::ReportCounts(counts) => self.counts = counts,
                Action::Note(note) => self.notes.push(format!("{}: {}", note.reason, note.text)),
                Action::OfferWarning(_, note) => {
                    self.warnings
                        .push(format!("{}: {}", note.reason, note.text));
                }
            }
        }
    }

    /// Shows the reconciler the cluster as it is.
    pub fn sync(&mut self) {
        self.sync_with(true, None);
    }

    pub fn sync_with(&mut self, providers_changed: bool, rejected: Option<&[(&str, &str)]>) {
        let rejected = rejected.map(|all| {
            let all = all.iter();
            all.map(|(name, why)| (key(NS, name), (*why).to_owned()))
                .collect()
        });
        self.apply(Event::Cluster(ClusterChange {
            snapshot: Arc::new(self.index.snapshot()),
            providers_changed,
            clusters_changed: true,
            rejected_offers: rejected,
        }));
    }

    /// Another replica takes over: it has listed everything, and does not lead yet.
    pub fn restart(&mut self) {
        self.reconciler = BindingReconciler::new(self.reconciler.config.clone());
        (self.writes, self.evaluations) = (Vec::new(), Vec::new());
        (self.violations, self.notes, self.warnings) = (Vec::new(), Vec::new(), Vec::new());
        self.relist();
        self.sync();
    }

    pub fn lead(&mut self, leadership: Leadership) {
        self.apply(Event::Leadership(leadership));
    }

    pub fn kinds(&mut self, kinds: KindStates) {
        self.apply(Event::Kinds(kinds));
    }

    pub fn advance(&mut self, time: Duration) {
        self.now.instant += time;
        self.now.unix += time;
        self.apply(Event::Tick);
    }

    pub fn advance_secs(&mut self, secs: u64) {
        self.advance(Duration::from_secs(secs));
    }

    /// A binding appears at the API server, and the watch reports it.
    pub fn observe(&mut self, spec: BindingSpec, status: BindingStatus) {
        self.api.insert(spec.key(), (spec.clone(), status.clone()));
        let binding = Box::new((spec, status));
        self.apply(Event::Bindings(vec![BindingEvent::Applied(binding)]));
    }

    /// Takes the only status write of a binding that is under way.
    pub fn take_status(&mut self) -> Write {
        let is_status = |w: &Write| matches!(w, Write::Status(..));
        let at = self.writes.iter().position(is_status).expect("one");
        self.writes.remove(at)
    }

    /// The garbage collector deletes bindings without an offer.
    pub fn collect_garbage(&mut self) {
        let snapshot = self.index.snapshot();
        let orphan = |s: &BindingSpec| {
            let entry = snapshot.offer(&s.namespace, &s.offer);
            entry.is_none_or(|e| *e.offer.uid != *s.owner)
        };
        let bindings = self.api.iter();
        let orphans: Vec<Key> = bindings
            .filter(|(_, (s, _))| orphan(s))
            .map(|(key, _)| Arc::clone(key))
            .collect();
        for key in orphans {
            self.vanish(&key);
        }
    }

    /// A text that was not returned before.
    pub fn unique(&mut self) -> String {
        self.uids += 1;
        self.uids.to_string()
    }

    /// Someone else deletes a binding, and the watch reports it.
    pub fn vanish(&mut self, key: &Key) {
        let (spec, _) = self.api.remove(key).expect("it exists");
        let event = BindingEvent::Deleted(Arc::clone(key), spec.uid);
        self.apply(Event::Bindings(vec![event]));
    }

    /// The watch lists all bindings of the API server.
    pub fn relist(&mut self) {
        let all = self.api.values().cloned().collect();
        self.apply(Event::Bindings(vec![BindingEvent::All(all)]));
    }

    /// The API server takes a write.
    pub fn accept(&mut self, write: Write) {
        let written = match &write {
            Write::Create(new) => {
                self.uids += 1;
                let spec = BindingSpec {
                    namespace: Arc::clone(&new.offer.namespace),
                    name: new.name.as_str().into(),
                    uid: format!("binding-{}", self.uids).into(),
                    offer: Arc::clone(&new.offer.name),
                    owner: new.offer.uid.clone(),
                    labelled: true,
                    terminating: false,
                    targets: new.targets.clone(),
                };
                let binding = (spec, BindingStatus::default());
                let taken = self.api.insert(new.key(), binding.clone());
                assert!(taken.is_none(), "{} is created once", new.key());
                Written::Binding(Box::new(binding), false)
            }
            Write::Delete(spec) => {
                self.api.remove(&spec.key()).expect("a binding that exists");
                Written::Done
            }
            Write::Status(spec, status) => {
                let binding = self.api.get_mut(&spec.key()).expect("it exists");
                binding.1 = (**status).clone();
                Written::Done
            }
            Write::OfferStatus(write) => {
                let key = Arc::clone(&write.key);
                self.offer_statuses.insert(key, write.status.clone());
                Written::OfferStatus(Box::new(write.status.clone()))
            }
        };
        self.apply(Event::Written(write, Ok(written)));
    }

    /// The API server takes all writes, and those that follow.
    pub fn settle(&mut self) {
        for _ in 0..1000 {
            if self.writes.is_empty() {
                return;
            }
            for write in std::mem::take(&mut self.writes) {
                self.accept(write);
            }
        }
        panic!("the writes have no end: {:?}", self.writes);
    }

    /// Every write under way fails.
    pub fn fail_writes(&mut self, error: &WriteError) {
        for write in std::mem::take(&mut self.writes) {
            self.apply(Event::Written(write, Err(error.clone())));
        }
    }

    pub fn finish(&mut self, evaluate: &Evaluate, evaluation: Option<Evaluation>) {
        self.apply(Event::Evaluated(evaluate.clone(), evaluation));
    }

    /// Every evaluation under way ends so; returns their number.
    pub fn evaluate_all_as(&mut self, compliance: Compliance, reason: &str) -> usize {
        let all = std::mem::take(&mut self.evaluations);
        for evaluate in &all {
            self.finish(evaluate, Some(evaluation(compliance, reason)));
        }
        all.len()
    }

    pub fn evaluate_all(&mut self, compliance: Compliance) -> usize {
        self.evaluate_all_as(compliance, "reason")
    }

    /// Lets a period pass, and every binding is evaluated so.
    pub fn next_period(&mut self, compliance: Compliance) {
        self.advance_secs(11);
        assert!(self.evaluate_all(compliance) > 0, "a period passed");
    }

    pub fn created(&self) -> Vec<String> {
        self.of_writes(|w| match w {
            Write::Create(new) => Some(new.name.clone()),
            _ => None,
        })
    }

    pub fn deleted(&self) -> Vec<String> {
        self.of_writes(|w| match w {
            Write::Delete(spec) => Some(spec.name.to_string()),
            _ => None,
        })
    }

    /// Bindings whose status is being written, with its compliance.
    pub fn statuses(&self) -> Vec<String> {
        self.of_writes(|w| match w {
            Write::Status(_, status) => Some(format!("{:?}", status.compliance)),
            _ => None,
        })
    }

    /// Offers whose status is being written, with reason and message.
    pub fn offer_writes(&self) -> Vec<String> {
        self.of_writes(|w| match w {
            Write::OfferStatus(w) => {
                let c = &w.status.conditions[0];
                Some(format!("{} {}: {}", w.key, c.reason, c.message))
            }
            _ => None,
        })
    }

    fn of_writes(&self, which: impl Fn(&Write) -> Option<String>) -> Vec<String> {
        let mut all: Vec<String> = self.writes.iter().filter_map(which).collect();
        all.sort();
        all
    }

    /// The names of the bindings at the API server.
    pub fn bindings(&self) -> Vec<String> {
        self.api.values().map(|(s, _)| s.name.to_string()).collect()
    }

    pub fn only_key(&self) -> Key {
        assert_eq!(self.api.len(), 1);
        self.api.keys().next().cloned().unwrap()
    }

    /// Reason and message of the offer `o`, as the API server has it.
    pub fn ready(&self) -> String {
        let condition = &self.offer_statuses[&key(NS, "o")].conditions[0];
        format!(
            "{}: {}: {}",
            condition.status, condition.reason, condition.message
        )
    }
}
