//! The devices of DRA drivers. The scheduler picks the devices, and the costs rank the nodes.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::Arc,
};

use tautline_core::{
    Snapshot,
    model::{AffinityTerm, Node, Pod},
};
use tautline_gpu_placement::{
    CARD_MILLI,
    dra::{
        Claim, Class, DeviceCard, DeviceShortage, DeviceStore, NodeDevices, PendingRequest, Slice,
        pending_requests, requests,
    },
    shape::is_model,
};
use tautline_sdk::{CostRequest, Evaluation, Reference, Workload};

use super::extended;
use crate::{
    cluster_inventory::ClusterInventory,
    fit::{Fit, Unfit},
};

/// The cost of a node that may have the claimed devices, above the costs of all nodes that have
/// them.
const UNCERTAIN_DEVICES_COST: i64 = 1 << 33;

/// The largest number of different requests whose findings are known for a node.
const MAX_FOUND: usize = 8;

/// The claims of a pod.
#[derive(Debug, Default)]
pub(crate) struct PodClaims {
    /// The requests of the claims that are not allocated yet.
    pub(crate) pending: Vec<PendingRequest>,
    /// The requests of the allocated claims that are made for the pod alone: a pod in its place has
    /// new ones.
    pub(crate) own: Vec<PendingRequest>,
    /// The nodes of `own`.
    own_nodes: Vec<Vec<AffinityTerm>>,
    /// The nodes of each other claim that is allocated to some nodes only: one of its terms must
    /// match.
    nodes: Vec<Vec<AffinityTerm>>,
}

