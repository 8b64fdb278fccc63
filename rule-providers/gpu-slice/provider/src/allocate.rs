use std::{
    collections::BTreeMap,
    time::{Instant, SystemTime},
};

use tautline_gpu_placement::{
    Inventory,
    device_annotation::{self, CardShare},
    inventory::Card,
    names::DEVICES_ANNOTATION,
};
use tautline_sdk::{
    Allocator, AllocatorError, ReservationRef, ReservationRequest, Reserved, reservations::Key,
};

use crate::{
    cluster_inventory::{AnswerParts, NodeEntry},
    cost::{self, PreparedRequest},
    dra::ExtendedResources,
    fit::{Fit, Location},
    gpu_request::GpuRequest,
    grant::Grant,
    pod_holdings::PodHoldings,
    provider::GpuSlice,
    state::State,
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
        let gpu_request = GpuRequest::new(
            &state.inventory.names,
            &request.rule,
            request.details.as_ref(),
        )
        .map_err(|e| AllocatorError::BadRule(e.to_string()))?;
        let snapshot = state.sync(&self.store, now);
        // kube-scheduler has allocated the devices that drivers serve.
        let by_driver = request.details.as_ref().and_then(|workload| {
            let (devices, names) = (&state.devices, &state.inventory.names);
            let extended = ExtendedResources::new(devices, names, &gpu_request, workload, None)?;
            Some(extended.are_for(snapshot.node(&request.node)?))
        });
        let by_driver = by_driver.unwrap_or_default();
        // A grant that the pod has by another rule must not be an obstacle.
        let holdings = PodHoldings::reserved(&state, &request.uid, now);
        let without_pod = holdings.node_without_pod(&mut state, &snapshot, &request.node, now);
        let pod = format!("{}/{}", request.workload.namespace, request.workload.name);
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
            let AnswerParts {
                names,
                nodes,
                costs,
                ..
            } = inventory.parts();
            let exhausted =
                |why: String| AllocatorError::Exhausted(format!("node {}: {why}", request.node));
            let Some(node) = nodes.get(request.node.as_str()) else {
                return Err(exhausted("not in the provider's view yet".into()));
            };
            let (node, capacities) = match &without_pod {
                Some((node, capacities)) => (node, Some(&capacities[..])),
                None => (node, None),
            };
            let mut prepared = PreparedRequest::new(&gpu_request);
            let location = match cost::fit(names, costs, node, &mut prepared, capacities) {
                _ if by_driver => None,
                Fit::Usable { location, .. } => location,
                Fit::Unusable(u) => return Err(exhausted(format!("{}: {}", u.code, u.detail))),
            };
            let parts = location.map_or_else(|| Ok(Vec::new()), |l| take_cards(node, &l));
            Ok(Grant {
                pod: pod.as_str().into(),
                cpu_milli: gpu_request.cpu_milli,
                memory_bytes: gpu_request.memory_bytes,
                cards: parts.map_err(exhausted)?,
            })
        })?;
        state.sync_node(now, &request.node);
        let inventory = state.inventory.node(&request.node).map(|n| &n.inventory);
        let annotations = self.annotations(&reservation.grant.cards, inventory);
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
    /// no cards. The node's `inventory` is needed for the indexes.
    fn annotations(
        &self,
        parts: &[CardShare],
        inventory: Option<&Inventory>,
    ) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        if !parts.is_empty() {
            all.insert(
                DEVICES_ANNOTATION.to_owned(),
                device_annotation::format(parts),
            );
            if let Some(name) = &self.index_annotation {
                let index = |part: &CardShare| {
                    let known = inventory.and_then(|i| i.card(&part.card));
                    CardShare {
                        card: known.map_or_else(|| part.card.clone(), |(_, c)| c.name.clone()),
                        milli: part.milli,
                        start: part.start,
                    }
                };
                let indexes: Vec<CardShare> = parts.iter().map(index).collect();
                all.insert(name.clone(), device_annotation::format_indexes(&indexes));
            }
        }
        all
    }
}

/// Returns the parts of cards to reserve. They are empty if a device plugin or the scheduler picks
/// the device.
fn take_cards(node: &NodeEntry, location: &Location) -> Result<Vec<CardShare>, String> {
    let pool = node.inventory.pools.get(location.pool);
    let Some(pool) = pool.filter(|p| p.kind.mode.is_recorded()) else {
        return Ok(Vec::new());
    };
    let mut capacity = node.inventory.capacity(pool, 0);
    let taken = capacity.take(&location.shape, location.card.map(usize::from));
    let taken = taken.map_err(|short| format!("too little {short}"))?;
    let parts = taken.parts.into_iter();
    let parts = parts.filter_map(|(card, milli)| Some((pool.cards.get(usize::from(card))?, milli)));
    let share = |(card, milli): (&Card, u16)| {
        let start = card.place(milli);
        if card.mig.is_some() && start.is_none() {
            return Err(format!("card {} has no place for {milli}m", card.name));
        }
        Ok(CardShare {
            card: card.record_name().into(),
            milli,
            start,
        })
    };
    parts.map(share).collect()
}

#[cfg(test)]
#[path = "allocate_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "agent_nodes_tests.rs"]
mod agent_nodes;
