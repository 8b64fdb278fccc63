//! Holds the state of the `gpu-slice` provider (inventory, reservations, DRA devices, reported
//! use), and synchronizes it with the watched cluster.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_agent_link::SilentAgents;
use tautline_core::{Snapshot, model::Pod};
use tautline_gpu_placement::inventory::{self, CardPool, PodReservation};
use tautline_proto::gpu::Use;
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{InFlightPod, reservations::Reservations};
use tonic::Status;

use crate::{
    assumed::Assumed,
    cluster_inventory::{ClusterInventory, Held, NodeEntry},
    dra::Devices,
    use_store::{SessionId, UseStore, is_stray},
};

/// The age at which confirmed reservations are checked. It is above 295 s, after which a dead watch
/// is noticed.
const UNSETTLED_AGE: Duration = Duration::from_secs(360);
/// The time after which a restarted watch has caught up; until then no pod counts as gone.
const WATCH_CATCH_UP: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) inventory: ClusterInventory,
    /// The grants; their parts are empty if a device plugin or the scheduler picks the device.
    pub(crate) reservations: Reservations<PodReservation>,
    pub(crate) devices: Devices,
    pub(crate) uses: UseStore,
    pub(crate) assumed: Assumed,
    last_snapshot: Arc<Snapshot>,
    /// The mark of the last call of [`ClusterStore::gone_pods`].
    gone_mark: u64,
}

impl State {
    pub(crate) fn new(inventory: ClusterInventory, prefix: &str) -> Self {
        Self {
            inventory,
            reservations: Reservations::new(prefix),
            devices: Devices::default(),
            uses: UseStore::default(),
            assumed: Assumed::default(),
            last_snapshot: Arc::default(),
            gone_mark: 0,
        }
    }

    /// Applies the changes since the last snapshot, and returns the new snapshot. A pod that the
    /// watch shows replaces its reservation and its assumed pod under one lock, so its cards always
    /// count once.
    pub(crate) fn sync(&mut self, store: &ClusterStore, now: Instant) -> Arc<Snapshot> {
        let snapshot = store.snapshot();
        let last = Arc::clone(&self.last_snapshot);
        let reservations = &mut self.reservations;
        let assumed = &mut self.assumed;
        let mut changed = BTreeSet::new();
        let mut touched = reservations.expire(now);
        for (old, new) in snapshot.changed_pods(&last) {
            if let Some(old) = old
                && new.is_none_or(|new| new.uid != old.uid)
            {
                touched.append(&mut reservations.observe_pod(now, &old.uid, None));
                changed.extend(assumed.remove(&old.uid));
            }
            if let Some(new) = new
                && (new.finished || new.node.is_some())
            {
                changed.extend(assumed.remove(&new.uid));
                touched.append(&mut settle(reservations, now, new));
            }
        }
        // These pods came and went since the last snapshot.
        for uid in store.gone_pods(&mut self.gone_mark) {
            touched.append(&mut reservations.observe_pod(now, &uid, None));
            changed.extend(assumed.remove(&uid));
        }
        let unsettled = reservations.unobserved(now, UNSETTLED_AGE);
        let watched = store.pods_watched_since();
        let caught_up = watched.is_some_and(|since| now >= since + WATCH_CATCH_UP);
        if caught_up && !unsettled.is_empty() {
            let of = |p: &Arc<Pod>| unsettled.contains(&*p.uid).then(|| Arc::clone(p));
            let pods: Vec<Arc<Pod>> = snapshot.pods().filter_map(of).collect();
            for uid in &unsettled {
                match pods.iter().find(|p| *p.uid == **uid) {
                    // The pod's binding may not be known yet.
                    Some(pod) if pod.node.is_none() && !pod.finished => {}
                    Some(pod) => touched.append(&mut settle(reservations, now, pod)),
                    None => touched.append(&mut reservations.observe_pod(now, uid, None)),
                }
            }
        }
        changed.extend(touched.iter().map(|n| Arc::from(n.as_str())));
        changed.append(&mut self.devices.pools.changed_nodes);
        let touched: Vec<Arc<str>> = changed.into_iter().collect();
        self.sync_inventory(&snapshot, now, &touched);
        self.devices.forget(snapshot.changed_nodes(&last));
        self.last_snapshot = Arc::clone(&snapshot);
        snapshot
    }

    /// Stores the report of a node's agent, and compares it with the pods as of the last
    /// [`State::sync`].
    pub(crate) fn report_use(
        &mut self,
        node: &str,
        session: SessionId,
        used: Use,
        now: Instant,
    ) -> Result<(), Status> {
        let entry = self.inventory.nodes.get(node);
        let pods = self.last_snapshot.pods_on(node);
        let is_stray = |of: &_| entry.is_some_and(|e| is_stray(&e.inventory, pods, of));
        self.uses.report(node, session, used, now, is_stray)
    }

