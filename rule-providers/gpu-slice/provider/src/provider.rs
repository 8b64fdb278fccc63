//! Defines the rule provider `gpu-slice`, which answers cost and evaluation requests from state
//! that all its clones share.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use prometheus_client::metrics::{family::Family, gauge::Gauge};
use tautline_gpu_placement::dra::{Claim, Class, DeviceStore, Slice};
use tautline_runtime::{
    cluster_store::ClusterStore,
    history::{FigureHistory, HISTORY_PATH},
};
use tautline_sdk::{
    AdminPage, CostAnswer, CostChanges, CostRequest, Evaluation, EvaluationRequest, InFlightPod,
    ProviderError, Reference, RuleProvider, Workload,
};
use tokio::sync::watch;

use crate::{
    answers,
    cluster_inventory::{ClusterInventory, Config},
    state::State,
};

/// The time between two updates of the state and of its metrics.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);
/// The time in which changes of the cluster are gathered before their costs are sent.
const CHANGE_GATHER_TIME: Duration = Duration::from_millis(5);
/// The longest wait for the watch to show a pod's claims. The watch is about as fast as the
/// scheduler's, and it never shows a malformed claim.
const CLAIM_WAIT: Duration = Duration::from_millis(50);
/// The path of the page with the use of the nodes' cards.
const USE_PATH: &str = "/gpu/use";
/// The field of its query with the names of nodes; without the field the page has all nodes.
const USE_NODES: &str = "nodes=";
/// The path of the page with the nodes whose agents are silent.
const SILENT_PATH: &str = "/gpu/silent";

