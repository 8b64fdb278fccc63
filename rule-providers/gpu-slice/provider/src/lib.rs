//! The rule provider of `gpu-slice`: nodes that can really give a pod its GPUs,
//! and of those the ones whose rest is of most use to the pods to come.
//!
//! What a pod needs comes from its own requests (`nvidia.com/gpu`,
//! `nvidia.com/gpu-shared`, `nvidia.com/mig-<profile>`); the rule's request may
//! state it instead (see [`need`]). What a node has left is kept card by card (see
//! [`ledger`]), and a policy says what a place costs ([`tautline_gpu_placement::policy`]).

mod allocate;
mod answers;
mod claims;
mod cost;
mod counted;
mod evaluate;
mod lanes;
mod ledger;
mod lines;
mod metrics;
mod need;
mod refusal;
pub mod replicas;

mod state;
pub mod view;

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use tautline_gpu_placement::{Names, TaskType, dra, policy};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
    reservations::ReservationCounts,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use crate::{
    cost::{At, Fit},
    ledger::Order,
    metrics::Gauges,
    need::shape_of,
    refusal::No,
    view::View,
};

use crate::{ledger::Ledger, state::State};

/// The rule that this provider answers for.
pub const RULE: &str = "gpu-slice";

/// How the provider chooses.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub policy: policy::Name,
    pub names: Names,
    pub order: Order,
    /// The distribution of requests to plan for; `None`: learned from the cluster.
    pub classes: Option<Vec<(TaskType, f64)>>,
    /// A second annotation for a pod's cards, as indexes (`0-1`), for runtimes that
    /// read another than ours.
    pub also_record: Option<String>,
}

/// How often reservations are looked through when nobody asks.
const TICK: Duration = Duration::from_secs(1);
/// A claim that a pod names is told here at about the time when the scheduler is told
/// of it: it is waited for so long, and not longer, as it may be one that cannot be used.
const CLAIM_LATE: Duration = Duration::from_millis(50);

/// The provider. Clones are one.
#[derive(Clone, Debug)]
pub struct GpuSlice {
    feed: ClusterStore,
    also_record: Option<String>,
    state: Arc<Mutex<State>>,
    /// Wakes when claims are told.
    claims: watch::Sender<()>,
}

impl GpuSlice {
    /// A provider that knows nodes and pods from `feed`.
    pub fn new(feed: ClusterStore, config: Config) -> Self {
        let also_record = config.also_record.clone();
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let started = started.unwrap_or_default().as_nanos();
        let process = std::process::id();
        Self {
            feed,
            also_record,
            state: Arc::new(Mutex::new(State::new(
                Ledger::of(config),
                &format!("{started:x}-{process:x}"),
            ))),
            claims: watch::Sender::default(),
        }
    }

    /// These are all devices that DRA drivers publish.
    pub fn set_slices(&self, list: Vec<dra::Slice>) {
        self.state.lock().devices.set_slices(list);
    }

    /// These are all claims of them.
    pub fn set_claims(&self, list: Vec<dra::Claim>) {
        self.state.lock().devices.set_claims(list);
        self.claims.send_replace(());
    }

    /// These are all their classes.
    pub fn set_classes(&self, list: Vec<dra::Class>) {
        self.state.lock().devices.set_classes(list);
    }

    /// Ends once it is asked to reserve: then pods that wait for a node matter too.
    pub fn reserves(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut told = self.state.lock().reserves.subscribe();
        async move { _ = told.wait_for(|reserves| *reserves).await }
    }

    /// What is reserved and not yet seen with a pod.
    pub fn reservations(&self) -> ReservationCounts {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.sync(&self.feed, now);
        state.book.counts(now)
    }

    fn claims(&self) -> (usize, usize) {
        let devices = &self.state.lock().devices;
        (devices.allocated, devices.free)
    }

    /// Waits a little until the claims are known that the pod names.
    async fn know_claims(&self, ask: &CostRequest) {
        let mut named = ask.workload.iter().flat_map(|w| &w.resource_claims);
        if named.next().is_none() {
            return;
        }
        let mut told = self.claims.subscribe();
        let known = || self.state.lock().devices.knows_claims_of(ask);
        let come = async { while !known() && told.changed().await.is_ok() {} };
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let late = ask
            .deadline
            .map_or(CLAIM_LATE, |d| CLAIM_LATE.min(left(d) / 2));
        _ = tokio::time::timeout(late, come).await;
    }

    /// Keeps reservations in step with the watch, and tells of them, until told to
    /// stop.
    pub async fn keep(self, gauges: Gauges, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(TICK) => gauges.set(self.reservations(), self.claims()),
            }
        }
    }
}

impl RuleProvider for GpuSlice {
    async fn endpoint_cost(&self, ask: CostRequest) -> Result<CostAnswer, ProviderError> {
        self.know_claims(&ask).await;
        let now = Instant::now();
        // Asked before the snapshot is taken, so that it has all that came before.
        let rests_until = self.feed.pods_quiet_until();
        let mut state = self.state.lock();
        let snapshot = state.sync(&self.feed, now);
        answers::answer(&mut state, &snapshot, ask, now, rests_until)
    }

    async fn evaluate(&self, ask: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        let mut state = self.state.lock();
        let snapshot = state.sync(&self.feed, Instant::now());
        answers::evaluation(&state, &snapshot, &ask)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
