//! The provider: answers and allocations over one state.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use tautline_gpu_placement::dra::{Claim, Class, Slice};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    answers, cluster_inventory::ClusterInventory, config::Config, metrics::Metrics, state::State,
};

/// How often reservations are checked without a request.
const TICK: Duration = Duration::from_secs(1);
/// How long an answer waits for a claim that the pod names. The watch brings it at about the
/// time when the scheduler sees it; longer waits are of no use, as the claim may be malformed.
const CLAIM_WAIT: Duration = Duration::from_millis(50);

/// The provider. Clones share their state.
#[derive(Clone, Debug)]
pub struct GpuSlice {
    pub(crate) store: ClusterStore,
    pub(crate) index_annotation: Option<String>,
    pub(crate) state: Arc<Mutex<State>>,
    /// Signals a new list of claims.
    claims: watch::Sender<()>,
}

impl GpuSlice {
    /// A provider for the nodes and pods of `store`.
    pub fn new(store: ClusterStore, config: Config) -> Self {
        let index_annotation = config.index_annotation.clone();
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let started = started.unwrap_or_default().as_nanos();
        let process = std::process::id();
        Self {
            store,
            index_annotation,
            state: Arc::new(Mutex::new(State::new(
                ClusterInventory::new(config),
                &format!("{started:x}-{process:x}"),
            ))),
            claims: watch::Sender::default(),
        }
    }

    /// Replaces all devices that DRA drivers publish.
    pub fn set_slices(&self, list: Vec<Slice>) {
        self.state.lock().devices.set_slices(list);
    }

    /// Replaces all claims of devices.
    pub fn set_claims(&self, list: Vec<Claim>) {
        self.state.lock().devices.set_claims(list);
        self.claims.send_replace(());
    }

    /// Replaces all classes of devices.
    pub fn set_classes(&self, list: Vec<Class>) {
        self.state.lock().devices.set_classes(list);
    }

    /// Ends with the first Reserve: from then on pods that wait for a node matter too.
    pub fn first_reserve(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut reserving = self.state.lock().reserving.subscribe();
        async move { _ = reserving.wait_for(|reserving| *reserving).await }
    }

    /// Waits up to [`CLAIM_WAIT`] for the claims that the pod names.
    async fn wait_for_claims(&self, ask: &CostRequest) {
        let mut named = ask.workload.iter().flat_map(|w| &w.resource_claims);
        if named.next().is_none() {
            return;
        }
        let mut changes = self.claims.subscribe();
        let known = || self.state.lock().devices.knows_claims_of(ask);
        let all_known = async { while !known() && changes.changed().await.is_ok() {} };
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let wait = ask
            .deadline
            .map_or(CLAIM_WAIT, |d| CLAIM_WAIT.min(left(d) / 2));
        _ = tokio::time::timeout(wait, all_known).await;
    }

    /// Keeps reservations in step with the watch, and the metrics with them, until `stop`.
    pub(crate) async fn maintain(self, metrics: Metrics, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(TICK) => {
                    let now = Instant::now();
                    let mut state = self.state.lock();
                    state.sync(&self.store, now);
                    metrics.set(state.reservations.counts(now), state.devices.claim_counts());
                }
            }
        }
    }
}

impl RuleProvider for GpuSlice {
    async fn endpoint_cost(&self, ask: CostRequest) -> Result<CostAnswer, ProviderError> {
        self.wait_for_claims(&ask).await;
        let now = Instant::now();
        // Read before the snapshot, so that the snapshot has all pods that came before.
        let quiet_until = self.store.pods_quiet_until();
        let mut state = self.state.lock();
        let snapshot = state.sync(&self.store, now);
        answers::answer(&mut state, &snapshot, ask, now, quiet_until)
    }

    async fn evaluate(&self, ask: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        let mut state = self.state.lock();
        let snapshot = state.sync(&self.store, Instant::now());
        answers::evaluation(&state, &snapshot, &ask)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
