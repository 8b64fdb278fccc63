//! The reconciler's task: turns watches, results and timers into events of the reconciler, and
//! carries out its actions.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::FutureExt;
use tautline_core::{index::Kind, model::TargetKind};
use tautline_runtime::{cluster_store::Versions, events::EventNote, lease::Term};
use tautline_traces::{Caller, KeyValue};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    cluster_calls::{reference_to_binding, reference_to_offer},
    context::Context,
    evaluate::evaluate,
    writes::write,
};
use crate::{
    binding_spec::Key,
    clock::Now,
    kind_states::{KindState, KindStates},
    reconciler::{
        Action, BindingEvent, BindingReconciler, ClusterChange, Evaluate, EvaluationResult, Event,
        Leadership, Settings, WriteResult,
    },
    violations::ViolationEvent,
};

/// The name of the initial list of bindings in the readiness.
pub(crate) const BINDINGS: &str = "constraintpolicybindings";
/// The time after a change of the cluster in which further changes are collected and applied with
/// it.
const SETTLE_DELAY: Duration = Duration::from_millis(50);
/// The maximum number of binding events that are applied together.
const MAX_BATCH_EVENTS: usize = 256;
/// The maximum time to wait for writes at the end of a term.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The shortest time between two Kubernetes events of one reason on one offer.
const WARNING_PERIOD: Duration = Duration::from_secs(300);

pub(crate) struct Inputs {
    pub bindings: mpsc::Receiver<BindingEvent>,
    pub leader: watch::Receiver<Option<Term>>,
}

struct Executor {
    context: Arc<Context>,
    reconciler: BindingReconciler,
    term: Option<Term>,
    leadership: Leadership,
    versions: Versions,
    kinds: KindStates,
    evaluations: JoinSet<EvaluationResult>,
    writes: JoinSet<WriteResult>,
}

pub(crate) async fn run(context: Arc<Context>, mut inputs: Inputs, stop: CancellationToken) {
    let mut changes = context.store.changes();
    let mut kinds = context.kinds.changes();
    let mut executor = Executor::new(context);
    let mut settle_at = Some(Instant::now());
    let mut batch = Vec::new();
    loop {
        let next = executor.next_time(settle_at);
        tokio::select! {
            () = stop.cancelled() => break,
            changed = inputs.leader.changed() => {
                if changed.is_err() { break }
                let term = inputs.leader.borrow_and_update().clone();
                settle_at = None;
                let versions = *changes.borrow_and_update();
                executor.change_term(term, versions).await;
            }
            n = inputs.bindings.recv_many(&mut batch, MAX_BATCH_EVENTS) => {
                if n == 0 { break }
                executor.apply_bindings(std::mem::take(&mut batch));
            }
            changed = changes.changed(), if settle_at.is_none() => {
                if changed.is_err() { break }
                settle_at = Some(Instant::now() + SETTLE_DELAY);
            }
            _ = kinds.changed() => executor.apply_kinds(),
            Some(result) = executor.evaluations.join_next() => {
                // A join error cannot occur: panics are caught, and no task is aborted in a term.
                if let Ok(result) = result {
                    executor.apply(Event::Evaluated(result));
                }
            }
            Some(result) = executor.writes.join_next() => {
                if let Ok(result) = result {
                    executor.apply(Event::Written(result));
                }
            }
            () = tokio::time::sleep_until(next.into()) => {}
        }
        if settle_at.is_some_and(|at| at <= Instant::now()) {
            settle_at = None;
            executor.apply_cluster(*changes.borrow_and_update());
        }
        executor.apply(Event::Tick);
    }
    executor.end_term().await;
    // The process itself reports an error of the leader election.
    stop.cancelled().await;
}

impl Executor {
    fn new(context: Arc<Context>) -> Self {
        let settings = Settings {
            limits: context.config.limits,
            provider_concurrency: context.config.provider_concurrency,
            shortest_period: context.config.shortest_period,
            trusted: context.trusted().clone(),
        };
        Self {
            context,
            reconciler: BindingReconciler::new(settings),
            term: None,
            leadership: Leadership::Standby,
            versions: Versions::default(),
            kinds: KindStates::default(),
            evaluations: JoinSet::new(),
            writes: JoinSet::new(),
        }
    }

    /// Applies the current state of the Lease and then an event, and carries out the actions.
    fn apply(&mut self, event: Event) {
        let leadership = match &self.term {
            None => Leadership::Standby,
            Some(term) if term.is_active() => Leadership::Leading,
            Some(_) => Leadership::Suspended,
        };
        if self.leadership != leadership {
            self.leadership = leadership;
            self.carry_out(Event::Leadership(leadership));
        }
        self.carry_out(event);
    }

