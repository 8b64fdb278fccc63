//! Stores the device slices, claims and classes of DRA for a whole cluster, and answers which
//! devices are free, held or faulty.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tautline_core::{
    model::{Node, Taint, key},
    node_filter,
};

use super::{
    agent::{AGENT_DRIVER, agent_of},
    model::{Access, Allocation, Amounts, Claim, Class, Device, DeviceId, PoolId, Slice},
    node::{NodeDevice, NodeDevices},
    pool::{Pool, PoolError},
};

/// Reasons why an allocated device does not serve its claim any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceFault {
    /// The driver does not publish the device any more.
    #[error("device is not published any more")]
    Gone,
    /// The device has a `NoExecute` taint with this key that the allocation does not tolerate.
    #[error("device has taint {0}, effect NoExecute")]
    Tainted(Box<str>),
    /// Claims hold more of the device, or of its pool's counters, than there is.
    #[error("device is given to more claims than it can serve")]
    OverCommitted,
    /// The device's pool cannot be used, so the state of the device is unknown.
    #[error("its pool is not usable: {0}")]
    Pool(PoolError),
}

/// The slices, claims and classes of a cluster.
#[derive(Clone, Debug, Default)]
pub struct DeviceStore {
    pub(super) pools: BTreeMap<PoolId, Result<Pool, PoolError>>,
    /// Slices of the highest generation of each pool that cannot be used.
    unusable: BTreeMap<PoolId, Vec<Arc<Slice>>>,
    pools_by_node: BTreeMap<Arc<str>, BTreeSet<PoolId>>,
    pools_of_several_nodes: BTreeSet<PoolId>,
    /// Claims by `namespace/name`.
    pub(super) claims: BTreeMap<Arc<str>, Claim>,
    /// Allocations without admin access, by pool and device.
    held: BTreeMap<PoolId, BTreeMap<Arc<str>, Vec<Allocation>>>,
    /// Claims by the UID of a pod that may use them or whose template they are from.
    claims_by_pod: BTreeMap<Box<str>, BTreeSet<Arc<str>>>,
    classes: BTreeMap<Box<str>, Class>,
    /// Slices and claims of agents' cards, by node.
    pub(super) agent_slices: BTreeMap<Arc<str>, Vec<Arc<Slice>>>,
    pub(super) claims_by_agent: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Nodes whose agents' cards have changed, or the claims that hold them; the reader clears it.
    pub changed_nodes: BTreeSet<Arc<str>>,
    /// Pools of whose devices claims hold more or less than before; the reader clears it.
    pub touched: BTreeSet<PoolId>,
}

impl DeviceStore {
    /// Replaces all slices, but no claims.
    pub fn reset_slices(&mut self, list: impl IntoIterator<Item = Slice>) {
        self.pools_by_node.clear();
        self.pools_of_several_nodes.clear();
        let mut slices: BTreeMap<PoolId, BTreeMap<Arc<str>, Arc<Slice>>> = BTreeMap::new();
        for slice in list {
            let pools = match &slice.access {
                Access::Node(node) => self.pools_by_node.entry(node.clone()).or_default(),
                _ => &mut self.pools_of_several_nodes,
            };
            pools.insert(slice.id.clone());
            let of_pool = slices.entry(slice.id.clone()).or_default();
            of_pool.insert(slice.name.clone(), Arc::new(slice));
        }
        self.pools.clear();
        self.unusable.clear();
        let before = std::mem::take(&mut self.agent_slices);
        for (id, slices) in slices {
            let slices: Vec<_> = slices.into_values().collect();
            if *id.driver == *AGENT_DRIVER {
                self.agent_slices.insert(id.pool.clone(), slices.clone());
            }
            let pool = Pool::new(slices.clone());
            if pool.is_err() {
                let generation = slices.iter().map(|s| s.generation).max();
                let newest = slices
                    .into_iter()
                    .filter(|s| Some(s.generation) == generation);
                self.unusable.insert(id.clone(), newest.collect());
            }
            self.pools.insert(id, pool);
        }
        let nodes = before.keys().chain(self.agent_slices.keys());
        let changed = nodes.filter(|node| before.get(*node) != self.agent_slices.get(*node));
        self.changed_nodes.extend(changed.cloned());
    }

