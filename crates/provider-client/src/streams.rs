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
    model::{EndpointSlice, Service},
    nodes::NodeSet,
    planning::Costs,
    providers::PROVIDER_PORT,
};
use tautline_proto::ruleprovider as wire;
use tokio::{sync::Notify, time::Instant};

use self::{
    placements::{PlacementChanges, Placements},
    stream::{CostStream, Lookup},
};
use crate::{
    CallError,
    call::{Endpoints, call_error},
    client::ProviderClient,
};

/// Filter waits for costs on their way for the deadline of a call, divided by this.
const WAIT_DIVISOR: u32 = 4;
/// The maximum size of a question: its labels, annotations and rules. Few pods ask a longer one.
const MAX_QUESTION_BYTES: usize = 64 << 10;
/// The time between two messages about pods that every watch shows by now.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(250);

/// The streams to all providers.
#[derive(Debug, Default)]
pub(crate) struct Streams {
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

#[derive(Debug)]
struct ProviderStream {
    provider: Arc<str>,
    stream: Mutex<CostStream>,
    /// Notifies that the provider has sent an update, or that the stream is broken.
    changed: Notify,
    target: Mutex<Target>,
    /// Notifies that the target has changed.
    moved: Notify,
    /// The time when a pod last asked.
    asked: Mutex<Instant>,
}

impl ProviderStream {
    fn last_asked(&self) -> Instant {
        *self.asked.lock()
    }
}

/// The provider's Service and its addresses.
#[derive(Clone, Debug)]
struct Target {
    service: Arc<Service>,
    slices: Vec<Arc<EndpointSlice>>,
    endpoints: Endpoints,
}

/// The indexes of a round's nodes, looked up once for all rules; `None` if a node is unknown.
pub(crate) type RoundIndexes = OnceLock<Option<Arc<[u32]>>>;

impl ProviderClient {
    /// Tells providers about the events of pods in flight. `take` returns the events since the last
    /// call.
    pub fn follow_flights(&self, snapshot: &Snapshot, take: impl FnOnce() -> Vec<FlightEvent>) {
        let streams = self.streams();
        let now = Instant::now();
        // The lock is held while the events are taken, so that they are applied in their order.
        let shared = &mut *streams.shared.lock();
        let mut changes: HashMap<Arc<str>, PlacementChanges> = HashMap::new();
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
                let pod = || self.in_flight_pod(service, &event.pod);
                let out = changes.entry(Arc::clone(provider)).or_default();
                of_provider.apply((&event.pod.uid, event.what), pod, now, out);
            }
        }
        if shared
            .expired
            .is_none_or(|last| now >= last + EXPIRY_INTERVAL)
        {
            shared.expired = Some(now);
            for (provider, placements) in &mut shared.placements {
                placements.expire(now, changes.entry(Arc::clone(provider)).or_default());
            }
        }
        for (provider, changes) in changes {
            let stream = streams.by_provider.get(&provider);
            if let Some(stream) = stream.filter(|_| !changes.is_empty()) {
                stream.stream.lock().change_pods(changes);
            }
        }
    }

    /// The pods that an allocator must count although its watch may not show them.
    pub(crate) fn placed_pods(&self, provider: &str) -> Vec<wire::InFlightPod> {
        let shared = self.streams().shared.lock();
        let placements = shared.placements.get(provider);
        placements.map_or_else(Vec::new, |p| p.pods().cloned().collect())
    }

    /// The costs that the provider has sent for a question; `None` if it must be called.
    pub(crate) async fn streamed_costs(
        &self,
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
        let may_hold = |shared: &Shared| {
            let placements = shared.placements.get(provider);
            placements.is_some_and(|placements| placements.may_hold(uid))
        };
        if may_hold(&self.streams().shared.lock()) {
            return Ok(None);
        }
        let until = Instant::now() + deadline / WAIT_DIVISOR;
        loop {
            let changed = stream.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let found = stream
                .stream
                .lock()
                .lookup(question, indexes, Instant::now());
            match found {
                Lookup::Costs(costs, age) => return Ok(Some((costs, age))),
                Lookup::Failed(status) => return Err(call_error(&provider, &status)),
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
        let streams = self.streams();
        let mut shared = streams.shared.lock();
        let changes = shared.indexes.sync(snapshot, Instant::now().into_std());
        if !changes.is_empty() {
            for stream in &streams.by_provider {
                stream.stream.lock().change_nodes(&changes);
            }
        }
        shared.indexes.of(nodes).map(Into::into)
    }

    /// The stream to a provider, which is opened for the first question.
    fn stream(
        &self,
        snapshot: &Snapshot,
        service: &Arc<Service>,
        provider: &Arc<str>,
    ) -> Arc<ProviderStream> {
        let slices = snapshot.endpoint_slices(&service.namespace, &service.name);
        let target = || Target {
            service: Arc::clone(service),
            slices: slices.to_vec(),
            endpoints: self.endpoints(snapshot, service, PROVIDER_PORT),
        };
        let streams = self.streams();
        if let Some(stream) = streams.by_provider.get(provider) {
            let stream = Arc::clone(&stream);
            let mut known = stream.target.lock();
            let is_same = Arc::ptr_eq(&known.service, service)
                && known.slices.len() == slices.len()
                && known
                    .slices
                    .iter()
                    .zip(slices)
                    .all(|(a, b)| Arc::ptr_eq(a, b));
            if !is_same {
                *known = target();
                stream.moved.notify_one();
            }
            drop(known);
            *stream.asked.lock() = Instant::now();
            return stream;
        }
        let stream = Arc::new(ProviderStream {
            provider: Arc::clone(provider),
            stream: Mutex::default(),
            changed: Notify::new(),
            target: Mutex::new(target()),
            moved: Notify::new(),
            asked: Mutex::new(Instant::now()),
        });
        match streams.by_provider.entry(Arc::clone(provider)) {
            dashmap::Entry::Occupied(known) => Arc::clone(known.get()),
            dashmap::Entry::Vacant(vacant) => {
                vacant.insert(Arc::clone(&stream));
                tokio::spawn(connect::run(self.clone(), Arc::clone(&stream)));
                stream
            }
        }
    }
}

impl Streams {
    /// Begins a stream with all that its provider must know. Both locks are held, so that nothing
    /// happens between this state and the changes that follow.
    fn begin(
        &self,
        stream: &ProviderStream,
        out: tokio::sync::mpsc::UnboundedSender<wire::CostWatch>,
    ) {
        let shared = self.shared.lock();
        let all = shared.indexes.iter();
        let nodes = IndexChanges {
            removed: Vec::new(),
            added: all.map(|(index, name)| (index, Arc::clone(name))).collect(),
        };
        let placements = shared.placements.get(&stream.provider);
        let placed = placements.map_or_else(Vec::new, |p| p.pods().cloned().collect());
        stream
            .stream
            .lock()
            .begin(out, nodes, placed, Instant::now());
    }
}
