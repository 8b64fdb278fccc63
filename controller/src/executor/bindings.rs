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
use tautline_runtime::{cluster_store::Versions, lease::Term};
use tautline_traces::{Caller, KeyValue};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Context, MAX_BATCH_EVENTS, WARNING_PERIOD, api::write, evaluate::evaluate};
use crate::{
    binding_spec::Key,
    clock::Now,
    evaluation::Evaluation,
    reconciler::{
        Action, BindingEvent, BindingReconciler, ClusterChange, Evaluate, Event, KindState,
        KindStates, Leadership, Write, WriteError, Written,
    },
};

/// The name of the initial list of bindings in the readiness.
pub(crate) const BINDINGS: &str = "constraintpolicybindings";
/// The time after a change of the cluster in which further changes are collected and applied with
/// it.
const SETTLE_DELAY: Duration = Duration::from_millis(50);
/// The maximum time to wait for writes at the end of a term.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

struct Executor {
    context: Arc<Context>,
    reconciler: BindingReconciler,
    term: Option<Term>,
    leadership: Leadership,
    versions: Versions,
    evaluations: JoinSet<(Evaluate, Option<Evaluation>)>,
    writes: JoinSet<(Write, Result<Written, WriteError>)>,
}

pub(crate) async fn run(
    context: Arc<Context>,
    mut bindings: mpsc::Receiver<BindingEvent>,
    stop: CancellationToken,
) {
    let mut changes = context.store.changes();
    let mut kinds = context.kinds.changes();
    let mut leader = context.leader.subscribe();
    let mut executor = Executor::new(context);
    let mut settle_at = Some(Instant::now());
    let mut batch = Vec::new();
    loop {
        let next = executor.next_time(settle_at);
        tokio::select! {
            () = stop.cancelled() => break,
            _ = leader.changed() => {
                let Some(term) = leader.borrow_and_update().clone() else {
                    // The term is over, and with it the process.
                    stop.cancelled().await;
                    break;
                };
                settle_at = None;
                executor.begin_term(term, *changes.borrow_and_update());
            }
            n = bindings.recv_many(&mut batch, MAX_BATCH_EVENTS) => {
                // The watch has ended, and with it the process.
                if n == 0 { break }
                executor.apply_bindings(std::mem::take(&mut batch));
            }
            _ = changes.changed(), if settle_at.is_none() => {
                settle_at = Some(Instant::now() + SETTLE_DELAY);
            }
            _ = kinds.changed() => {
                settle_at = None;
                executor.apply_cluster(*changes.borrow_and_update(), true);
            }
            Some(result) = executor.evaluations.join_next() => {
                // A join error cannot occur: panics are caught, and no task is aborted in a term.
                if let Ok((evaluate, evaluation)) = result {
                    executor.apply(Event::Evaluated(evaluate, evaluation));
                }
            }
            Some(result) = executor.writes.join_next() => {
                if let Ok((write, result)) = result {
                    executor.apply(Event::Written(write, result));
                }
            }
            () = tokio::time::sleep_until(next.into()) => {}
        }
        if settle_at.is_some_and(|at| at <= Instant::now()) {
            settle_at = None;
            executor.apply_cluster(*changes.borrow_and_update(), false);
        }
        executor.apply(Event::Tick);
    }
    executor.context.metrics.leading.set(0);
    let writes = &mut executor.writes;
    let drain = async { while writes.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, drain).await.is_err() {
        tracing::warn!("writes did not end in {DRAIN_TIMEOUT:?}");
    }
}

impl Executor {
    fn new(context: Arc<Context>) -> Self {
        Self {
            reconciler: BindingReconciler::new(context.config.clone()),
            context,
            term: None,
            leadership: Leadership::Standby,
            versions: Versions::default(),
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
                    let lag = action.due.elapsed().as_secs_f64();
                    context.metrics.lag_seconds.observe(lag);
                    self.evaluations.spawn(run_evaluation(context, action));
                }
                Action::Write(action) => {
                    self.writes
                        .spawn(async move { write(&context, action).await });
                }
                Action::Violation(event) => context.violations.lock().apply_event(event),
                Action::ReportCounts(counts) => context.metrics.counted(&counts),
                Action::Note(note) => context.events.publish(note),
                Action::OfferWarning(offer, note) => {
                    let id = format!("{offer}/{}", note.reason);
                    let events = &context.events;
                    events.publish_once(id, WARNING_PERIOD, || Some(note));
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

    fn apply_cluster(&mut self, versions: Versions, kinds_changed: bool) {
        let store = &self.context.store;
        let changed = |kinds: &[Kind]| versions.changed(&self.versions, kinds);
        let offers_changed = changed(&[Kind::Offer]);
        // They are read before the snapshot, which then has all objects of a listed kind.
        let kinds = (offers_changed || kinds_changed).then(|| self.kind_states());
        let rejected = || -> BTreeMap<Key, String> {
            let rejected = store.rejected(Kind::Offer).into_iter();
            rejected.map(|(key, why)| (key.into(), why)).collect()
        };
        let change = ClusterChange {
            snapshot: store.snapshot(),
            providers_changed: changed(&[Kind::Policy, Kind::Service, Kind::EndpointSlice]),
            clusters_changed: changed(&[Kind::RemotePods]),
            rejected_offers: offers_changed.then(rejected),
        };
        self.versions = versions;
        self.apply(Event::Cluster(change));
        if let Some(kinds) = kinds {
            self.apply(Event::Kinds(kinds));
        }
    }

    fn kind_states(&self) -> KindStates {
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
        kinds
    }

    fn next_time(&self, settle_at: Option<Instant>) -> Instant {
        // A suspended term may become active again without a notification.
        let lapsed = self.leadership == Leadership::Suspended;
        let idle = Duration::from_secs(if lapsed { 1 } else { 60 });
        let times = [settle_at, self.reconciler.next_time()];
        let idle = Instant::now() + idle;
        times.into_iter().flatten().fold(idle, Instant::min)
    }

    fn begin_term(&mut self, term: Term, versions: Versions) {
        // The first decisions of a term must be based on the newest state of the cluster.
        self.apply_cluster(versions, false);
        self.term = Some(term);
        self.context.metrics.leading.set(1);
    }
}

async fn run_evaluation(context: Arc<Context>, action: Evaluate) -> (Evaluate, Option<Evaluation>) {
    let Evaluate {
        spec,
        snapshot,
        question,
        ..
    } = &action;
    let calls = (&context.provider_client, &context.metrics);
    let evaluation = evaluate(calls, snapshot, spec, question);
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
                KeyValue::new("tautline.compliance", evaluation.compliance.name()),
                KeyValue::new("tautline.reason", evaluation.first_reason.clone()),
            ]
        }),
        Err(_) => tracing::error!(binding = %spec.key(), "an evaluation panicked"),
    }
    (action, evaluation.ok())
}
