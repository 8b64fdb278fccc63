//! Pods in flight: filter has answered for them, and the watch does not show their node yet. After
//! an answer of several nodes their node is unknown; a question that depends on it waits.

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

/// kube-scheduler waits too, with the rest of its pods.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// A bind takes milliseconds. After this time the pod waits for something else, such as a volume.
const MAX_BIND: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(1);

/// The cluster as a new attempt of the pod sees it, with the pod's constraints.
pub(crate) struct Attempt {
    pub snapshot: Arc<Snapshot>,
    pub constraints: Vec<PodConstraints>,
}

/// The node of this pod (`namespace/name`) decides where the pod in question may go.
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

    /// An earlier attempt of the pod has ended, so its place is free; then waits until the nodes of
    /// the pods that this one depends on are known. After an error kube-scheduler tries again in a
    /// second.
    pub async fn begin(self, state: &State, pod: &PodIdentity) -> Result<Self, Unsettled> {
        if !state.config.tracks_in_flight {
            return Ok(self);
        }
        let begun = Instant::now();
        let has_ended = state
            .store
            .begin_attempt(begun.into_std(), &pod.namespace, &pod.name);
        let attempt = match has_ended {
            true => Self::read(state, pod),
            false => self,
        };
        if attempt.open_flights(state, pod).next().is_none() {
            return Ok(attempt);
        }
        // Without it the watch may pause.
        let _wanted = state.store.want_pods();
        let mut changes = state.store.changes();
        let settled = async {
            while Self::read(state, pod).unsettled(state, pod).is_some() {
                if changes.changed().await.is_err() {
                    break;
                }
            }
        };
        let namespace = &pod.namespace;
        let most = state.providers.longest_wait(namespace);
        _ = timeout(most.map_or(MAX_WAIT, |most| most.min(MAX_WAIT)), settled).await;
        state.providers.charge_wait(namespace, begun.elapsed());
        let attempt = Self::read(state, pod);
        let unsettled = attempt.unsettled(state, pod);
        let outcome = match (&unsettled, attempt.open_flights(state, pod).next()) {
            (Some(_), _) => "retry",
            (None, Some(_)) => "unknown",
            (None, None) => "known",
        };
        state.metrics.placement_wait(outcome, begun.elapsed());
        unsettled.map_or(Ok(attempt), Err)
    }

    fn unsettled(&self, state: &State, pod: &PodIdentity) -> Option<Unsettled> {
        let now = Instant::now().into_std();
        let mut open = self.open_flights(state, pod);
        let flight = open.find(|flight| flight.age(now) < MAX_BIND)?;
        Some(Unsettled(key(&flight.pod.namespace, &flight.pod.name)))
    }

    /// The pods without a known node that this one depends on.
    fn open_flights<'a>(
        &'a self,
        state: &'a State,
        pod: &'a PodIdentity,
    ) -> impl Iterator<Item = &'a Arc<InFlight>> {
        let flights = self.snapshot.in_flight();
        flights.filter(|flight| flight.is_open() && self.depends_on(state, pod, flight))
    }

    /// Whether the pod in flight would be a peer, or takes from what a provider of a rule counts.
    fn depends_on(&self, state: &State, pod: &PodIdentity, flight: &InFlight) -> bool {
        let counts = |constraints: &PodConstraints| {
            let namespace = &constraints.offer.namespace;
            let mut rules = constraints.rules.iter();
            rules.any(|rule| {
                let providers = &state.providers;
                let service = providers.provider(&self.snapshot, &rule.name, namespace);
                let service = service.filter(|service| providers.is_allocator(service));
                service.is_some_and(|s| flight.counted_by.contains(&provider_name(s)))
            })
        };
        self.constraints
            .iter()
            .any(|c| c.admits_peer(pod, &flight.pod) || counts(c))
    }
}

/// Ends the flights whose time is over, also while no pod is filtered.
pub(crate) async fn end_old_flights(store: ClusterStore, stop: CancellationToken) -> Result<()> {
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = sleep(INTERVAL) => store.end_old_flights(Instant::now().into_std()),
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
            "Pods with an answer of filter that a watch, or a provider that counts pods, does not \
             show yet",
            None,
            gauge.metric_type(),
        )?;
        gauge.encode(encoder)
    }
}

/// Records the answer: the pod is in flight, unless no node is left.
pub(crate) fn record(state: &State, posted: Pod, plan: &PodPlan) {
    if !state.config.tracks_in_flight {
        return;
    }
    let mut counting: Vec<Arc<str>> = Vec::new();
    for rule in &plan.rules {
        let Some(provider) = &rule.provider else {
            continue;
        };
        if !rule.counted.is_empty() {
            state.store.report_counted(provider, &rule.counted);
        }
        if rule.counts_pods && !counting.contains(provider) {
            counting.push(Arc::clone(provider));
        }
    }
    let node = match plan.answer.nodes.as_slice() {
        [] => return,
        [one] => Some(plan.nodes.name(*one)),
        _ => None,
    };
    let now = Instant::now().into_std();
    state.store.begin_flight(now, posted, node, counting);
}
