//! The cards that the pod of a request already holds, and may use again.

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
        let reserved = state.reservations.nodes_of_pod(now, uid);
        let assumed = state.assumed.node_of(uid).map(|node| &**node);
        Self {
            pod: None,
            uid: uid.to_owned(),
            nodes: reserved.chain(assumed).map(str::to_owned).collect(),
        }
    }

    pub(crate) fn is_on(&self, node: &str) -> bool {
        self.nodes.iter().any(|n| n == node)
    }

    /// Returns the node, and the free capacity of its pools, as if the pod did not hold cards
    /// there. `None`: the pod holds nothing there, or the node is unknown.
    pub(crate) fn node_without_pod(
        &self,
        state: &mut State,
        snapshot: &Snapshot,
        name: &str,
        now: Instant,
    ) -> Option<(NodeEntry, Vec<NodeCapacity>)> {
        if !self.is_on(name) {
            return None;
        }
        let node = snapshot.node(name)?;
        let held = grant::reserved_on(&state.reservations, now, name, &self.uid);
        let same = |p: &Pod| {
            let own = self.pod.as_ref();
            let is_named = own.is_some_and(|o| o.name == p.name && o.namespace == p.namespace);
            is_named || (*p.uid == *self.uid && !self.uid.is_empty())
        };
        let assumed = state.assumed.on(name, &state.reservations, now);
        let pods = snapshot.pods_on(name).iter().chain(&assumed);
        let pods = pods.map(|p| &**p).filter(|p| !same(p));
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
