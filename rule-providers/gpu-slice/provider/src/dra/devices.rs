//! Devices of DRA drivers. The scheduler picks the device; the provider's costs say on which
//! node that does least harm, and its evaluations whether a pod still has its devices.

use std::{collections::HashMap, sync::Arc};

use tautline_core::{Snapshot, model::Pod};
use tautline_gpu_placement::{
    CARD,
    dra::{
        Allocation, Claim, Class, DeviceCard, DeviceStore, Match, NodeDevices, PendingRequest,
        PendingRequests, Slice, pending_requests,
    },
};
use tautline_sdk::{CostRequest, Evaluation};

use crate::{cluster_inventory::ClusterInventory, fit::Fit, unfit::Unfit};

/// The cost of a node that may have the claimed devices, above that of all that have them.
const UNSURE: i64 = 1 << 33;

/// Published devices and their claims, with each node's devices cached until a change.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    pools: DeviceStore,
    nodes: HashMap<Arc<str>, NodeDevices>,
    /// Claims with devices.
    allocated: usize,
    /// All claims; `None`: the cluster has no API for them, or is not known yet.
    claims: Option<usize>,
}

impl Devices {
    pub(crate) fn set_slices(&mut self, list: Vec<Slice>) {
        self.pools.reset_slices(list);
        self.nodes.clear();
    }

    pub(crate) fn set_claims(&mut self, list: Vec<Claim>) {
        self.allocated = list.iter().filter(|c| c.allocated.is_some()).count();
        self.claims = Some(list.len());
        self.pools.reset_claims(list);
        self.nodes.clear();
    }

    pub(crate) fn set_classes(&mut self, list: Vec<Class>) {
        self.pools.reset_classes(list);
        self.nodes.clear();
    }

    /// Claims with devices, and without.
    pub(crate) fn claim_counts(&self) -> (usize, usize) {
        let all = self.claims.unwrap_or(0);
        (self.allocated, all - self.allocated)
    }

    /// Forgets the devices of nodes that have changed.
    pub(crate) fn forget<'a>(&mut self, nodes: impl Iterator<Item = &'a str>) {
        if !self.nodes.is_empty() {
            nodes.for_each(|name| _ = self.nodes.remove(name));
        }
    }

    /// Devices that the claims of the asking pod request; `None`: no claim of it is known.
    pub(crate) fn requested_by(&self, ask: &CostRequest) -> Option<PendingRequests> {
        let workload = ask.workload.as_ref()?;
        let named = workload.resource_claims.iter().map(String::as_str);
        let namespace = &ask.source.namespace;
        let claims = self.pools.claims_of(&workload.uid, namespace, named);
        (!claims.is_empty()).then(|| pending_requests(&self.pools, claims))
    }

    /// Whether all claims that the asking pod names are known, or the cluster has no claims.
    pub(crate) fn knows_claims_of(&self, ask: &CostRequest) -> bool {
        let namespace = &ask.source.namespace;
        let mut named = ask.workload.iter().flat_map(|w| &w.resource_claims);
        self.claims.is_none() || named.all(|name| self.pools.claim(namespace, name).is_some())
    }

    /// The fit of a pod's claims on a node.
    pub(crate) fn fit(
        &mut self,
        inventory: &ClusterInventory,
        snapshot: &Snapshot,
        name: &str,
        ask: &PendingRequests,
    ) -> Fit {
        let (Some(node), Some(entry)) = (snapshot.node(name), inventory.node(name)) else {
            return Fit::Unusable(Unfit::unknown_node());
        };
        let pools = &self.pools;
        let devices = self.nodes.entry(Arc::clone(&node.name));
        let before = devices.or_insert_with(|| pools.node_devices(node));
        let mut after = before.clone();
        if after.take_likely(ask).is_none() {
            // The likely choice is a guess. Only one case is certain: a request without
            // alternatives that finds too few free devices by itself.
            let lacks = |p: &&PendingRequest| {
                p.alternatives == 1 && before.free_count(p) < p.count() as usize
            };
            let Some(part) = ask.requests.iter().find(lacks) else {
                let detail = "the scheduler may find devices there".into();
                return Fit::usable(UNSURE, 0, entry.position, detail, None);
            };
            let matching = before
                .devices()
                .iter()
                .filter(|d| part.matches(d) != Match::No);
            return Fit::Unusable(match matching.count() >= part.count() as usize {
                true => Unfit::busy("GpuBusy", "too few of the devices that it claims are free"),
                false => Unfit::new(0, "NoSuchGpu", "it has too few devices such as it claims"),
            });
        }
        let (policy_cost, detail) = cost(before, &after);
        Fit::usable(policy_cost, 0, entry.position, detail, None)
    }

    /// The compliance of a pod's devices; `None`: its claims hold no devices.
    pub(crate) fn evaluate(&self, node: &str, pod: &Pod) -> Option<Evaluation> {
        let claims = self.pools.claims_of(&pod.uid, &pod.namespace, []);
        if claims.is_empty() {
            return None;
        }
        let held = || claims.iter().flat_map(|c| c.allocated.iter().flatten());
        let name = |held: &Allocation| held.device.device.to_string();
        for allocation in held() {
            if let Some(fault) = self.pools.fault(allocation) {
                let device = name(allocation);
                let reason = format!("node {node}: {device}: {fault}");
                return Some(Evaluation::violation(reason));
            }
        }
        let devices: Vec<String> = held().map(name).collect();
        if devices.is_empty() {
            return None;
        }
        let devices = devices.join(", ");
        Some(Evaluation::compliant(format!(
            "node {node}: it has {devices}"
        )))
    }
}

/// The loss on the node's cards. On cards in MIG partitions: the instances that would no longer
/// fit, as the place of a partition matters as much as its size. On others: whole cards, then
/// the fuller node. No placement policy applies: the scheduler picks the device.
fn cost(before: &NodeDevices, after: &NodeDevices) -> (i64, String) {
    let (had, has) = (before.cards(), after.cards());
    let whole = |cards: &[DeviceCard]| cards.iter().filter(|c| c.free_milli == CARD).count();
    let (was, is) = (whole(&had), whole(&has));
    let detail = format!("{is} of {} cards would be left whole", has.len());
    let capacity = |node: &NodeDevices, cards: &[DeviceCard]| -> Option<u64> {
        let migs: Vec<_> = cards.iter().filter_map(|c| node.mig(c)).collect();
        let each = migs
            .iter()
            .map(|m| m.remaining_value(|p| u64::from(!p.media)));
        (!migs.is_empty()).then(|| each.sum())
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
