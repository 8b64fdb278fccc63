//! Pods in flight: filter has answered for them, and the watch does not show their node yet. After
//! an answer of several nodes their node is unknown; a question that depends on it waits.

use std::{sync::Arc, time::Duration};

use tautline_core::{
    Snapshot,
    constraints::{PodConstraints, PodIdentity},
    index::InFlight,
    model::Pod,
};
use tautline_provider_client::planning_round::provider_name;
use tokio::time::{Instant, timeout};

use crate::{plans::PodPlan, state::State};

/// kube-scheduler binds within milliseconds, and it waits too: the rest of its pods.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// The cluster as a new attempt of the pod sees it, with the pod's constraints.
pub(crate) struct Attempt {
    pub snapshot: Arc<Snapshot>,
    pub constraints: Vec<PodConstraints>,
}

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
    /// the pods that this one depends on are known.
    pub async fn begin(self, state: &State, pod: &PodIdentity) -> Self {
        let now = Instant::now().into_std();
        let has_ended = state.store.begin_attempt(now, &pod.namespace, &pod.name);
        let attempt = match has_ended {
            true => Self::read(state, pod),
            false => self,
        };
        if !attempt.is_unsettled(state, pod) {
            return attempt;
        }
        // Without it the watch may pause.
        let _wanted = state.store.want_pods();
        let mut changes = state.store.changes();
        let settled = async {
            loop {
                let attempt = Self::read(state, pod);
                if !attempt.is_unsettled(state, pod) || changes.changed().await.is_err() {
                    return attempt;
                }
            }
        };
        let (begun, settled) = (Instant::now(), timeout(MAX_WAIT, settled).await);
        let outcome = if settled.is_ok() { "known" } else { "timeout" };
        state.metrics.placement_wait(outcome, begun.elapsed());
        settled.unwrap_or_else(|_| Self::read(state, pod))
    }

    fn is_unsettled(&self, state: &State, pod: &PodIdentity) -> bool {
        let mut flights = self.snapshot.in_flight();
        flights.any(|flight| flight.is_open() && self.depends_on(state, pod, flight))
    }

    /// Whether the pod in flight would be a peer, or takes from what a provider of a rule counts.
    fn depends_on(&self, state: &State, pod: &PodIdentity, flight: &InFlight) -> bool {
        let counts = |constraints: &PodConstraints| {
            let namespace = &constraints.offer.namespace;
            let mut rules = constraints.rules.iter();
            rules.any(|rule| {
                let providers = &state.providers;
                let service = providers.provider(&self.snapshot, &rule.name, namespace);
                let service = service.filter(|service| service.allocator);
                service.is_some_and(|s| flight.counted_by.contains(&provider_name(s)))
            })
        };
        self.constraints
            .iter()
            .any(|c| c.admits_peer(pod, &flight.pod) || counts(c))
    }
}

/// Records the answer: the pod is in flight, unless no node is left.
pub(crate) fn record(state: &State, posted: Pod, plan: &PodPlan) {
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
