//! Implements the allocator of `gpu-slice`: reserves cards on a node for a pod before it is bound,
//! and confirms or releases the reservation.

use std::{
    collections::BTreeMap,
    time::{Instant, SystemTime},
};

use tautline_core::model::key;
use tautline_gpu_placement::{
    device_annotation::{self, CardShare},
    inventory::PodReservation,
    names::DEVICES_ANNOTATION,
};
use tautline_sdk::{
    Allocator, AllocatorError, ReservationRef, ReservationRequest, Reserved, reservations::Key,
};

use crate::{
    cluster_inventory::{ClusterInventory, NodeEntry},
    cost::{self, PreparedRequest},
    dra::ExtendedResources,
    fit::{Fit, Location},
    gpu_request::GpuRequest,
    provider::GpuSlice,
    state::{PodHoldings, State},
};

impl Allocator for GpuSlice {
    async fn reserve(&self, request: ReservationRequest) -> Result<Reserved, AllocatorError> {
        self.reserve_at(Instant::now(), request)
    }

    async fn confirm(&self, request: ReservationRef) -> Result<(), AllocatorError> {
        self.confirm_at(Instant::now(), &request.id)
    }

    async fn release(&self, request: ReservationRef) -> Result<(), AllocatorError> {
        self.release_at(Instant::now(), &request.id);
        Ok(())
    }
}

impl GpuSlice {
    pub(crate) fn reserve_at(
        &self,
        now: Instant,
        request: ReservationRequest,
    ) -> Result<Reserved, AllocatorError> {
        let mut state = self.state.lock();
        let details = request.details.as_ref();
        let gpu_request = GpuRequest::new(&request.rule, details)
            .map_err(|e| AllocatorError::BadRule(e.to_string()))?;
        let snapshot = state.sync(&self.store, now);
        // kube-scheduler has allocated the devices that drivers serve.
        let extended = details
            .and_then(|workload| ExtendedResources::new(&state.devices, &gpu_request, workload));
        let node = snapshot.node(&request.node);
        let by_driver = extended
            .zip(node)
            .is_some_and(|(extended, node)| extended.are_for(node));
        // A grant that the pod has by another rule must not be an obstacle.
        let holdings = PodHoldings::new(&state, &request.uid, None, now);
        let without_pod = holdings.node_without_pod(&state, &snapshot, &request.node, now);
        let pod = key(&request.workload.namespace, &request.workload.name);
        let key = Key {
            uid: request.uid,
            node: request.node.clone(),
            rule: request.rule,
        };
        let State {
            inventory,
            reservations,
            ..
        } = &mut *state;
        let reservation = reservations.reserve(now, key, request.hold, |_| {
            let ClusterInventory { nodes, costs, .. } = inventory;
            let exhausted =
                |why: String| AllocatorError::Exhausted(format!("node {}: {why}", request.node));
            let Some(node) = nodes.get(request.node.as_str()) else {
                return Err(exhausted("not in the provider's view yet".into()));
            };
            let (node, is_cached) = (without_pod.as_ref().unwrap_or(node), without_pod.is_none());
            let mut prepared = PreparedRequest::new(&gpu_request);
            let location = match cost::fit(costs, node, is_cached, &mut prepared) {
                _ if by_driver => None,
                Fit::Usable { location, .. } => location,
                Fit::Unusable(u) => return Err(exhausted(format!("{}: {}", u.code, u.detail))),
            };
            let parts = location.map(|location| take_cards(node, &location, exhausted));
            Ok(PodReservation {
                pod: pod.into(),
                cpu_milli: gpu_request.cpu_milli,
                memory_bytes: gpu_request.memory_bytes,
                parts: parts.transpose()?.unwrap_or_default(),
            })
        })?;
        state.sync_node(now, &request.node);
        let node = state.inventory.nodes.get(request.node.as_str());
        let annotations = self.annotations(&reservation.grant.parts, node);
        let expires = reservation
            .until
            .map(|until| SystemTime::now() + until.saturating_duration_since(now));
        Ok(Reserved {
            id: reservation.id,
            annotations,
            expires,
        })
    }

    pub(crate) fn confirm_at(&self, now: Instant, id: &str) -> Result<(), AllocatorError> {
        let mut state = self.state.lock();
        let confirmed = state.reservations.confirm(now, id);
        confirmed.map_err(|e| AllocatorError::Expired(e.to_string()))
    }

    pub(crate) fn release_at(&self, now: Instant, id: &str) {
        let mut state = self.state.lock();
        if let Some(node) = state.reservations.release(now, id) {
            state.sync_node(now, &node);
        }
    }

    /// Returns the annotations that name the pod's cards, or no annotations if this provider gave
    /// no cards. The `node` is needed for the indexes.
    fn annotations(
        &self,
        parts: &[CardShare],
        node: Option<&NodeEntry>,
    ) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        if parts.is_empty() {
            return all;
        }
        let text = device_annotation::format(parts);
        all.insert(DEVICES_ANNOTATION.to_owned(), text);
        if let Some(name) = &self.index_annotation {
            let mut indexes = parts.to_vec();
            for part in &mut indexes {
                if let Some((_, card)) = node.and_then(|n| n.inventory.card(&part.card)) {
                    part.card = card.name.clone();
                }
            }
            all.insert(name.clone(), device_annotation::format_indexes(&indexes));
        }
        all
    }
}

/// Returns the parts of cards to reserve. They are empty if a device plugin or the scheduler picks
/// the device.
fn take_cards(
    node: &NodeEntry,
    location: &Location,
    exhausted: impl Fn(String) -> AllocatorError,
) -> Result<Vec<CardShare>, AllocatorError> {
    let pool = node.inventory.pools.get(location.pool);
    let Some(pool) = pool.filter(|p| p.kind.mode.is_recorded()) else {
        return Ok(Vec::new());
    };
    let mut capacity = node.inventory.capacity(pool, 0);
    let taken = capacity.take(&location.shape, location.card.map(usize::from));
    let taken = taken.map_err(|short| exhausted(format!("too little {short}")))?;
    let share = |(card, milli): (u16, u16)| {
        let card = pool.cards.get(usize::from(card))?;
        let start = card.place(milli);
        if card.mig.is_some() && start.is_none() {
            let why = format!("card {} has no place for {milli}m", card.name);
            return Some(Err(exhausted(why)));
        }
        Some(Ok(CardShare {
            card: card.record_name().into(),
            milli,
            start,
        }))
    };
    taken.into_iter().filter_map(share).collect()
}

#[cfg(test)]
#[path = "allocate_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "agent_nodes_tests.rs"]
mod agent_nodes;
