//! Costs that providers send before kube-scheduler asks: one stream to each provider of a trusted
//! namespace, and a table of costs for each question that pods ask.

mod connect;
mod placements;
mod stream;

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::Mutex;
use tautline_core::{
    Snapshot,
    index::{
        FlightEvent,
        node_indexes::{IndexChanges, NodeIndexes},
    },
    model::{EndpointSlice, Pod, Service},
    nodes::NodeSet,
    planning::Costs,
    providers::PROVIDER_PORT,
};
use tautline_proto::ruleprovider as wire;
use tokio::{
    sync::{Notify, mpsc::UnboundedSender, watch},
    time::Instant,
};

use self::{
    placements::Placements,
    stream::{CostStream, Lookup},
};
use crate::{
    CallError,
    config::ClientConfig,
    metrics::Metrics,
    pool::{Endpoints, Pool},
};

/// Filter waits for costs on their way for the deadline of a call, divided by this.
const WAIT_DIVISOR: u32 = 4;
/// The maximum size of a question: its labels, annotations and rules. Few pods ask a longer one.
const MAX_QUESTION_BYTES: usize = 64 << 10;
/// The time between two messages about pods that every watch shows by now.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(250);

/// The streams to all providers.
#[derive(Debug)]
pub(crate) struct Streams {
    config: Arc<ClientConfig>,
    pool: Arc<Pool>,
    metrics: Metrics,
    shared: Mutex<Shared>,
    by_provider: DashMap<Arc<str>, Arc<ProviderStream>>,
}

/// The state that all providers must know: the nodes and the placed pods.
#[derive(Debug, Default)]
struct Shared {
    indexes: NodeIndexes,
    placements: HashMap<Arc<str>, Placements>,
    expired: Option<Instant>,
}

impl Shared {
    fn placed(&self, provider: &str) -> Vec<wire::InFlightPod> {
        let placements = self.placements.get(provider);
        placements.map_or_else(Vec::new, |p| p.pods().cloned().collect())
    }
}

#[derive(Debug)]
struct ProviderStream {
    provider: Arc<str>,
    state: Mutex<CostStream>,
    /// Notifies that the provider has sent an update, or that the stream is broken.
    changed: Notify,
    target: watch::Sender<Target>,
}

/// The provider's Service and its addresses.
#[derive(Debug)]
struct Target {
    service: Arc<Service>,
    slices: Vec<Arc<EndpointSlice>>,
    endpoints: Endpoints,
}

/// The indexes of a round's nodes, looked up once for all rules; `None` if a node is unknown.
pub(crate) type RoundIndexes = OnceLock<Option<Arc<[u32]>>>;

impl Streams {
    pub(crate) fn new(config: Arc<ClientConfig>, pool: Arc<Pool>, metrics: Metrics) -> Self {
        Self {
            config,
            pool,
            metrics,
            shared: Mutex::default(),
            by_provider: DashMap::new(),
        }
    }

    /// Tells providers about the events of pods in flight. `take` returns the events since the last
    /// call, and `message` the message about a pod.
    pub(crate) fn follow_flights(
        &self,
        snapshot: &Snapshot,
        take: impl FnOnce() -> Vec<FlightEvent>,
        message: impl Fn(&Service, &Pod) -> wire::InFlightPod,
    ) {
        let now = Instant::now();
        // The lock is held while the events are taken, so that they are applied in their order.
        let shared = &mut *self.shared.lock();
        for event in take() {
            for provider in &event.counted_by {
                let service = provider
                    .split_once('/')
                    .and_then(|(ns, name)| snapshot.service(ns, name));
                let Some(service) = service else {
                    // Without its Service nothing would end the provider's pods.
                    shared.placements.remove(provider);
                    continue;
                };
                let of_provider = shared.placements.entry(Arc::clone(provider)).or_default();
                let pod = || message(service, &event.pod);
                of_provider.apply(&event.pod.uid, event.what, pod, now);
            }
        }
        let expires = shared
            .expired
            .is_none_or(|last| now >= last + EXPIRY_INTERVAL);
        if expires {
            shared.expired = Some(now);
        }
        for (provider, placements) in &mut shared.placements {
            if expires {
                placements.expire(now);
            }
            let changes = placements.take_changes();
            if changes != wire::CostWatch::default()
                && let Some(stream) = self.by_provider.get(provider)
            {
                stream.state.lock().change_pods(changes);
            }
        }
    }

