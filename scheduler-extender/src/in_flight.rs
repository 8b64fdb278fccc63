//! Tracks pods in flight: filter has answered for them, and the watch does not show their node yet.
//! After an answer of several nodes their node is unknown, and a question that depends on it waits.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::Result;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};
use tautline_core::{
    Snapshot,
    constraints::{PodConstraints, PodIdentity},
    index::InFlight,
    model::{Pod, key},
};
use tautline_provider_client::planning_round::provider_name;
use tautline_runtime::cluster_store::ClusterStore;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{plans::PodPlan, state::State};

/// The longest wait of filter, for which kube-scheduler waits too, with the rest of its pods.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// The longest time of a bind, which takes milliseconds. After it the pod waits for something else,
/// such as a volume.
const MAX_BIND: Duration = Duration::from_secs(2);
const END_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of rules whose providers are looked up; a round asks no more.
const MAX_RULES: usize = 256;

/// The cluster as a new attempt of the pod sees it, with the pod's constraints.
pub(crate) struct Attempt {
    pub snapshot: Arc<Snapshot>,
    pub constraints: Vec<PodConstraints>,
}

/// The error that the node of this pod (`namespace/name`) decides where the pod in question may go.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node of pod {0}, which is being bound, matters to this pod and is not known yet")]
pub(crate) struct Unsettled(String);

impl Attempt {
    pub fn read(state: &State, pod: &PodIdentity) -> Self {
        let snapshot = state.store.snapshot();
        let constraints = state.constraints(&snapshot, pod);
        Self {
            snapshot,
            constraints,
        }
    }

    /// Ends an earlier attempt of the pod, whose place becomes free, then waits until the nodes of
    /// the pods that this one depends on are known. After an error kube-scheduler tries again, a
    /// second later or more.
    pub async fn begin(self, state: &State, pod: &PodIdentity) -> Result<Self, Unsettled> {
        if !state.config.tracks_in_flight {
            return Ok(self);
        }
        let begun = Instant::now();
        let has_ended = state
            .store
            .begin_attempt(begun.into_std(), &pod.namespace, &pod.name);
        let attempt = if has_ended {
            Self::read(state, pod)
        } else {
            self
        };
        let dependencies = Dependencies::new(state, &attempt, pod);
        let Some(first) = dependencies.open(&attempt.snapshot).next() else {
            return Ok(attempt);
        };
        // The namespace of the awaited pod pays for the wait.
        let waited_for = Arc::clone(&first.pod.namespace);
        let allowed = state.providers.longest_wait(&waited_for);
        let most = allowed.map_or(MAX_WAIT, |allowed| allowed.min(MAX_WAIT));
        // Without this guard the watch may pause.
        let _wanted = state.store.want_pods();
        let mut changes = state.store.changes();
        let settled = async {
            while dependencies.are_binding(&state.store.snapshot()) {
                if changes.changed().await.is_err() {
                    break;
                }
            }
        };
        _ = timeout(most, settled).await;
        let waited = begun.elapsed();
        state.providers.charge_wait(&waited_for, waited);
        let attempt = Self::read(state, pod);
        let unsettled = dependencies.unsettled(&attempt.snapshot);
        let open = dependencies.open(&attempt.snapshot).next();
        let outcome = match (&unsettled, open) {
            (Some(_), _) => "retry",
            (None, Some(_)) => "unknown",
            (None, None) => "known",
        };
        state.metrics.placement_wait(outcome, waited);
        unsettled.map_or(Ok(attempt), Err)
    }
}

/// The pods in flight that decide where a pod may go.
struct Dependencies<'a> {
    pod: &'a PodIdentity,
    constraints: Vec<PodConstraints>,
    /// The providers of the pod's rules that count pods.
    counting: Vec<Arc<str>>,
}