    /// Returns the nodes with cards of an agent that is silent.
    pub(crate) fn silent_agents(&self, now: Instant) -> SilentAgents {
        let has_agent = |of: &NodeEntry| of.inventory.pools.iter().any(CardPool::has_agent);
        let nodes = self.inventory.nodes.iter();
        let nodes = nodes.filter_map(|(node, of)| has_agent(of).then_some(&**node));
        self.uses.silent_agents(nodes, now)
    }

    /// Counts a pod that was promised a node, until it ends, unless the snapshot of the last
    /// [`State::sync`] shows it.
    pub(crate) fn assume(&mut self, pod: InFlightPod, now: Instant) {
        let last = Arc::clone(&self.last_snapshot);
        let nodes = self.assumed.add(&last, pod);
        self.sync_inventory(&last, now, &nodes);
    }

    /// Answers a question while the question's pods count on their nodes.
    pub(crate) fn supposing<T>(
        &mut self,
        pods: Vec<InFlightPod>,
        now: Instant,
        answer: impl FnOnce(&mut Self) -> T,
    ) -> T {
        if pods.is_empty() {
            return answer(self);
        }
        let last = Arc::clone(&self.last_snapshot);
        let supposed = self.assumed.suppose(&last, pods);
        let nodes: Vec<Arc<str>> = supposed.nodes().cloned().collect();
        self.sync_inventory(&last, now, &nodes);
        let answered = answer(self);
        self.assumed.restore(supposed);
        self.sync_inventory(&last, now, &nodes);
        answered
    }

    pub(crate) fn sync_node(&mut self, now: Instant, node: &str) {
        let last = Arc::clone(&self.last_snapshot);
        self.sync_inventory(&last, now, &[node.into()]);
    }

    fn sync_inventory(&mut self, snapshot: &Arc<Snapshot>, now: Instant, touched: &[Arc<str>]) {
        let (reservations, assumed) = (&self.reservations, &self.assumed);
        let devices = &self.devices.pools;
        self.inventory.sync(Arc::clone(snapshot), touched, |node| {
            let held = held_on(reservations, assumed, now, node, "");
            held.with_claims(devices, snapshot, node)
        });
    }
}

fn settle(
    reservations: &mut Reservations<PodReservation>,
    now: Instant,
    pod: &Pod,
) -> BTreeSet<String> {
    let node = pod.node.as_deref().filter(|_| !pod.finished);
    reservations.observe_pod(now, &pod.uid, node)
}

/// Returns the pods on a node that the watch does not show there, without the reservations of the
/// pod with the UID `except`.
fn held_on(
    reservations: &Reservations<PodReservation>,
    assumed: &Assumed,
    now: Instant,
    node: &str,
    except: &str,
) -> Held {
    let grants = reservations.grants_on_node(now, node);
    let others = grants.filter(|(key, _)| key.uid != except || except.is_empty());
    Held {
        reserved: others.map(|(_, grant)| grant.clone()).collect(),
        assumed: assumed.on(node, reservations, now),
        claimed: None,
    }
}

/// The cards that the pod of a request already holds, and may use again.
pub(crate) struct PodHoldings {
    pod: Option<Arc<Pod>>,
    uid: String,
    nodes: Vec<String>,
}

impl PodHoldings {
    /// Finds the nodes on which the pod holds cards. `pod` is the pod of that name in the snapshot.
    pub(crate) fn new(state: &State, uid: &str, pod: Option<&Arc<Pod>>, now: Instant) -> Self {
        let pod = pod.filter(|p| p.node.is_some() && (uid.is_empty() || *p.uid == *uid));
        let shown = pod.and_then(|p| p.node.as_deref());
        let assumed = state.assumed.node_of(uid).map(|node| &**node);
        let reserved = state.reservations.nodes_of_pod(now, uid);
        let nodes = reserved.chain(assumed).chain(shown);
        Self {
            pod: pod.cloned(),
            uid: uid.to_owned(),
            nodes: nodes.map(str::to_owned).collect(),
        }
    }

    /// Returns the node as if the pod did not hold cards there. `None`: the pod holds nothing
    /// there, or the node is unknown.
    pub(crate) fn node_without_pod(
        &self,
        state: &State,
        snapshot: &Snapshot,
        name: &str,
        now: Instant,
    ) -> Option<NodeEntry> {
        if !self.nodes.iter().any(|node| node == name) {
            return None;
        }
        let node = snapshot.node(name)?;
        let held = held_on(&state.reservations, &state.assumed, now, name, &self.uid);
        let held = held.with_claims(&state.devices.pools, snapshot, name);
        let same = |p: &Pod| {
            let own = self.pod.as_ref();
            let is_named = own.is_some_and(|o| o.name == p.name && o.namespace == p.namespace);
            is_named || (*p.uid == *self.uid && !self.uid.is_empty())
        };
        let pods = snapshot.pods_on(name).iter().chain(&held.assumed);
        let pods = pods.map(|p| &**p).filter(|p| !same(p));
        let known = state.inventory.nodes.get(name)?;
        Some(NodeEntry {
            inventory: inventory::read(node, pods, &held.reserved, held.claimed.as_ref()),
            slots: known.slots.clone(),
            position: known.position,
        })
    }
}
