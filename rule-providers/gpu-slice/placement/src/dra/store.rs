use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tautline_core::{model::Node, node_filter};

use super::{
    model::{Access, Amounts, Claim, Class, Device, PoolId, Slice},
    node::{NodeDevice, NodeDevices},
    pool::{Current, Pool},
};

#[derive(Clone, Debug)]
pub(super) struct DeviceHold {
    claim: Arc<str>,
    pub(super) share: bool,
    pub(super) consumed: Amounts,
}

/// The slices, claims and classes of a cluster.
#[derive(Clone, Debug, Default)]
pub struct DeviceStore {
    pub(super) pools: BTreeMap<PoolId, Pool>,
    slices: BTreeMap<Arc<str>, PoolId>,
    by_node: BTreeMap<Arc<str>, BTreeMap<PoolId, usize>>,
    shared_by_nodes: BTreeMap<PoolId, usize>,
    claims: BTreeMap<Arc<str>, Arc<Claim>>,
    pub(super) held: BTreeMap<PoolId, BTreeMap<Arc<str>, Vec<DeviceHold>>>,
    /// Claims by the UID of a pod that may use them or whose template they are from.
    claims_by_pod: BTreeMap<Box<str>, BTreeSet<Arc<str>>>,
    classes: BTreeMap<Box<str>, Class>,
}

impl DeviceStore {
    /// Replaces all slices, but no claims.
    pub fn reset_slices(&mut self, list: impl IntoIterator<Item = Slice>) {
        self.pools.clear();
        self.slices.clear();
        self.by_node.clear();
        self.shared_by_nodes.clear();
        for slice in list {
            self.apply_slice(slice);
        }
    }

    pub(super) fn apply_slice(&mut self, slice: Slice) {
        self.delete_slice(&slice.name);
        let at = self.reach(&slice.access);
        *at.entry(slice.id.clone()).or_default() += 1;
        self.slices.insert(slice.name.clone(), slice.id.clone());
        let pool = self.pools.entry(slice.id.clone()).or_default();
        pool.insert(slice);
    }

