//! Devices of DRA drivers: the scheduler picks the device, the costs say on which
//! node that hurts least, and Evaluate whether a pod's devices are still its own.

use std::{collections::HashMap, sync::Arc};

use tautline_core::{Snapshot, model::Pod};
use tautline_gpu_placement::{
    CARD,
    dra::{Allocation, Ask, Card, Claim, Class, Match, NodeDevices, Part, Pools, Slice, ask_of},
};
use tautline_sdk::{CostRequest, Evaluation};

use crate::{
    cost::{self, Fit},
    ledger::Ledger,
    refusal::No,
};

/// A node that may have what is claimed, behind all that are known to.
const UNSURE: i64 = 1 << 33;

/// What drivers publish and claims hold, with each node's devices kept until any of
/// it changes.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    pools: Pools,
    nodes: HashMap<Arc<str>, NodeDevices>,
    /// Claims with devices, and without.
    pub(crate) allocated: usize,
    pub(crate) free: usize,
    /// Claims are told: the cluster has them.
    told: bool,
}

impl Devices {
    pub(crate) fn set_slices(&mut self, list: Vec<Slice>) {
        self.pools.reset_slices(list);
        self.nodes.clear();
    }

    pub(crate) fn set_claims(&mut self, list: Vec<Claim>) {
        self.allocated = list.iter().filter(|c| c.allocated.is_some()).count();
        self.free = list.len() - self.allocated;
        self.told = true;
        self.pools.reset_claims(list);
        self.nodes.clear();
    }

    pub(crate) fn set_classes(&mut self, list: Vec<Class>) {
        self.pools.reset_classes(list);
        self.nodes.clear();
    }

    /// These nodes have changed.
    pub(crate) fn forget<'a>(&mut self, nodes: impl Iterator<Item = &'a str>) {
        if !self.nodes.is_empty() {
            nodes.for_each(|name| _ = self.nodes.remove(name));
        }
    }

    /// What the claims of the pod that asks want; `None`: none of them is known.
    pub(crate) fn ask(&self, ask: &CostRequest) -> Option<Ask> {
        let workload = ask.workload.as_ref()?;
        let named = workload.resource_claims.iter().map(String::as_str);
        let namespace = &ask.source.namespace;
        let claims = self.pools.claims_of(&workload.uid, namespace, named);
        (!claims.is_empty()).then(|| ask_of(&self.pools, claims))
    }

    /// Whether all claims are known that the asking pod names; also where no claims are
    /// told.
    pub(crate) fn knows_claims_of(&self, ask: &CostRequest) -> bool {
        let namespace = &ask.source.namespace;
        let mut named = ask.workload.iter().flat_map(|w| &w.resource_claims);
        !self.told || named.all(|name| self.pools.claim(namespace, name).is_some())
    }

    /// What a node says to a pod's claims.
    pub(crate) fn fit(
        &mut self,
        ledger: &Ledger,
        snapshot: &Snapshot,
        name: &str,
        ask: &Ask,
    ) -> Fit {
        let (Some(node), Some(entry)) = (snapshot.node(name), ledger.node(name)) else {
            return Fit::No(No::unknown_node());
        };
        let pools = &self.pools;
        let devices = self.nodes.entry(Arc::clone(&node.name));
        let before = devices.or_insert_with(|| pools.free(node));
        let mut after = before.clone();
        if after.take_likely(ask).is_none() {
            // What is likely is a guess. Certain is only a request that finds too few of
            // its devices free by itself, and has no alternative.
            let lacks = |p: &&Part| p.alternatives == 1 && before.free_for(p) < p.count() as usize;
            let Some(part) = ask.parts.iter().find(lacks) else {
                let detail = "the scheduler may find devices there".into();
                return cost::yes(UNSURE, 0, entry, detail, None);
            };
            let matching = before
                .devices()
                .iter()
                .filter(|d| part.matches(d) != Match::No);
            return Fit::No(match matching.count() >= part.count() as usize {
                true => No::busy("GpuBusy", "too few of the devices that it claims are free"),
                false => No::never("NoSuchGpu", "it has too few devices such as it claims"),
            });
        }
        let (policy_cost, detail) = cost(before, &after);
        cost::yes(policy_cost, 0, entry, detail, None)
    }

    /// The first thing wrong with the devices that a pod's claims hold.
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

/// What the cards lose. Of cards in MIG partitions: the instances that they could
/// still have given, since where a partition lies matters as much as its size. Of
/// others: cards that were whole, then the fuller node. A policy has no say in it: the
/// scheduler picks the device.
fn cost(before: &NodeDevices, after: &NodeDevices) -> (i64, String) {
    let (had, has) = (before.cards(), after.cards());
    let whole = |cards: &[Card]| cards.iter().filter(|c| c.free_milli == CARD).count();
    let (was, is) = (whole(&had), whole(&has));
    let detail = format!("{is} of {} cards would be left whole", has.len());
    let room = |node: &NodeDevices, cards: &[Card]| -> Option<u64> {
        let migs: Vec<_> = cards.iter().filter_map(|c| node.mig(c)).collect();
        let each = migs.iter().map(|m| m.room(|p| u64::from(!p.media)));
        (!migs.is_empty()).then(|| each.sum())
    };
    if let (Some(had), Some(has)) = (room(before, &had), room(after, &has)) {
        let lost = i64::try_from(had.saturating_sub(has)).unwrap_or(i64::MAX);
        return (lost, detail);
    }
    let left: i64 = has.iter().map(|c| i64::from(c.free_milli)).sum();
    let broken = was.saturating_sub(is) as i64;
    ((broken << 20) + left.min((1 << 20) - 1), detail)
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
