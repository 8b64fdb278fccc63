//! The pods that were promised a node, and that the watch may not show there yet.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use tautline_core::{Snapshot, model::Pod, quantity};
use tautline_gpu_placement::inventory::PodReservation;
use tautline_sdk::{InFlightPod, reservations::Reservations};

/// The assumed pods by UID, as the watch will show them.
#[derive(Debug, Default)]
pub(crate) struct Assumed(BTreeMap<Box<str>, AssumedPod>);

#[derive(Debug)]
struct AssumedPod {
    pod: Arc<Pod>,
    node: Arc<str>,
}

/// The pods that count for one question.
#[derive(Debug)]
pub(crate) struct Supposed(Vec<Replaced>);

impl Supposed {
    /// The nodes that the pods change; a node may occur twice.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().flat_map(Replaced::nodes)
    }
}

/// An assumed pod on its new node, and what it was before.
#[derive(Debug)]
struct Replaced {
    uid: Box<str>,
    node: Arc<str>,
    before: Option<AssumedPod>,
}

impl Replaced {
    fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        let before = self.before.iter().map(|before| &before.node);
        before.chain([&self.node])
    }
}

impl Assumed {
    /// Adds a pod unless the watch shows it; returns the nodes that change.
    pub(crate) fn add(&mut self, snapshot: &Snapshot, sent: InFlightPod) -> Vec<Arc<str>> {
        let replaced = self.replace(snapshot, sent);
        replaced.map_or_else(Vec::new, |r| r.nodes().cloned().collect())
    }

    /// Adds the pods of one question; [`Self::restore`] removes them after the answer.
    pub(crate) fn suppose(&mut self, snapshot: &Snapshot, sent: Vec<InFlightPod>) -> Supposed {
        let sent = sent.into_iter();
        Supposed(sent.filter_map(|pod| self.replace(snapshot, pod)).collect())
    }

    /// Ends what [`Self::suppose`] began.
    pub(crate) fn restore(&mut self, supposed: Supposed) {
        for Replaced { uid, before, .. } in supposed.0.into_iter().rev() {
            match before {
                Some(before) => _ = self.0.insert(uid, before),
                None => _ = self.0.remove(&uid),
            }
        }
    }

    fn replace(&mut self, snapshot: &Snapshot, sent: InFlightPod) -> Option<Replaced> {
        let shown = snapshot.pod(&sent.pod.namespace, &sent.pod.name);
        let uid = sent.workload.uid.as_str();
        if shown.is_some_and(|p| *p.uid == *uid && (p.node.is_some() || p.finished)) {
            return None;
        }
        let node: Arc<str> = sent.node.as_str().into();
        if self.node_of(uid).is_some_and(|known| *known == node) {
            return None;
        }
        let (uid, pod): (Box<str>, _) = (uid.into(), Arc::new(pod(sent)));
        let new = AssumedPod {
            pod,
            node: Arc::clone(&node),
        };
        let before = self.0.insert(uid.clone(), new);
        Some(Replaced { uid, node, before })
    }

    /// Removes a pod; returns its node.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<str>> {
        self.0.remove(uid).map(|pod| pod.node)
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