    pub(super) fn delete_slice(&mut self, name: &str) {
        let Some(id) = self.slices.remove(name) else {
            return;
        };
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        let old = pool.remove(name);
        if pool.is_empty() {
            self.pools.remove(&id);
        }
        if let Some(old) = old {
            let at = self.reach(&old.access);
            if let Some(count) = at.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    at.remove(&id);
                }
            }
            if let Access::Node(node) = &old.access
                && self.by_node.get(node).is_some_and(BTreeMap::is_empty)
            {
                self.by_node.remove(node);
            }
        }
    }

    fn reach(&mut self, access: &Access) -> &mut BTreeMap<PoolId, usize> {
        match access {
            Access::Node(node) => self.by_node.entry(node.clone()).or_default(),
            _ => &mut self.shared_by_nodes,
        }
    }

    /// Replaces all claims, but no slices.
    pub fn reset_claims(&mut self, list: impl IntoIterator<Item = Claim>) {
        self.claims.clear();
        self.held.clear();
        self.claims_by_pod.clear();
        for claim in list {
            self.apply_claim(claim);
        }
    }

    pub(super) fn apply_claim(&mut self, claim: Claim) {
        self.delete_claim(&claim.namespace, &claim.name);
        let key: Arc<str> = tautline_core::model::key(&claim.namespace, &claim.name).into();
        for a in claim.allocated.iter().flatten().filter(|a| !a.admin) {
            let devices = self.held.entry(a.device.pool.clone()).or_default();
            let holds = devices.entry(a.device.device.clone()).or_default();
            holds.push(DeviceHold {
                claim: key.clone(),
                share: a.share.is_some(),
                consumed: a.consumed.clone(),
            });
        }
        for uid in claim.reserved_for.iter().chain(&claim.owner) {
            let of = self.claims_by_pod.entry(uid.clone()).or_default();
            of.insert(key.clone());
        }
        self.claims.insert(key, Arc::new(claim));
    }

    pub(super) fn delete_claim(&mut self, namespace: &str, name: &str) {
        let key = tautline_core::model::key(namespace, name);
        let Some(old) = self.claims.remove(key.as_str()) else {
            return;
        };
        for a in old.allocated.iter().flatten() {
            let Some(devices) = self.held.get_mut(&a.device.pool) else {
                continue;
            };
            if let Some(holds) = devices.get_mut(&a.device.device) {
                holds.retain(|h| *h.claim != *key);
                if holds.is_empty() {
                    devices.remove(&a.device.device);
                }
            }
            if devices.is_empty() {
                self.held.remove(&a.device.pool);
            }
        }
        for uid in old.reserved_for.iter().chain(&old.owner) {
            if let Some(of) = self.claims_by_pod.get_mut(uid) {
                of.remove(key.as_str());
                if of.is_empty() {
                    self.claims_by_pod.remove(uid);
                }
            }
        }
    }

    /// Replaces all classes.
    pub fn reset_classes(&mut self, list: impl IntoIterator<Item = Class>) {
        self.classes = list.into_iter().map(|c| (c.name.clone(), c)).collect();
    }

    pub(super) fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    /// The class that serves an extended resource on nodes without that resource (KEP-5004): the
    /// newest class that names the resource. `deviceclass.resource.kubernetes.io/NAME` stands for
    /// the class `NAME`.
    pub fn class_of_resource(&self, resource: &str) -> Option<&Class> {
        if let Some(class) = resource.strip_prefix("deviceclass.resource.kubernetes.io/") {
            return self.classes.get(class);
        }
        let named = |c: &&Class| c.extended_resource.as_deref() == Some(resource);
        // In descending order of names, so that the first name wins among classes of equal age.
        let newest = self.classes.values().rev().filter(named);
        newest.max_by_key(|c| c.created_unix)
    }

    /// The claim with this name; `None`: no such claim is known.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Claim> {
        let key = tautline_core::model::key(namespace, name);
        self.claims.get(key.as_str()).map(AsRef::as_ref)
    }

    /// The claims of a pod, each once: those reserved for it, those from its templates, and those
    /// that its spec names (`named`; needed until they are reserved).
    pub fn claims_of<'a>(
        &self,
        uid: &str,
        namespace: &str,
        named: impl IntoIterator<Item = &'a str>,
    ) -> Vec<&Claim> {
        let known = self.claims_by_pod.get(uid).into_iter().flatten().cloned();
        let mut keys: BTreeSet<Arc<str>> = known.collect();
        let named = named.into_iter();
        keys.extend(named.map(|n| tautline_core::model::key(namespace, n).into()));
        let found = keys.iter().filter_map(|k| self.claims.get(k));
        found.map(AsRef::as_ref).collect()
    }

    /// The devices that the node can use, less the parts that all known claims hold.
    pub fn node_devices(&self, node: &Node) -> NodeDevices {
        let mut out = NodeDevices::default();
        let local = self.by_node.get(&node.name).into_iter().flatten();
        let ids: BTreeSet<&PoolId> = local
            .chain(&self.shared_by_nodes)
            .map(|(id, _)| id)
            .collect();
        let mut late = Vec::new();
        for id in ids {
            let Some(pool) = self.pools.get(id) else {
                continue;
            };
            match pool.current() {
                Err(why) => out.ignored.push((id.clone(), why.clone())),
                Ok(current) if current.binding_conditions => late.push((id, current)),
                Ok(current) => self.add(&mut out, id, current, node),
            }
        }
        for (id, current) in late {
            self.add(&mut out, id, current, node);
        }
        out
    }

    fn add(&self, out: &mut NodeDevices, id: &PoolId, current: &Current, node: &Node) {
        let mut counters = current.counters.clone();
        let held = self.held.get(id);
        let pool = out.counters.len();
        for slice in &current.slices {
            for (position, device) in slice.devices.iter().enumerate() {
                let holds = held.and_then(|h| h.get(&device.name));
                let holds = holds.map(Vec::as_slice).unwrap_or_default();
                // Devices that only other nodes can reach take counters as well.
                if !holds.is_empty() {
                    counters.charge(&device.consumes);
                }
                if reaches(slice, device, node) {
                    out.devices.push(offered(id, slice, position, pool, holds));
                }
            }
        }
        out.counters.push(counters);
    }
}

fn reaches(slice: &Slice, device: &Device, node: &Node) -> bool {
    let access = match &slice.access {
        Access::PerDevice => device.access.as_ref(),
        of_slice => Some(of_slice),
    };
    match access {
        Some(Access::Node(name)) => *name == node.name,
        Some(Access::Nodes(terms)) => terms.iter().any(|t| node_filter::term_matches(t, node)),
        Some(Access::All) => true,
        Some(Access::PerDevice) | None => false,
    }
}

fn offered(
    id: &PoolId,
    slice: &Arc<Slice>,
    position: usize,
    pool: usize,
    holds: &[DeviceHold],
) -> NodeDevice {
    let device = &slice.devices[position];
    let mut used = Amounts::new();
    for (name, amount) in holds.iter().flat_map(|h| &h.consumed) {
        let value = device.capacity.get(name).map_or(0, |c| c.value);
        let at = used.entry(name.clone()).or_default();
        *at = at.saturating_add((*amount).max(0)).min(value);
    }
    NodeDevice {
        id: super::model::DeviceId {
            pool: id.clone(),
            device: device.name.clone(),
        },
        slice: slice.clone(),
        position,
        pool,
        held: holds.iter().any(|h| !h.share),
        share_count: u32::try_from(holds.iter().filter(|h| h.share).count()).unwrap_or(u32::MAX),
        used,
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
