//! The pods that were promised a node, and that the watch may not show there yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_core::{Snapshot, model::Pod, quantity};
use tautline_gpu_placement::inventory::PodReservation;
use tautline_sdk::{InFlightPod, reservations::Reservations};

/// The time for which the in-flight pods of a cost request count; a later request names them again.
pub(crate) const QUESTION_POD_LIFETIME: Duration = Duration::from_secs(2);

/// The assumed pods by UID, as the watch will show them.
#[derive(Debug, Default)]
pub(crate) struct Assumed(BTreeMap<Box<str>, AssumedPod>);

#[derive(Debug)]
struct AssumedPod {
    pod: Arc<Pod>,
    node: Arc<str>,
    /// The time until which the pod counts; `None`: until it ends.
    until: Option<Instant>,
}

impl Assumed {
    /// Adds a pod unless the watch shows it; returns the nodes that change.
    pub(crate) fn add(
        &mut self,
        snapshot: &Snapshot,
        sent: InFlightPod,
        until: Option<Instant>,
    ) -> Vec<Arc<str>> {
        let shown = snapshot.pod(&sent.pod.namespace, &sent.pod.name);
        let uid = sent.workload.uid.as_str();
        if shown.is_some_and(|p| *p.uid == *uid && (p.node.is_some() || p.finished)) {
            return Vec::new();
        }
        let node: Arc<str> = sent.node.as_str().into();
        if let Some(known) = self.0.get_mut(uid).filter(|known| known.node == node) {
            // A pod that counts until it ends still does so after a cost request names it.
            known.until = known.until.zip(until).map(|(a, b)| a.max(b));
            return Vec::new();
        }
        let (uid, pod) = (uid.into(), Arc::new(pod(sent)));
        let new = AssumedPod {
            pod,
            node: Arc::clone(&node),
            until,
        };
        let before = self.0.insert(uid, new).map(|before| before.node);
        before.into_iter().chain([node]).collect()
    }

    /// Removes a pod; returns its node.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<str>> {
        self.0.remove(uid).map(|pod| pod.node)
    }

    /// Removes the pods whose time is over; returns their nodes.
    pub(crate) fn expire(&mut self, now: Instant) -> BTreeSet<Arc<str>> {
        let mut nodes = BTreeSet::new();
        self.0.retain(|_, pod| {
            let is_over = pod.until.is_some_and(|until| until <= now);
            if is_over {
                nodes.insert(Arc::clone(&pod.node));
            }
            !is_over
        });
        nodes
    }

    /// The node of a pod.
    pub(crate) fn node_of(&self, uid: &str) -> Option<&Arc<str>> {
        self.0.get(uid).map(|pod| &pod.node)
    }

    /// Returns the assumed pods on a node, except pods whose reservation there counts.
    pub(crate) fn on(
        &self,
        node: &str,
        reservations: &Reservations<PodReservation>,
        now: Instant,
    ) -> Vec<Arc<Pod>> {
        let here = self.0.iter().filter(|(_, pod)| *pod.node == *node);
        let unreserved = here.filter(|(uid, _)| {
            let mut reserved = reservations.nodes_of_pod(now, uid);
            !reserved.any(|reserved| *reserved == *node)
        });
        unreserved.map(|(_, pod)| Arc::clone(&pod.pod)).collect()
    }
}

/// Returns the pod as the watch will show it.
fn pod(sent: InFlightPod) -> Pod {
    let requests = sent.workload.requests.iter();
    Pod {
        namespace: sent.pod.namespace.as_str().into(),
        name: sent.pod.name.as_str().into(),
        uid: sent.workload.uid.as_str().into(),
        annotations: sent.workload.annotations.into_iter().collect(),
        node: Some(sent.node.as_str().into()),
        requests: requests
            .filter_map(|(name, text)| {
                let milli = quantity::parse_milli(text).ok()?;
                Some((name.as_str(), milli))
            })
            .collect(),
        ..Pod::default()
    }
}
