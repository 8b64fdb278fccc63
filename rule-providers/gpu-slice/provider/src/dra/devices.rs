//! The devices of DRA drivers. The scheduler picks the devices, and the costs rank the nodes.

use std::{collections::HashMap, sync::Arc};

use tautline_core::{
    Snapshot,
    model::{AffinityTerm, Node, Pod},
};
use tautline_gpu_placement::{
    CARD_MILLI,
    dra::{
        Claim, Class, DeviceCard, DeviceStore, NodeDevices, PendingRequest, Slice, pending_requests,
    },
    shape::is_model,
};
use tautline_sdk::{CostRequest, Evaluation};

use crate::{
    cluster_inventory::ClusterInventory,
    fit::{Fit, Unfit},
};

/// The cost of a node that may have the claimed devices, above the costs of all nodes that have
/// them.
const UNCERTAIN_DEVICES_COST: i64 = 1 << 33;

/// The claims of a pod.
#[derive(Debug, Default)]
pub(crate) struct PodClaims {
    /// The requests of the claims that are not allocated yet.
    pub(crate) pending: Vec<PendingRequest>,
    /// The nodes of each claim that is allocated to some nodes only: one of its terms must match.
    nodes: Vec<Vec<AffinityTerm>>,
}

impl PodClaims {
    /// Returns whether the node has the devices of all claims that are allocated.
    pub(crate) fn reach(&self, node: &Node) -> bool {
        let mut claims = self.nodes.iter();
        claims.all(|terms| terms.iter().any(|term| term.matches(node)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Devices {
    pools: DeviceStore,
    nodes: HashMap<Arc<str>, NodeDevices>,
    /// The numbers of claims with and without devices; `None`: the cluster has no API for claims,
    /// or they are not known yet.
    claims: Option<(usize, usize)>,
}

impl Devices {
    pub(crate) fn set_slices(&mut self, list: Vec<Slice>) {
        self.pools.reset_slices(list);
        self.nodes.clear();
    }

    pub(crate) fn set_claims(&mut self, list: Vec<Claim>) {
        let allocated = list.iter().filter(|c| c.allocated.is_some()).count();
        self.claims = Some((allocated, list.len() - allocated));
        self.pools.reset_claims(list);
        self.nodes.clear();
    }

    /// Allocates the pod's claims on the node, as kube-scheduler likely does.
    pub(crate) fn allocate(&mut self, snapshot: &Snapshot, pod: &Pod, node: &str) {
        let Some(node) = snapshot.node(node) else {
            return;
        };
        let mut devices = free_devices(&self.pools, node, snapshot.pods_on(&node.name));
        let claims = self.pools.claims_of(&pod.uid, &pod.namespace, pod.claims());
        let open = claims.into_iter().filter(|c| c.allocated.is_none());
        let allocated = open.map(|claim| {
            let pending = pending_requests(&self.pools, [claim]);
            let allocated = devices.allocate(&pending)?;
            Some(Claim {
                nodes: devices.nodes_of(&allocated, node),
                allocated: Some(allocated),
                ..claim.clone()
            })
        });
        let allocated: Option<Vec<Claim>> = allocated.collect();
        for claim in allocated.into_iter().flatten() {
            self.pools.put_claim(claim);
            self.nodes.clear();
        }
    }

    pub(crate) fn set_classes(&mut self, list: Vec<Class>) {
        self.pools.reset_classes(list);
        self.nodes.clear();
    }

    pub(crate) fn claim_counts(&self) -> (usize, usize) {
        self.claims.unwrap_or_default()
    }

    pub(crate) fn forget<'a>(&mut self, nodes: impl Iterator<Item = &'a str>) {
        if !self.nodes.is_empty() {
            nodes.for_each(|name| _ = self.nodes.remove(name));
        }
    }

    /// Returns the claims of the pod; `None`: no claim of the pod is known.
    pub(crate) fn requested_by(&self, request: &CostRequest) -> Option<PodClaims> {
        let workload = request.workload.as_ref()?;
        let named = workload.resource_claims.iter().map(String::as_str);
        let namespace = &request.source.namespace;
        let claims = self.pools.claims_of(&workload.uid, namespace, named);
        (!claims.is_empty()).then(|| PodClaims {
            nodes: claims.iter().filter_map(|c| c.nodes.clone()).collect(),
            pending: pending_requests(&self.pools, claims),
        })
    }

    /// Returns whether a class serves the resource on nodes that do not have it.
    pub(crate) fn serves(&self, resource: &str) -> bool {
        self.pools.class_of_resource(resource).is_some()
    }

    /// Returns the request for units of a resource; `None`: no class serves it.
    pub(super) fn resource_request(&self, resource: &str, units: u32) -> Option<PendingRequest> {
        PendingRequest::of_resource(&self.pools, resource, units)
    }

    pub(crate) fn knows_claims_of(&self, request: &CostRequest) -> bool {
        let namespace = &request.source.namespace;
        let mut named = request.workload.iter().flat_map(|w| &w.resource_claims);
        self.claims.is_none() || named.all(|name| self.pools.claim(namespace, name).is_some())
    }

    pub(crate) fn fit(
        &mut self,
        inventory: &ClusterInventory,
        snapshot: &Snapshot,
        name: &str,
        pending: &[PendingRequest],
        models: &[Arc<str>],
    ) -> Fit {
        let (Some(node), Some(entry)) = (snapshot.node(name), inventory.nodes.get(name)) else {
            return Fit::Unusable(Unfit::unknown_node());
        };
        let pools = &self.pools;
        let devices = self.nodes.entry(Arc::clone(&node.name));
        let before = devices.or_insert_with(|| free_devices(pools, node, snapshot.pods_on(name)));
        if let Some(unfit) = wrong_model(before, models) {
            return Fit::Unusable(unfit);
        }
        let mut after = before.clone();
        if after.take_likely(pending).is_none() {
            // Only a request without alternatives that finds too few free devices is certain to
            // fail.
            let lacks = |p: &&PendingRequest| p.alternatives == 1 && before.lacks(p);
            let Some(part) = pending.iter().find(lacks) else {
                let detail = "the scheduler may find devices there".into();
                return Fit::usable(UNCERTAIN_DEVICES_COST, 0, entry.position, detail, None);
            };
            let matching = before.devices().iter().filter(|d| part.matches(d));
            return Fit::Unusable(if matching.count() >= part.count() as usize {
                Unfit::busy("GpuBusy", "too few of the devices that it claims are free")
            } else {
                Unfit::new(0, "NoSuchGpu", "it has too few devices such as it claims")
            });
        }
        let (policy_cost, detail) = cost(before, &after);
        Fit::usable(policy_cost, 0, entry.position, detail, None)
    }

    pub(crate) fn evaluate(&self, node: &str, pod: &Pod) -> Option<Evaluation> {
        let claims = self.pools.claims_of(&pod.uid, &pod.namespace, []);
        let held = claims.iter().flat_map(|c| c.allocated.iter().flatten());
        let mut devices = Vec::new();
        for allocation in held {
            let device = &*allocation.device.device;
            if let Some(fault) = self.pools.fault(allocation) {
                let reason = format!("node {node}: {device}: {fault}");
                return Some(Evaluation::violation(reason));
            }
            devices.push(device);
        }
        let text = || format!("node {node}: it has {}", devices.join(", "));
        (!devices.is_empty()).then(|| Evaluation::compliant(text()))
    }
}

/// Returns the node's free devices. Devices of claims are not free. Devices of pods whose extended
/// resources have no claim yet are not free either: a plan places many pods before kube-scheduler
/// writes any claim.
fn free_devices(pools: &DeviceStore, node: &Node, pods: &[Arc<Pod>]) -> NodeDevices {
    let mut devices = pools.node_devices(node);
    for pod in pods {
        let request = |(resource, milli): (&str, i64)| {
            let units = u32::try_from(milli / 1000).ok()?;
            let lacking = units > 0 && node.allocatable.milli(resource) == 0;
            lacking.then(|| PendingRequest::of_resource(pools, resource, units))?
        };
        let pending: Vec<_> = pod.requests.iter().filter_map(request).collect();
        if !pending.is_empty() && pools.claims_of(&pod.uid, &pod.namespace, []).is_empty() {
            devices.take_likely(&pending);
        }
    }
    devices
}

/// Returns the reason if no card is of a wanted model. `None`: a card is of a wanted or unknown
/// model, or the node has no cards.
fn wrong_model(node: &NodeDevices, models: &[Arc<str>]) -> Option<Unfit> {
    if models.is_empty() {
        return None;
    }
    let cards = node.cards();
    let wanted = |card: &DeviceCard| {
        let product = card.product.as_deref();
        product.is_none_or(|product| models.iter().any(|m| is_model(product, m)))
    };
    let first = cards.first()?.product.as_deref().unwrap_or_default();
    (!cards.iter().any(wanted)).then(|| Unfit::wrong_model(first, models))
}

/// Returns the loss on the node's cards as a cost, and a text for people. With MIG, the loss is the
/// instances that would no longer fit. Without MIG, it is the whole cards that would be broken up;
/// with equal losses the fuller node is cheaper. No placement policy applies, because the scheduler
/// picks the device.
fn cost(before: &NodeDevices, after: &NodeDevices) -> (i64, String) {
    let (had, has) = (before.cards(), after.cards());
    let whole = |cards: &[DeviceCard]| cards.iter().filter(|c| c.free_milli == CARD_MILLI).count();
    let (was, is) = (whole(&had), whole(&has));
    let detail = format!("{is} of {} cards would be left whole", has.len());
    let capacity = |node: &NodeDevices, cards: &[DeviceCard]| -> Option<usize> {
        let values = cards.iter().filter_map(|card| node.mig_value(card));
        values.reduce(|sum, value| sum + value)
    };
    if let (Some(had), Some(has)) = (capacity(before, &had), capacity(after, &has)) {
        let lost = i64::try_from(had.saturating_sub(has)).unwrap_or(i64::MAX);
        return (lost, detail);
    }
    let left: i64 = has.iter().map(|c| i64::from(c.free_milli)).sum();
    let broken = was.saturating_sub(is) as i64;
    ((broken << 20) + left.min((1 << 20) - 1), detail)
}

#[cfg(test)]
#[path = "devices_tests.rs"]
mod tests;