    /// Adds or replaces a claim.
    pub fn put_claim(&mut self, claim: Claim) {
        let name: Arc<str> = key(&claim.namespace, &claim.name).into();
        if self.claims.get(&name) == Some(&claim) {
            return;
        }
        self.remove_claim(&name);
        for allocation in taking(&claim) {
            let DeviceId { pool, device } = &allocation.device;
            let devices = self.held.entry(pool.clone()).or_default();
            let holds = devices.entry(device.clone()).or_default();
            holds.push(allocation.clone());
            self.touched.insert(pool.clone());
            if let Some(node) = agent_of(allocation) {
                let claims = self.claims_by_agent.entry(node.clone()).or_default();
                claims.insert(name.clone());
                self.changed_nodes.insert(node.clone());
            }
        }
        for uid in claim.reserved_for.iter().chain(&claim.owner) {
            let of_pod = self.claims_by_pod.entry(uid.clone()).or_default();
            of_pod.insert(name.clone());
        }
        self.claims.insert(name, claim);
    }

    /// Removes the claim `namespace/name`, if it is known.
    pub fn remove_claim(&mut self, name: &str) {
        let Some(claim) = self.claims.remove(name) else {
            return;
        };
        for allocation in taking(&claim) {
            let DeviceId { pool, device } = &allocation.device;
            let devices = self.held.get_mut(pool);
            if let Some(holds) = devices.and_then(|devices| devices.get_mut(device)) {
                let at = holds.iter().position(|held| held == allocation);
                at.map(|at| holds.swap_remove(at));
            }
            self.touched.insert(pool.clone());
            if let Some(node) = agent_of(allocation) {
                let claims = self.claims_by_agent.get_mut(node);
                claims.map(|claims| claims.remove(name));
                self.changed_nodes.insert(node.clone());
            }
        }
        for uid in claim.reserved_for.iter().chain(&claim.owner) {
            if let Some(of_pod) = self.claims_by_pod.get_mut(uid) {
                of_pod.remove(name);
                if of_pod.is_empty() {
                    self.claims_by_pod.remove(uid);
                }
            }
        }
    }

    /// Replaces all claims, but no slices.
    pub fn reset_claims(&mut self, list: impl IntoIterator<Item = Claim>) {
        let list = list.into_iter();
        let list = list.map(|claim| (key(&claim.namespace, &claim.name), claim));
        let list: BTreeMap<String, Claim> = list.collect();
        let gone = self
            .claims
            .keys()
            .filter(|name| !list.contains_key(&***name));
        let gone: Vec<Arc<str>> = gone.cloned().collect();
        gone.iter().for_each(|name| self.remove_claim(name));
        list.into_values().for_each(|claim| self.put_claim(claim));
    }

    /// The node that alone can use the pool's devices; `None`: several can, or no node is known.
    pub fn node_of(&self, pool: &PoolId) -> Option<&Arc<str>> {
        let Some(Ok(pool)) = self.pools.get(pool) else {
            return None;
        };
        let mut nodes = pool.slices.iter().map(|slice| match &slice.access {
            Access::Node(node) => Some(node),
            _ => None,
        });
        let first = nodes.next()??;
        nodes.all(|node| node == Some(first)).then_some(first)
    }

    /// The allocations of a pool's device.
    pub(super) fn holds(&self, pool: &PoolId, device: &Device) -> &[Allocation] {
        let devices = self.held.get(pool);
        let holds = devices.and_then(|devices| devices.get(&device.name));
        holds.map_or(&[], Vec::as_slice)
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

    /// The numbers of claims with and without devices.
    pub fn claim_counts(&self) -> (usize, usize) {
        let with = self.claims.values().filter(|c| c.allocated.is_some());
        let with = with.count();
        (with, self.claims.len() - with)
    }

    /// The claim with this name; `None`: no such claim is known.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Claim> {
        self.claims.get(key(namespace, name).as_str())
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
        keys.extend(named.map(|n| key(namespace, n).into()));
        keys.iter().filter_map(|k| self.claims.get(k)).collect()
    }

    /// The devices that the node can use, less the parts that all known claims hold.
    pub fn node_devices(&self, node: &Node) -> NodeDevices {
        let mut out = NodeDevices::default();
        let local = self.pools_by_node.get(&node.name).into_iter().flatten();
        let ids: BTreeSet<&PoolId> = local.chain(&self.pools_of_several_nodes).collect();
        let mut pools = Vec::new();
        for id in ids {
            if let Some(Ok(pool)) = self.pools.get(id) {
                pools.push((id, pool));
            }
        }
        pools.sort_by_key(|(_, pool)| pool.binding_conditions);
        for (id, pool) in pools {
            self.add(&mut out, id, pool, node);
        }
        let mut unusable = self.unusable.values().flatten();
        out.lacks_pool = unusable.any(|slice| concerns(slice, node));
        out
    }

