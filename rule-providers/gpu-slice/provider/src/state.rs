//! What the provider knows and what it has reserved, changed under one lock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_core::{Snapshot, model::Pod};
use tautline_gpu_placement::{Room, inventory};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{CostRequest, reservations::Reservations};
use tokio::sync::watch;

use crate::{
    allocate::{self, Grant},
    claims::Devices,
    ledger::{Entry, Ledger, Parts},
};

/// A confirmed reservation that the watch has not settled is looked into once it is so
/// old: the pod came and went between two looks, or was bound before. Longer than a dead
/// watch can go unnoticed (295 s of silence).
const UNSEEN: Duration = Duration::from_secs(360);
/// A watch that has begun again has brought what was missed by then. Until then nothing
/// is taken for gone: where the API server was long away, pods that were bound last are
/// not known yet.
const CAUGHT_UP: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) ledger: Ledger,
    pub(crate) book: Reservations<Grant>,
    pub(crate) devices: Devices,
    /// It has been asked to: then what is free changes with each pod that is bound,
    /// and not with the watch alone, and of a pod that goes before it is bound what is
    /// reserved ends.
    pub(crate) reserves: watch::Sender<bool>,
    seen: Arc<Snapshot>,
}

impl State {
    pub(crate) fn new(ledger: Ledger, prefix: &str) -> Self {
        Self {
            ledger,
            book: Reservations::new(prefix),
            devices: Devices::default(),
            reserves: watch::Sender::new(false),
            seen: Arc::default(),
        }
    }

    /// Takes over what the watch brought and what has expired. A pod's record and
    /// its reservation are exchanged under one lock: its cards always count, and
    /// once.
    pub(crate) fn sync(&mut self, feed: &ClusterStore, now: Instant) -> Arc<Snapshot> {
        let snapshot = feed.snapshot();
        let Self {
            ledger,
            book,
            devices,
            seen,
            ..
        } = self;
        let mut touched = book.expire(now);
        for (old, new) in snapshot.changed_pods(seen) {
            if let Some(old) = old
                && new.is_none_or(|new| new.uid != old.uid)
            {
                touched.append(&mut book.observe_pod(now, &old.uid, None));
            }
            if let Some(new) = new {
                if new.finished {
                    touched.append(&mut book.observe_pod(now, &new.uid, None));
                } else if let Some(node) = &new.node {
                    touched.append(&mut book.observe_pod(now, &new.uid, Some(node)));
                }
            }
        }
        let unseen = book.unobserved(now, UNSEEN);
        let watched = feed.pods_watched_since();
        let in_step = watched.is_some_and(|since| now >= since + CAUGHT_UP);
        if in_step && !unseen.is_empty() {
            let of = |p: &Arc<Pod>| unseen.contains(&*p.uid).then(|| Arc::clone(p));
            let there: Vec<Arc<Pod>> = snapshot.pods().filter_map(of).collect();
            for uid in &unseen {
                match there.iter().find(|p| *p.uid == **uid) {
                    // Not bound, as far as is known: that may yet be told.
                    Some(pod) if pod.node.is_none() && !pod.finished => {}
                    Some(pod) if !pod.finished => {
                        touched.append(&mut book.observe_pod(now, uid, pod.node.as_deref()));
                    }
                    _ => touched.append(&mut book.observe_pod(now, uid, None)),
                }
            }
        }
        let touched: Vec<Arc<str>> = touched.iter().map(|n| n.as_str().into()).collect();
        ledger.sync(Arc::clone(&snapshot), &touched, |node| {
            allocate::held(book, now, node, "")
        });
        devices.forget(snapshot.changed_nodes(seen));
        *seen = Arc::clone(&snapshot);
        snapshot
    }

    /// The reservations of a node have changed.
    pub(crate) fn touched(&mut self, now: Instant, node: &str) {
        let Self {
            ledger, book, seen, ..
        } = self;
        ledger.sync(Arc::clone(seen), &[node.into()], |node| {
            allocate::held(book, now, node, "")
        });
    }
}

/// What the asking pod has already: it may use that again.
pub(crate) struct Own {
    pod: Option<Arc<Pod>>,
    uid: String,
    nodes: Vec<String>,
}

impl Own {
    pub(crate) fn of(
        state: &State,
        snapshot: &Snapshot,
        ask: &CostRequest,
        uid: &str,
        now: Instant,
    ) -> Self {
        let pod = snapshot.pod(&ask.source.namespace, &ask.source.name);
        let pod = pod.filter(|p| p.node.is_some() && (uid.is_empty() || *p.uid == *uid));
        let mut nodes: Vec<String> = state
            .book
            .nodes_of_pod(now, uid)
            .map(str::to_owned)
            .collect();
        nodes.extend(pod.and_then(|p| p.node.as_deref()).map(str::to_owned));
        Self {
            pod: pod.cloned(),
            uid: uid.to_owned(),
            nodes,
        }
    }

    /// Whether the pod has something there.
    pub(crate) fn is_on(&self, node: &str) -> bool {
        self.nodes.iter().any(|n| n == node)
    }

    /// Whether it has something on any.
    pub(crate) fn is_anywhere(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// What is reserved for a pod that is about to be bound.
    pub(crate) fn reserved(state: &State, uid: &str, now: Instant) -> Self {
        Self {
            pod: None,
            uid: uid.to_owned(),
            nodes: state
                .book
                .nodes_of_pod(now, uid)
                .map(str::to_owned)
                .collect(),
        }
    }

    /// The node as it would be without the pod; `None` where the pod has nothing.
    pub(crate) fn freed(
        &self,
        state: &mut State,
        snapshot: &Snapshot,
        name: &str,
        now: Instant,
    ) -> Option<(Entry, Vec<Room>)> {
        if !self.is_on(name) {
            return None;
        }
        let node = snapshot.node(name)?;
        let held = allocate::held(&state.book, now, name, &self.uid);
        let same = |p: &Pod| {
            let own = self.pod.as_ref();
            own.is_some_and(|own| own.name == p.name && own.namespace == p.namespace)
        };
        let others = snapshot.pods_on(name).iter().map(|p| &**p);
        let others = others.filter(|p| !same(p));
        let inventory = inventory::read(&state.ledger.names, node, others, &held);
        let Parts { nodes, board, .. } = state.ledger.parts();
        let known = nodes.get(name)?;
        let pools = inventory.pools.iter();
        let rooms = pools
            .map(|pool| inventory.room(pool, board.kind(&pool.kind)))
            .collect();
        let entry = Entry {
            slots: known.slots.clone(),
            position: known.position,
            inventory,
        };
        Some((entry, rooms))
    }
}
