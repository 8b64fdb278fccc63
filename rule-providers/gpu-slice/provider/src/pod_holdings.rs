//! The cards that the pod itself holds, and may use again.

use std::{sync::Arc, time::Instant};

use tautline_core::{Snapshot, model::Pod};
use tautline_gpu_placement::{NodeCapacity, inventory};
use tautline_sdk::CostRequest;

use crate::{
    cluster_inventory::{AnswerParts, NodeEntry},
    grant,
    state::State,
};

pub(crate) struct PodHoldings {
    pod: Option<Arc<Pod>>,
    uid: String,
    nodes: Vec<String>,
}

impl PodHoldings {
    pub(crate) fn of_pod(
        state: &State,
        snapshot: &Snapshot,
        cost_request: &CostRequest,
        uid: &str,
        now: Instant,
    ) -> Self {
        let pod = snapshot.pod(&cost_request.source.namespace, &cost_request.source.name);
        let pod = pod.filter(|p| p.node.is_some() && (uid.is_empty() || *p.uid == *uid));
        let mut holdings = Self::reserved(state, uid, now);
        holdings
            .nodes
            .extend(pod.and_then(|p| p.node.as_deref()).map(str::to_owned));
        holdings.pod = pod.cloned();
        holdings
    }

    pub(crate) fn reserved(state: &State, uid: &str, now: Instant) -> Self {
        let nodes = state.reservations.nodes_of_pod(now, uid);
        Self {
            pod: None,
            uid: uid.to_owned(),
            nodes: nodes.map(str::to_owned).collect(),
        }
    }

    pub(crate) fn is_on(&self, node: &str) -> bool {
        self.nodes.iter().any(|n| n == node)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// `None`: the pod holds nothing on the node.
    pub(crate) fn node_without_pod(
        &self,
        state: &mut State,
        snapshot: &Snapshot,
        name: &str,
        now: Instant,
    ) -> Option<(NodeEntry, Vec<NodeCapacity>)> {
        self.is_on(name)
            .then(|| self.node_with(state, snapshot, name, &[], now))?
    }

    /// The node without what the pod holds there, and with `others` that the watch does not show
    /// there. `None`: the node is unknown.
    pub(crate) fn node_with(
        &self,
        state: &mut State,
        snapshot: &Snapshot,
        name: &str,
        others: &[Pod],
        now: Instant,
    ) -> Option<(NodeEntry, Vec<NodeCapacity>)> {
        let node = snapshot.node(name)?;
        let held = grant::reserved_on(&state.reservations, now, name, &self.uid);
        let same = |p: &Pod| {
            let own = self.pod.as_ref();
            own.is_some_and(|own| own.name == p.name && own.namespace == p.namespace)
        };
        let shown = snapshot.pods_on(name).iter().map(|p| &**p);
        let pods = shown.chain(others).filter(|p| !same(p));
        let inventory = inventory::read(&state.inventory.names, node, pods, &held);
        let AnswerParts { nodes, costs, .. } = state.inventory.parts();
        let known = nodes.get(name)?;
        let pools = inventory.pools.iter();
        let capacities = pools
            .map(|pool| inventory.capacity(pool, costs.kind_index(&pool.kind)))
            .collect();
        let entry = NodeEntry {
            slots: known.slots.clone(),
            position: known.position,
            inventory,
        };
        Some((entry, capacities))
    }
}