impl PodClaims {
    /// Returns whether the node has the devices of the claims that are allocated; without those for
    /// the pod alone, if a pod in its place is planned.
    pub(crate) fn reach(&self, node: &Node, is_replaced: bool) -> bool {
        let own = self.own_nodes.iter().filter(|_| !is_replaced);
        let mut claims = self.nodes.iter().chain(own);
        claims.all(|terms| terms.iter().any(|term| term.matches(node)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Devices {
    pub(crate) pools: DeviceStore,
    nodes: HashMap<Arc<str>, KnownNode>,
    /// True once the claims are known. A cluster may have no API for them.
    knows_claims: bool,
}

/// The devices of a node, and what the last requests for them found.
#[derive(Debug)]
struct KnownNode {
    devices: NodeDevices,
    found: VecDeque<(Vec<PendingRequest>, Found)>,
}

/// The policy's cost and a text for people, or the reason why there are too few devices.
type Found = Result<(i64, String), Unfit>;

impl Devices {
    pub(crate) fn set_slices(&mut self, list: Vec<Slice>) {
        self.pools.reset_slices(list);
        self.nodes.clear();
    }

    pub(crate) fn set_claims(&mut self, list: Vec<Claim>) {
        self.pools.reset_claims(list);
        self.claims_changed();
    }

    /// Changes single claims; `gone` are those that do not exist any more, as `namespace/name`.
    pub(crate) fn change_claims(&mut self, changed: Vec<Claim>, gone: &[String]) {
        gone.iter().for_each(|name| self.pools.remove_claim(name));
        changed.into_iter().for_each(|c| self.pools.put_claim(c));
        self.claims_changed();
    }

    fn claims_changed(&mut self) {
        self.knows_claims = true;
        for pool in mem::take(&mut self.pools.touched) {
            match self.pools.node_of(&pool) {
                Some(node) => _ = self.nodes.remove(node),
                None => self.nodes.clear(),
            }
        }
    }

    /// Allocates the pod's claims on the node, and devices for its extended resources, as
    /// kube-scheduler likely does.
    pub(crate) fn allocate(&mut self, node: &Node, pod: &Reference, workload: &Workload) {
        let named = workload.resource_claims.iter().map(String::as_str);
        let claims = self.pools.claims_of(&workload.uid, &pod.namespace, named);
        // kube-scheduler allocates a pod's claims at once, also the claim of its extended resources.
        let is_own = |c: &&Claim| c.owner.as_deref() == Some(&*workload.uid);
        let is_complete = claims
            .iter()
            .copied()
            .filter(is_own)
            .any(|c| c.allocated.is_some());
        let open = claims.into_iter().filter(|c| c.allocated.is_none());
        let with_requests = |claim: &Claim| {
            let pending = pending_requests(&self.pools, [claim]);
            (claim.clone(), pending)
        };
        let mut open: Vec<(Claim, Vec<PendingRequest>)> = open.map(with_requests).collect();
        let of_resources = extended::pending(self, workload, node);
        if !of_resources.is_empty() && !is_complete {
            let claim = Claim {
                namespace: pod.namespace.as_str().into(),
                name: format!("{}-extended-resources", pod.name).into(),
                owner: Some(workload.uid.as_str().into()),
                ..Claim::default()
            };
            open.push((claim, of_resources));
        }
        let pending: Vec<PendingRequest> = open.iter().flat_map(|(_, p)| p.clone()).collect();
        if pending.is_empty() {
            return;
        }
        let mut devices = self.pools.node_devices(node);
        // The result has an entry for each request.
        let Ok(allocated) = devices.allocate(&pending) else {
            return;
        };
        let mut allocated = allocated.into_iter();
        for (mut claim, pending) in open {
            claim.reserved_for.push(workload.uid.as_str().into());
            let allocated: Vec<_> = allocated.by_ref().take(pending.len()).flatten().collect();
            self.pools.put_claim(Claim {
                nodes: devices.nodes_of(&allocated, node),
                allocated: Some(allocated),
                ..claim
            });
        }
        self.claims_changed();
    }

    pub(crate) fn set_classes(&mut self, list: Vec<Class>) {
        self.pools.reset_classes(list);
        self.nodes.clear();
    }

    /// Returns the numbers of claims with and without devices.
    pub(crate) fn claim_counts(&self) -> (usize, usize) {
        self.pools.claim_counts()
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
        if claims.is_empty() {
            return None;
        }
        let mut all = PodClaims {
            pending: pending_requests(&self.pools, claims.iter().copied()),
            ..PodClaims::default()
        };
        for claim in claims.into_iter().filter(|c| c.allocated.is_some()) {
            let is_own = claim.owner.as_deref() == Some(&*workload.uid);
            let nodes = if is_own {
                all.own.extend(requests(&self.pools, claim));
                &mut all.own_nodes
            } else {
                &mut all.nodes
            };
            nodes.extend(claim.nodes.clone());
        }
        Some(all)
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
        !self.knows_claims || named.all(|name| self.pools.claim(namespace, name).is_some())
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
        let known = self.nodes.entry(Arc::clone(&node.name));
        let known = known.or_insert_with(|| KnownNode {
            devices: pools.node_devices(node),
            found: VecDeque::new(),
        });
        if let Some(unfit) = wrong_model(&known.devices, models) {
            return Fit::Unusable(unfit);
        }
        match known.find(pending) {
            Ok((cost, detail)) => Fit::usable(cost, 0, entry.position, detail, None),
            Err(unfit) => Fit::Unusable(unfit),
        }
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

impl KnownNode {
    /// Returns what the requests find. Pods of one template have the same requests.
    fn find(&mut self, pending: &[PendingRequest]) -> Found {
        let mut found = self.found.iter();
        if let Some((_, found)) = found.find(|(asked, _)| asked == pending) {
            return found.clone();
        }
        let before = &self.devices;
        let mut after = before.clone();
        let found = match after.take_likely(pending) {
            Ok(_) => Ok(cost(before, &after)),
            Err(DeviceShortage::Uncertain) => {
                let detail = "the scheduler may find devices there";
                Ok((UNCERTAIN_DEVICES_COST, detail.to_owned()))
            }
            Err(_) => Err(lack(before, pending)),
        };
        self.found.truncate(MAX_FOUND - 1);
        self.found.push_front((pending.to_vec(), found.clone()));
        found
    }
}

/// Returns the reason why a node does not have the devices that a pod claims.
fn lack(devices: &NodeDevices, pending: &[PendingRequest]) -> Unfit {
    if let Some(class) = pending.iter().find_map(PendingRequest::unknown_class) {
        return Unfit::new(
            0,
            "NoSuchGpu",
            format!("DeviceClass {class} does not exist"),
        );
    }
    let has_too_few = |part: &PendingRequest| {
        let matching = devices.devices().iter().filter(|d| part.matches(d));
        matching.count() < part.count() as usize
    };
    if pending.iter().any(has_too_few) {
        return Unfit::new(0, "NoSuchGpu", "it has too few devices such as it claims");
    }
    Unfit::busy("GpuBusy", "too few of the devices that it claims are free")
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