    fn add(&self, out: &mut NodeDevices, id: &PoolId, pool: &Pool, node: &Node) {
        let mut counters = pool.counters.clone();
        let index = out.counters.len();
        for slice in &pool.slices {
            for (position, device) in slice.devices.iter().enumerate() {
                let holds = self.holds(id, device);
                // Devices that only other nodes can reach take counters as well.
                if !holds.is_empty() {
                    counters.charge(&device.consumes);
                }
                if reaches(slice, device, node) {
                    out.devices.push(offered(id, slice, position, index, holds));
                }
            }
        }
        out.counters.push(counters);
    }

    /// The fault of an allocated device; `None`: the device serves its claim. Tolerated taints are
    /// not faults.
    pub fn fault(&self, held: &Allocation) -> Option<DeviceFault> {
        let id = &held.device.pool;
        let pool = match self.pools.get(id) {
            None => return Some(DeviceFault::Gone),
            Some(Err(why)) => return Some(DeviceFault::Pool(why.clone())),
            Some(Ok(pool)) => pool,
        };
        let devices = || pool.slices.iter().flat_map(|s| &s.devices);
        let Some(device) = devices().find(|d| d.name == held.device.device) else {
            return Some(DeviceFault::Gone);
        };
        let evicts = |t: &&Taint| {
            t.effect == "NoExecute" && !node_filter::is_tolerated(t, &held.tolerations)
        };
        if let Some(taint) = device.taints.iter().find(evicts) {
            return Some(DeviceFault::Tainted(taint.key.as_str().into()));
        }
        let mut counters = pool.counters.clone();
        for d in devices().filter(|d| !self.holds(id, d).is_empty()) {
            counters.charge(&d.consumes);
        }
        let over_device = exceeded(device, self.holds(id, device));
        let over_card = counters.overdrawn() && !device.consumes.is_empty();
        (over_device || over_card).then_some(DeviceFault::OverCommitted)
    }
}

/// Returns the allocations that take devices: those without admin access.
fn taking(claim: &Claim) -> impl Iterator<Item = &Allocation> {
    claim.allocated.iter().flatten().filter(|held| !held.admin)
}

fn exceeded(device: &Device, holds: &[Allocation]) -> bool {
    let whole = holds.iter().filter(|h| h.share.is_none()).count();
    let over = |name: &str, value: i64| {
        let used = holds.iter().filter_map(|h| h.consumed.get(name));
        used.fold(0i64, |sum, v| sum.saturating_add(*v)) > value
    };
    whole > 1
        || (whole > 0 && holds.len() > 1)
        || device.capacity.iter().any(|(n, c)| over(n, c.value))
}

fn reaches(slice: &Slice, device: &Device, node: &Node) -> bool {
    let access = match &slice.access {
        Access::PerDevice => device.access.as_ref(),
        of_slice => Some(of_slice),
    };
    access.is_some_and(|access| is_open_to(access, node))
}

fn is_open_to(access: &Access, node: &Node) -> bool {
    match access {
        Access::Node(name) => *name == node.name,
        Access::Nodes(terms) => terms.iter().any(|t| t.matches(node)),
        Access::All => true,
        Access::PerDevice => false,
    }
}

/// Returns whether the allocator looks at the slice for the node. Counters count for all nodes.
fn concerns(slice: &Slice, node: &Node) -> bool {
    let mut devices = slice.devices.iter();
    match &slice.access {
        _ if !slice.counters.is_empty() => true,
        Access::PerDevice => devices.any(|device| reaches(slice, device, node)),
        of_slice => is_open_to(of_slice, node),
    }
}

fn offered(
    id: &PoolId,
    slice: &Arc<Slice>,
    position: usize,
    pool: usize,
    holds: &[Allocation],
) -> NodeDevice {
    let device = &slice.devices[position];
    let mut used = Amounts::new();
    for (name, amount) in holds.iter().flat_map(|h| &h.consumed) {
        let value = device.capacity.get(name).map_or(0, |c| c.value);
        let at = used.entry(name.clone()).or_default();
        *at = at.saturating_add((*amount).max(0)).min(value);
    }
    NodeDevice {
        id: DeviceId {
            pool: id.clone(),
            device: device.name.clone(),
        },
        slice: slice.clone(),
        position,
        pool,
        held: holds.iter().any(|h| h.share.is_none()),
        has_shares: holds.iter().any(|h| h.share.is_some()),
        used,
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