    /// The costs that the provider has sent for a question; `None` if it must be called.
    pub(crate) async fn costs(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        (service, provider): (&Arc<Service>, &Arc<str>),
        (question, uid): (&Bytes, &str),
        (nodes, indexes): (&NodeSet, &RoundIndexes),
        deadline: Duration,
    ) -> Result<Option<(Costs, Duration)>, CallError> {
        if question.len() > MAX_QUESTION_BYTES {
            return Ok(None);
        }
        let stream = self.stream(snapshot, service, provider);
        let indexes = indexes.get_or_init(|| self.indexes(snapshot, nodes));
        let Some(indexes) = indexes else {
            return Ok(None);
        };
        let may_hold = |placements: &Placements| placements.may_hold(uid);
        if self
            .shared
            .lock()
            .placements
            .get(provider)
            .is_some_and(may_hold)
        {
            return Ok(None);
        }
        let until = Instant::now() + deadline / WAIT_DIVISOR;
        loop {
            let changed = stream.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let now = Instant::now();
            let found = stream.state.lock().lookup(question, indexes, now);
            match found {
                Lookup::Costs(costs, age) => return Ok(Some((costs, age))),
                Lookup::Failed(status) => return Err(CallError::new(&provider, &status)),
                Lookup::Call => return Ok(None),
                Lookup::Wait => {
                    if tokio::time::timeout_at(until, changed).await.is_err() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Tells providers about changed nodes of a snapshot; returns the indexes of `nodes` unless one
    /// is unknown.
    fn indexes(&self, snapshot: &Snapshot, nodes: &NodeSet) -> Option<Arc<[u32]>> {
        let mut shared = self.shared.lock();
        let changes = shared.indexes.sync(snapshot, Instant::now().into_std());
        if !changes.is_empty() {
            for stream in &self.by_provider {
                stream.state.lock().change_nodes(&changes);
            }
        }
        shared.indexes.of(nodes).map(Into::into)
    }

    /// The stream to a provider, which is opened for the first question.
    fn stream(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        service: &Arc<Service>,
        provider: &Arc<str>,
    ) -> Arc<ProviderStream> {
        let slices = snapshot.endpoint_slices(&service.namespace, &service.name);
        let target = || Target {
            service: Arc::clone(service),
            slices: slices.to_vec(),
            endpoints: Endpoints::new(&self.config, snapshot, service, PROVIDER_PORT),
        };
        let by_provider = &self.by_provider;
        if let Some(stream) = by_provider.get(provider) {
            let is_same = |known: &Target| {
                let known_slices = known.slices.iter().map(Arc::as_ptr);
                Arc::ptr_eq(&known.service, service)
                    && known_slices.eq(slices.iter().map(Arc::as_ptr))
            };
            if !is_same(&stream.target.borrow()) {
                stream.target.send_replace(target());
            }
            return Arc::clone(&stream);
        }
        let stream = by_provider.entry(Arc::clone(provider)).or_insert_with(|| {
            let stream = Arc::new(ProviderStream {
                provider: Arc::clone(provider),
                state: Mutex::default(),
                changed: Notify::new(),
                target: watch::Sender::new(target()),
            });
            tokio::spawn(connect::run(Arc::clone(self), Arc::clone(&stream)));
            stream
        });
        Arc::clone(&stream)
    }

    /// The pods that an allocator must count although its watch may not show them.
    pub(crate) fn placed(&self, provider: &str) -> Vec<wire::InFlightPod> {
        self.shared.lock().placed(provider)
    }

    /// Begins a stream with all that its provider must know. Both locks are held, so that nothing
    /// happens between this state and the changes that follow.
    fn begin(&self, stream: &ProviderStream, out: UnboundedSender<wire::CostWatch>) {
        let shared = self.shared.lock();
        let all = shared.indexes.iter();
        let nodes = IndexChanges {
            removed: Vec::new(),
            added: all.map(|(index, name)| (index, Arc::clone(name))).collect(),
        };
        let placed = shared.placed(&stream.provider);
        let mut state = stream.state.lock();
        state.begin(out, nodes, placed, Instant::now());
    }
}
