//! Data that all requests share.

use std::sync::Arc;

use kube::Client;
use tautline_core::{
    Snapshot,
    constraints::{self, PodConstraints, PodIdentity},
};
use tautline_provider_client::{PlanningQuestion, ProviderClient, status::micros};
use tautline_runtime::{cluster_store::ClusterStore, history::FigureHistory, http};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::{
    bind_locks::BindLocks,
    config::Config,
    events::OfferEvents,
    explain::{History, mode_name},
    groups::Groups,
    metrics::Metrics,
    plans::{PlanCache, PodPlan},
    status::Status,
};

pub(crate) struct State {
    pub config: Config,
    pub store: ClusterStore,
    pub client: Option<Client>,
    pub providers: ProviderClient,
    pub metrics: Metrics,
    pub port: http::Port,
    pub plans: PlanCache,
    pub bind_locks: BindLocks,
    pub groups: Groups,
    pub history: History,
    /// The number of pods that waited for a node.
    pub waiting_pods: FigureHistory,
    pub events: OfferEvents,
    /// The lock that is held while an answer of filter is recorded.
    pub recording: Arc<Mutex<()>>,
}

impl State {
    /// The constraints of all offers that govern the pod; empty for ungoverned pods.
    pub fn constraints(&self, snapshot: &Snapshot, pod: &PodIdentity) -> Vec<PodConstraints> {
        if self.is_exempt(&pod.namespace) {
            return Vec::new();
        }
        constraints::pod_constraints(snapshot, pod)
    }

    pub fn is_exempt(&self, namespace: &str) -> bool {
        self.config.exempt_namespaces.contains(namespace)
    }

    /// Returns a guard to hold until the answer that is sent now is recorded.
    pub async fn begin_recording(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.recording).lock_owned().await
    }

    /// Returns the number of pods that wait for a node.
    pub fn count_waiting_pods(&self) -> u64 {
        let snapshot = self.store.snapshot();
        snapshot.pods().filter(|pod| pod.waits_for_node()).count() as u64
    }

    /// Waits until the answers that were sent are recorded.
    pub async fn recorded(&self) {
        drop(self.recording.lock().await);
    }

    /// Tells providers about the events of pods in flight up to a snapshot.
    pub fn follow_flights(&self, snapshot: &Snapshot) {
        let take = || self.store.take_flight_events();
        self.providers.follow_flights(snapshot, take);
    }

    /// Shares a plan of filter with prioritize and bind.
    pub fn cache(&self, plan: &Arc<PodPlan>, question: Option<PlanningQuestion>) {
        let displaced = self.plans.insert(plan, question);
        self.metrics.displaced_plans.inc_by(displaced);
    }

    /// Publishes the events of a plan.
    pub fn publish(&self, snapshot: &Snapshot, plan: &PodPlan) {
        self.events.publish_rules(snapshot, &self.providers, plan);
        self.events.publish_underlay(snapshot, plan);
    }

    /// The state of this replica.
    pub fn status(&self) -> Status {
        let config = self.providers.config();
        Status {
            answer: mode_name(self.config.answer).to_owned(),
            provider_namespaces: config.trusted.to_string(),
            provider_deadline_micros: micros(config.deadline),
            requests: self.metrics.last_requests(),
            providers: self.providers.provider_statuses(&self.store.snapshot()),
        }
    }
}
