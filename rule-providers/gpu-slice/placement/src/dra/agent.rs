//! The cards that Tautline's agent offers as devices, in the form in which other agents write theirs,
//! with the claims as reservations.

use std::{collections::BTreeMap, sync::Arc};

use tautline_core::model::{Pod, key};

use super::{
    model::{Allocation, Claim, Count, Device, ExactRequest},
    store::DeviceStore,
};
use crate::{
    device_annotation::CardShare,
    inventory::PodReservation,
    node_inventory::{InventoryCard, NodeInventory},
    shape::{CARD_MILLI, memory_milli},
};

/// The agent's driver, and the class of its devices.
pub const AGENT_DRIVER: &str = "gpu.tautline.io";
/// The extended resource of the class: whole cards.
const CARD_RESOURCE: &str = "tautline.io/gpu";
/// The key of the taint of a card that has a fault; its value is the fault.
pub const FAULT_TAINT: &str = "gpu.tautline.io/fault";

/// Returns the index of the device's card, from its attribute `index`.
fn index(device: &Device) -> Option<u32> {
    (*device.numbers.get("index")?).try_into().ok()
}

fn memory_bytes(device: &Device) -> i64 {
    device.capacity.get("memory").map_or(0, |c| c.value / 1000)
}

/// Returns the node whose agent offers the device; `None`: another driver offers it. Agents give
/// their pools the names of their nodes.
pub(super) fn agent_of(held: &Allocation) -> Option<&Arc<str>> {
    let pool = &held.device.pool;
    (!held.admin && *pool.driver == *AGENT_DRIVER).then_some(&pool.pool)
}

impl DeviceStore {
    /// The devices of the node's agent by card: the card itself, or its possible MIG instances.
    fn agent_devices(&self, node: &str) -> BTreeMap<u32, Vec<&Device>> {
        let slices = self.agent_slices.get(node).into_iter().flatten();
        let mut cards = BTreeMap::<u32, Vec<&Device>>::new();
        for device in slices.flat_map(|slice| &slice.devices) {
            if let Some(index) = index(device) {
                cards.entry(index).or_default().push(device);
            }
        }
        cards
    }

    /// The cards that the node's agent offers as devices; `None`: it offers none.
    pub fn agent_cards(&self, node: &str) -> Option<NodeInventory> {
        let cards = self.agent_devices(node).into_iter();
        let cards = cards.filter_map(|(index, devices)| {
            // The instances of a card have all its attributes and taints.
            let card = devices.first()?;
            let text = |name: &str| card.text(name).unwrap_or_default().to_owned();
            let fault = card.taints.iter().find(|taint| taint.key == FAULT_TAINT);
            let nvlink = card
                .text("nvlinkDomain")
                .and_then(|of| of.rsplit('.').next());
            let numa = card.numbers.get("numaNode");
            let memory = devices.iter().map(|device| memory_bytes(device)).max();
            Some(InventoryCard {
                uuid: text("uuid"),
                index,
                // As the label nvidia.com/gpu.product has it.
                product: text("productName").replace(' ', "-"),
                memory_bytes: memory?.unsigned_abs(),
                fault: fault.map(|taint| taint.value.clone()),
                nvlink: nvlink.and_then(|number| number.parse().ok()),
                numa: numa.and_then(|numa| (*numa).try_into().ok()),
                mig: None,
            })
        });
        let (cards, limits) = (cards.collect::<Vec<_>>(), String::new());
        (!cards.is_empty()).then_some(NodeInventory { cards, limits })
    }

    /// The parts of the cards of the node's agent that claims hold. `pods` are the pods on the node.
    /// If pods share a claim, the first pod has the claim's part, and each other pod a part of 0.
    /// A claim without a pod on the node holds its part as `namespace/name (claim)`.
    pub fn agent_holders(&self, node: &str, pods: &[Arc<Pod>]) -> Vec<PodReservation> {
        let names = self.claims_by_agent.get(node).into_iter().flatten();
        let mut held = Vec::new();
        for claim in names.filter_map(|name| self.claims.get(name)) {
            let users: Vec<_> = claim.reserved_for.iter().chain(&claim.owner).collect();
            let pods = pods
                .iter()
                .filter(|p| users.iter().any(|uid| ***uid == *p.uid));
            let mut pods: Vec<String> = pods.map(|p| key(&p.namespace, &p.name)).collect();
            if pods.is_empty() {
                pods.push(format!("{}/{} (claim)", claim.namespace, claim.name));
            }
            let mut parts = self.parts(claim);
            for pod in pods {
                held.push(PodReservation {
                    pod: pod.into(),
                    parts: parts.clone(),
                    ..PodReservation::default()
                });
                parts.iter_mut().for_each(|part| part.milli = 0);
            }
        }
        held
    }

    /// The parts of the agents' cards that a claim has. A MIG instance is a part by its memory.
    fn parts(&self, claim: &Claim) -> Vec<CardShare> {
        let part = |held: &Allocation| {
            let (node, name) = (agent_of(held)?, &held.device.device);
            let mut cards = self.agent_devices(node).into_iter();
            let (index, devices) = cards.find(|(_, d)| d.iter().any(|d| d.name == *name))?;
            let consumed = held.consumed.get("milli").map(|amount| amount / 1000);
            let milli = consumed.or_else(|| {
                let card = devices.iter().map(|device| memory_bytes(device)).max()?;
                let device = devices.iter().find(|device| device.name == *name)?;
                memory_milli(memory_bytes(device), card).filter(|milli| *milli > 0)
            });
            let milli = milli.and_then(|milli| milli.try_into().ok());
            Some(CardShare {
                card: index.to_string().into(),
                milli: milli.unwrap_or(CARD_MILLI).min(CARD_MILLI),
                start: None,
            })
        };
        claim.allocated.iter().flatten().filter_map(part).collect()
    }

    /// The parts of agents' cards that the pod's claims have, by index; `None`: they have none.
    pub fn agent_parts(&self, pod: &Pod) -> Option<Vec<CardShare>> {
        let claims = self.claims_of(&pod.uid, &pod.namespace, pod.claims());
        let parts: Vec<_> = claims.iter().flat_map(|claim| self.parts(claim)).collect();
        (!parts.is_empty()).then_some(parts)
    }

    /// The thousandths of agents' cards that the pod has or requests by claims, or by the extended
    /// resource; 0: none. Of alternatives, the first one for such cards counts.
    pub fn claimed_milli(&self, pod: &Pod) -> i64 {
        let requested = |alternatives: &Vec<ExactRequest>| {
            let request = alternatives.iter().find(|r| *r.class == *AGENT_DRIVER)?;
            let milli = request.requested(AGENT_DRIVER, "milli").map(|m| m / 1000);
            let count = match request.count {
                Count::Exact(count) => count.into(),
                Count::All => 1,
            };
            Some(milli.unwrap_or(CARD_MILLI.into()).saturating_mul(count))
        };
        let claims = self.claims_of(&pod.uid, &pod.namespace, pod.claims());
        let of_claims = claims.iter().map(|claim| match claim.allocated {
            Some(_) => self.parts(claim).iter().map(|p| i64::from(p.milli)).sum(),
            None => claim.requests.iter().filter_map(requested).sum::<i64>(),
        });
        match of_claims.sum() {
            0 => pod.requests.milli(CARD_RESOURCE),
            milli => milli,
        }
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