tautline_runtime::metrics! {
    pub(crate) struct Metrics {
        reservations: Family<ByState, Gauge> => "gpu_reservations",
            "Reservations of pods that the watch does not show bound, by state: held until \
             Confirm, or confirmed";
        claims: Family<ByState, Gauge> => "gpu_claims",
            "Resource claims, by state: allocated, or without devices";
    }
    labels ByState { state: &'static str }
}

impl Metrics {
    fn set(&self, state: &State, now: Instant) {
        let set = |of: &Family<ByState, Gauge>, state, count| {
            let gauge = of.get_or_create(&ByState { state });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        let reservations = state.reservations.counts(now);
        set(&self.reservations, "held", reservations.held);
        set(&self.reservations, "confirmed", reservations.confirmed);
        let (allocated, free) = state.devices.claim_counts();
        set(&self.claims, "allocated", allocated);
        set(&self.claims, "free", free);
    }
}

/// The provider of the rule `gpu-slice`; its clones share one state.
#[derive(Clone, Debug)]
pub struct GpuSlice {
    pub(crate) store: ClusterStore,
    pub(crate) index_annotation: Option<String>,
    pub(crate) state: Arc<Mutex<State>>,
    changes: CostChanges,
    claims: watch::Sender<()>,
    /// The percentage of all cards that pods had.
    given_cards: Arc<FigureHistory>,
}

impl GpuSlice {
    /// Returns a provider that reads nodes and pods from `store`, which the caller keeps up to
    /// date.
    pub fn new(store: ClusterStore, config: Config) -> Self {
        let index_annotation = config.index_annotation.clone();
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let started = started.unwrap_or_default().as_nanos();
        let ids = format!("{started:x}-{:x}", std::process::id());
        let inventory = ClusterInventory::new(config);
        Self {
            store,
            index_annotation,
            changes: inventory.changes.clone(),
            state: Arc::new(Mutex::new(State::new(inventory, &ids))),
            claims: watch::Sender::default(),
            given_cards: Arc::new(FigureHistory::new("givenCards", "percent")),
        }
    }

    /// Replaces the ResourceSlices of DRA drivers.
    pub fn set_slices(&self, list: Vec<Slice>) {
        self.state.lock().devices.set_slices(list);
    }

    /// Replaces the ResourceClaims.
    pub fn set_claims(&self, list: Vec<Claim>) {
        self.state.lock().devices.set_claims(list);
        self.claims.send_replace(());
    }

    /// Changes single ResourceClaims; `gone` are those that do not exist any more, as
    /// `namespace/name`.
    pub fn change_claims(&self, changed: Vec<Claim>, gone: &[String]) {
        self.state.lock().devices.change_claims(changed, gone);
        self.claims.send_replace(());
    }

    /// Returns the slices and claims, with what [`Self::allocate_claims`] has allocated.
    pub fn devices(&self) -> DeviceStore {
        self.state.lock().devices.pools.clone()
    }

    /// Allocates the claims of a pod on a node, and devices for its extended resources, as
    /// kube-scheduler likely does. For plans, in which no kube-scheduler writes claims. Nothing is
    /// allocated if the node lacks devices.
    pub fn allocate_claims(&self, pod: &Reference, workload: &Workload, node: &str) {
        let snapshot = self.store.snapshot();
        if let Some(node) = snapshot.node(node) {
            self.state.lock().devices.allocate(node, pod, workload);
        }
    }

    /// Replaces the DeviceClasses.
    pub fn set_classes(&self, list: Vec<Class>) {
        let mut state = self.state.lock();
        state.devices.set_classes(list);
        // A class decides which nodes serve a resource.
        state.inventory.changes.changed_all();
    }

    /// Returns the page of a path on the admin port, with its query; `None`: there is no such page.
    pub fn admin_page(&self, path: &str) -> Option<AdminPage> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let body = match path {
            HISTORY_PATH => serde_json::to_string(&[self.given_cards.series()]),
            SILENT_PATH => serde_json::to_string(&self.state.lock().silent_agents(Instant::now())),
            USE_PATH => self.use_page(query),
            _ => return None,
        };
        Some(match body {
            Ok(body) => AdminPage::json(body),
            Err(error) => AdminPage::text(500, error),
        })
    }

    fn use_page(&self, query: &str) -> serde_json::Result<String> {
        let only = query.split('&').find_map(|f| f.strip_prefix(USE_NODES));
        let only: Option<HashSet<&str>> = only.map(|nodes| nodes.split(',').collect());
        let wanted = |node: &str| only.as_ref().is_none_or(|only| only.contains(node));
        let page = self.state.lock().uses.page(Instant::now(), wanted);
        serde_json::to_string(&page)
    }

    /// Records once a minute how much of the cards pods have, and never ends.
    pub(crate) async fn sample_given_cards(self) {
        let given = || {
            let mut state = self.state.lock();
            state.sync(&self.store, Instant::now());
            state.inventory.given_percent()
        };
        self.given_cards.sample(given).await;
    }

    async fn wait_for_claims(&self, request: &CostRequest) {
        let mut named = request.workload.iter().flat_map(|w| &w.resource_claims);
        if named.next().is_none() {
            return;
        }
        let mut changes = self.claims.subscribe();
        let known = || self.state.lock().devices.knows_claims_of(request);
        let all_known = async { while !known() && changes.changed().await.is_ok() {} };
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let wait = request
            .deadline
            .map_or(CLAIM_WAIT, |d| CLAIM_WAIT.min(left(d) / 2));
        _ = tokio::time::timeout(wait, all_known).await;
    }

    pub(crate) async fn maintain(self, metrics: Metrics) {
        metrics.set(&self.state.lock(), Instant::now());
        let mut changes = self.store.changes();
        loop {
            // Callers that follow changes of costs get them soon; other callers ask for costs.
            let news = async {
                while changes.changed().await.is_ok() && !self.changes.are_watched() {}
                tokio::time::sleep(CHANGE_GATHER_TIME).await;
            };
            tokio::select! {
                () = news => {
                    self.state.lock().sync(&self.store, Instant::now());
                }
                () = tokio::time::sleep(MAINTENANCE_INTERVAL) => {
                    let now = Instant::now();
                    let mut state = self.state.lock();
                    state.sync(&self.store, now);
                    state.uses.expire(now);
                    metrics.set(&state, now);
                }
            }
        }
    }
}

impl RuleProvider for GpuSlice {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        self.wait_for_claims(&request).await;
        let now = Instant::now();
        let mut state = self.state.lock();
        let snapshot = state.sync(&self.store, now);
        answers::answer(&mut state, &snapshot, request, now)
    }

    fn changes(&self) -> Option<&CostChanges> {
        Some(&self.changes)
    }

    fn placed(&self, pod: InFlightPod) {
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.sync(&self.store, now);
        state.assume(pod, now);
    }

    fn ended(&self, uid: &str) {
        let (mut state, now) = (self.state.lock(), Instant::now());
        if let Some(node) = state.assumed.remove(uid) {
            state.sync_node(now, &node);
        }
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let snapshot = state.sync(&self.store, now);
        answers::evaluation(&state, &snapshot, &request, now)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
