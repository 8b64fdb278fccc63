//! Pods that kube-scheduler is about to bind, and that the watch may not show yet.

use std::{collections::BTreeMap, time::Instant};

use tautline_core::{Snapshot, model::Pod, quantity};
use tautline_sdk::InFlightPod;

use crate::state::State;

/// The pods in flight by node, and those that count already.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) by_node: BTreeMap<String, Vec<Pod>>,
    /// UIDs.
    pub(crate) counted: Vec<String>,
}

impl InFlight {
    pub(crate) fn new(
        state: &State,
        snapshot: &Snapshot,
        pods: Vec<InFlightPod>,
        now: Instant,
    ) -> Self {
        let mut all = Self::default();
        for sent in pods {
            let uid = &sent.workload.uid;
            let shown = snapshot.pod(&sent.pod.namespace, &sent.pod.name);
            if shown.is_some_and(|p| *p.uid == **uid && (p.node.is_some() || p.finished)) {
                all.counted.push(sent.workload.uid);
                continue;
            }
            // Its reservation counts. It may end without a bind, so the pod is not reported.
            let mut reserved = state.reservations.nodes_of_pod(now, uid);
            if reserved.any(|node| *node == *sent.node) {
                continue;
            }
            let node = sent.node.clone();
            all.by_node.entry(node).or_default().push(pod(sent));
        }
        all
    }
}

/// As the watch will show it.
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