impl<'a> Dependencies<'a> {
    fn new(state: &State, attempt: &Attempt, pod: &'a PodIdentity) -> Self {
        let mut dependencies = Self {
            pod,
            constraints: Vec::new(),
            counting: Vec::new(),
        };
        if !attempt.snapshot.in_flight().any(|flight| flight.is_open()) {
            return dependencies;
        }
        dependencies.constraints.clone_from(&attempt.constraints);
        let (providers, snapshot) = (&state.providers, &attempt.snapshot);
        let rules = attempt.constraints.iter().flat_map(|c| {
            let namespace = &c.offer.namespace;
            c.rules.iter().map(move |rule| (rule, namespace))
        });
        for (rule, namespace) in rules.take(MAX_RULES) {
            let allocator = providers.allocator(snapshot, &rule.name, namespace);
            let name = allocator.map(|service| provider_name(service));
            dependencies.counting.extend(name);
        }
        dependencies
    }

    /// The pods in flight that the pod depends on and that have no known node.
    fn open<'b>(&'b self, snapshot: &'b Snapshot) -> impl Iterator<Item = &'b Arc<InFlight>> {
        let flights = snapshot.in_flight();
        flights.filter(|flight| flight.is_open() && self.has(flight))
    }

    /// Returns whether the pod depends on the pod in flight: it would be a peer, or a provider of a
    /// rule counts it.
    fn has(&self, flight: &InFlight) -> bool {
        let mut constraints = self.constraints.iter();
        constraints.any(|c| c.admits_peer(self.pod, &flight.pod))
            || self.counting.iter().any(|p| flight.counted_by.contains(p))
    }

    /// Returns whether the node of a pod may be known soon.
    fn are_binding(&self, snapshot: &Snapshot) -> bool {
        let now = Instant::now().into_std();
        self.open(snapshot).any(|flight| flight.age(now) < MAX_BIND)
    }

    /// Returns a pod of the same namespace whose node may be known soon. Pods of other namespaces
    /// cause no retry, since they could hold the pod up.
    fn unsettled(&self, snapshot: &Snapshot) -> Option<Unsettled> {
        let now = Instant::now().into_std();
        let mut own = self.open(snapshot).filter(|flight| {
            *flight.pod.namespace == *self.pod.namespace && flight.age(now) < MAX_BIND
        });
        let pod = &own.next()?.pod;
        Some(Unsettled(key(&pod.namespace, &pod.name)))
    }
}

/// Ends flights whose time is over, also while no pod is filtered.
pub(crate) async fn end_old_flights(state: Arc<State>, stop: CancellationToken) -> Result<()> {
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = sleep(END_INTERVAL) => {
                state.store.end_old_flights(Instant::now().into_std());
                state.follow_flights(&state.store.snapshot());
            }
        }
    }
}

/// The number of pods in flight, counted when the metrics are read.
#[derive(Debug)]
pub(crate) struct FlightGauge(pub ClusterStore);

impl Collector for FlightGauge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let count = self.0.snapshot().in_flight().count();
        let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        let encoder = encoder.encode_descriptor(
            "extender_pods_in_flight",
            "Pods with an answer of filter that the watch does not show on their node yet",
            None,
            gauge.metric_type(),
        )?;
        gauge.encode(encoder)
    }
}

/// Records filter's answer: the pod is in flight, unless no node is left. Providers that count pods
/// receive it.
pub(crate) fn record(state: &State, snapshot: &Snapshot, posted: Pod, plan: &PodPlan) {
    if !state.config.tracks_in_flight {
        return;
    }
    let counting: Vec<Arc<str>> = plan.counting_providers().cloned().collect();
    let node = match plan.answer.nodes.as_slice() {
        [] => return,
        [one] => Some(plan.nodes.name(*one)),
        _ => None,
    };
    let now = Instant::now().into_std();
    let is_counted = !counting.is_empty();
    state.store.begin_flight(now, posted, node, counting);
    if is_counted {
        state.follow_flights(snapshot);
    }
}