    fn carry_out(&mut self, event: Event) {
        for action in self.reconciler.apply(event, Now::read()) {
            let context = Arc::clone(&self.context);
            match action {
                Action::Evaluate(action) => {
                    context.metrics.lag(action.due.elapsed());
                    self.evaluations.spawn(run_evaluation(context, action));
                }
                Action::Write(action) => {
                    self.writes
                        .spawn(async move { write(&context, action).await });
                }
                Action::Violation(event) => send_violation(&context, event),
                Action::ReportCounts(counts) => context.metrics.counted(&counts),
                Action::BindingNote {
                    spec,
                    warning,
                    reason,
                    text,
                } => context.events.publish(EventNote {
                    regarding: reference_to_binding(&spec),
                    secondary: None,
                    warning,
                    reason: reason.to_owned(),
                    action: "Evaluate",
                    text,
                }),
                Action::OfferWarning {
                    offer,
                    reason,
                    text,
                } => {
                    let id = format!("{}/{}/{reason}", offer.namespace, offer.name);
                    context.events.publish_once(id, WARNING_PERIOD, || {
                        Some(EventNote {
                            regarding: reference_to_offer(&offer),
                            secondary: None,
                            warning: true,
                            reason: reason.to_owned(),
                            action: "Bind",
                            text,
                        })
                    });
                }
            }
        }
        let waiting = i64::try_from(self.reconciler.waiting()).unwrap_or(i64::MAX);
        self.context.metrics.waiting.set(waiting);
    }

    fn apply_bindings(&mut self, events: Vec<BindingEvent>) {
        let listed = events.iter().any(|e| matches!(e, BindingEvent::All(_)));
        self.apply(Event::Bindings(events));
        if listed {
            self.context.readiness.done(BINDINGS);
        }
    }

    fn apply_cluster(&mut self, versions: Versions) {
        let store = &self.context.store;
        let changed = |kinds: &[Kind]| versions.changed(&self.versions, kinds);
        let offers_changed = changed(&[Kind::Offer]);
        let rejected = || -> BTreeMap<Key, String> {
            let rejected = store.rejected(Kind::Offer).into_iter();
            rejected.map(|(key, why)| (key.into(), why)).collect()
        };
        let change = ClusterChange {
            snapshot: store.snapshot(),
            providers_changed: changed(&[Kind::Policy, Kind::Service, Kind::EndpointSlice]),
            rejected_offers: offers_changed.then(rejected),
        };
        self.versions = versions;
        self.apply(Event::Cluster(change));
        if offers_changed {
            self.apply_kinds();
        }
    }

    fn apply_kinds(&mut self) {
        let (snapshot, watched) = (self.context.store.snapshot(), &self.context.kinds);
        let mut kinds = KindStates::default();
        let targets = snapshot.offers().flat_map(|e| &e.offer.targets);
        for target in targets.filter(|t| t.kind != TargetKind::Pod) {
            let (api_version, kind) = target.selected_kind();
            let state = KindState {
                listed: watched.listed(api_version, kind),
                missing: watched.missing(api_version, kind),
            };
            kinds.insert(target, state);
        }
        if self.kinds != kinds {
            self.kinds = kinds.clone();
            self.apply(Event::Kinds(kinds));
        }
    }

    fn next_time(&self, settle_at: Option<Instant>) -> Instant {
        // A suspended term may become active again without a notification.
        let lapsed = self.leadership == Leadership::Suspended;
        let idle = Duration::from_secs(if lapsed { 1 } else { 60 });
        let times = [settle_at, self.reconciler.next_time()];
        let idle = Instant::now() + idle;
        times.into_iter().flatten().fold(idle, Instant::min)
    }

    async fn change_term(&mut self, term: Option<Term>, versions: Versions) {
        if term.is_none() {
            return self.end_term().await;
        }
        // The first decisions of a term must be based on the newest state of the cluster.
        self.apply_cluster(versions);
        self.term = term;
        self.context.metrics.leading.set(1);
        self.apply(Event::Tick);
    }

    async fn end_term(&mut self) {
        if self.term.is_none() {
            return;
        }
        let drain = async { while self.writes.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, drain).await.is_err() {
            tracing::warn!("writes did not end in {DRAIN_TIMEOUT:?}");
        }
        (self.writes, self.evaluations) = (JoinSet::new(), JoinSet::new());
        self.context.metrics.leading.set(0);
        self.term = None;
        self.apply(Event::Tick);
    }
}

async fn run_evaluation(context: Arc<Context>, action: Evaluate) -> EvaluationResult {
    let (spec, question) = (&action.spec, &action.question);
    let evaluation = evaluate(context.evaluator(), &action.snapshot, spec, question);
    let span = context.config.traces.span("evaluate", &Caller::default());
    let evaluation = AssertUnwindSafe(span.scope(evaluation))
        .catch_unwind()
        .await;
    match &evaluation {
        Ok(evaluation) => span.record(|| {
            [
                KeyValue::new("k8s.namespace.name", spec.namespace.to_string()),
                KeyValue::new("tautline.binding", spec.name.to_string()),
                KeyValue::new("tautline.offer", spec.offer.to_string()),
                KeyValue::new("tautline.compliance", evaluation.compliance.as_str()),
                KeyValue::new("tautline.reason", evaluation.first_reason.clone()),
            ]
        }),
        Err(_) => tracing::error!(binding = %spec.key(), "an evaluation panicked"),
    }
    EvaluationResult {
        key: spec.key(),
        uid: spec.uid.clone(),
        providers: action.providers,
        grace: action.grace,
        evaluation: evaluation.ok(),
    }
}

fn send_violation(context: &Context, event: ViolationEvent) {
    context.violations.inbox.lock().push(event);
    context.violations.filled.notify_one();
}
