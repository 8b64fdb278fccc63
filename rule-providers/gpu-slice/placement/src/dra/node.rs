use std::sync::Arc;

use tautline_core::{
    model::{AffinityTerm, Node, Taint},
    node_filter,
};

use super::{
    model::{Access, Allocation, Amounts, Device, DeviceId, ExactRequest, Slice, own_name},
    pool::{PoolCounters, per_mille},
};

/// A device that a node can use, and how much of it is in use.
#[derive(Clone, Debug)]
pub struct NodeDevice {
    pub(super) id: DeviceId,
    pub(super) slice: Arc<Slice>,
    pub(super) position: usize,
    pub(super) pool: usize,
    pub(super) held: bool,
    /// True if claims have shares of the device.
    pub(super) has_shares: bool,
    pub(super) used: Amounts,
}

impl NodeDevice {
    /// The device's driver, pool and name.
    pub fn id(&self) -> &DeviceId {
        &self.id
    }

    pub(super) fn device(&self) -> &Device {
        &self.slice.devices[self.position]
    }

    pub(super) fn left(&self, capacity: &str) -> i64 {
        let total = self.device().capacity.get(capacity).map_or(0, |c| c.value);
        let used = self.used.get(capacity).copied().unwrap_or(0);
        if self.held { 0 } else { (total - used).max(0) }
    }

    /// The free part of the device's scarcest capacity, in thousandths; 0 or 1000 if the device is
    /// not shared.
    pub(super) fn left_milli(&self) -> u16 {
        let capacities = &self.device().capacity;
        let rests = capacities.iter().filter(|(_, c)| c.value > 0);
        let scarcest = rests.map(|(n, c)| per_mille(self.left(n), c.value)).min();
        match scarcest {
            _ if self.held => 0,
            Some(scarcest) if self.device().shared => scarcest,
            _ => 1000,
        }
    }
}

/// The devices that a node can use, and their free parts.
#[derive(Clone, Debug, Default)]
pub struct NodeDevices {
    pub(super) devices: Vec<NodeDevice>,
    pub(super) counters: Vec<PoolCounters>,
    /// True if the node can reach a pool whose devices are left out, such as an incomplete pool.
    pub(super) lacks_pool: bool,
}

impl NodeDevices {
    /// The devices in the order of the scheduler's allocator: by driver, pool and slice name, then
    /// as published; pools with binding conditions come last.
    pub fn devices(&self) -> &[NodeDevice] {
        &self.devices
    }

    /// Returns the nodes that can reach the allocated devices, of which `node` is one, as terms;
    /// `None`: any node.
    pub fn nodes_of(&self, allocated: &[Allocation], node: &Node) -> Option<Vec<AffinityTerm>> {
        let access = |allocation: &Allocation| {
            let mut devices = self.devices.iter();
            let offered = devices.find(|offered| offered.id == allocation.device)?;
            match &offered.slice.access {
                Access::PerDevice => offered.device().access.as_ref(),
                of_slice => Some(of_slice),
            }
        };
        let is_tied = |access: &&Access| !matches!(access, Access::All);
        let mut tied = allocated.iter().filter_map(access).filter(is_tied);
        let first = tied.next()?;
        match first {
            Access::Nodes(terms) if tied.all(|other| other == first) => Some(terms.clone()),
            _ => Some(vec![AffinityTerm {
                names: vec![(true, vec![node.name.to_string()])],
                ..AffinityTerm::default()
            }]),
        }
    }

    pub(super) fn counters(&self, device: &NodeDevice) -> &PoolCounters {
        &self.counters[device.pool]
    }

    /// Returns whether the device is available to the request, whose selectors do not count: no claim
    /// has it, its taints are tolerated, and enough of its capacities and counters is left.
    pub(super) fn is_available(&self, position: usize, request: &ExactRequest) -> bool {
        self.consumption(position, request).is_some()
    }

    pub(super) fn is_free(&self, position: usize) -> bool {
        self.devices.get(position).is_some_and(|offered| {
            self.is_open(offered, &ExactRequest::default()) && offered.left_milli() > 0
        })
    }

    /// Takes the device for a request, and returns the amounts that the request consumes; `None`: it
    /// is not available, and nothing changes.
    pub(super) fn take(&mut self, position: usize, request: &ExactRequest) -> Option<Amounts> {
        let consumed = self.consumption(position, request)?;
        if request.admin {
            return Some(consumed);
        }
        let offered = &mut self.devices[position];
        if !offered.has_shares {
            self.counters[offered.pool].charge(&offered.device().consumes);
        }
        if offered.device().shared {
            offered.has_shares = true;
            for (name, amount) in &consumed {
                let used = offered.used.entry(name.clone()).or_default();
                *used = used.saturating_add(*amount);
            }
        } else {
            offered.held = true;
        }
        Some(consumed)
    }

    /// The amounts that a request consumes of a device; `None`: the device is not available.
    fn consumption(&self, position: usize, request: &ExactRequest) -> Option<Amounts> {
        let offered = self.devices.get(position)?;
        let is_open = self.is_open(offered, request);
        is_open.then(|| Self::capacity(offered, request))?
    }

    /// The amounts that a request consumes of a device; `None`: too little of a capacity is left,
    /// or the device does not have it.
    pub(super) fn capacity(offered: &NodeDevice, request: &ExactRequest) -> Option<Amounts> {
        let (device, driver) = (offered.device(), &offered.id.pool.driver);
        let mut names = request.capacity.keys();
        if !names.all(|n| device.capacity.contains_key(own_name(driver, n))) {
            return None;
        }
        let mut consumed = Amounts::new();
        for (name, capacity) in &device.capacity {
            let amount = capacity.consumed(request.requested(driver, name))?;
            let left = if device.shared {
                offered.left(name)
            } else {
                capacity.value
            };
            if amount > left {
                return None;
            }
            consumed.insert(name.clone(), amount);
        }
        Some(consumed)
    }

    /// Returns whether no claim and no taint keeps the device from the request.
    fn is_open(&self, offered: &NodeDevice, request: &ExactRequest) -> bool {
        let device = offered.device();
        // The first share of a shared device takes the device's counters.
        let has_counters =
            || offered.has_shares || self.counters[offered.pool].has_enough(&device.consumes);
        let is_left = request.admin || (!offered.held && has_counters());
        let blocks = |taint: &Taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
                && !node_filter::is_tolerated(taint, &request.tolerations)
        };
        is_left && !device.taints.iter().any(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dra::fixtures::{self, node, partitioned, shared, whole};
    use proptest::prelude::*;
    use tautline_core::model::Toleration;

    #[test]
    fn take_gives_an_exclusive_device_once() {
        let mut free = fixtures::pools([whole("n", 2)]).node_devices(&node("n"));
        let any = ExactRequest::default();
        assert!(free.is_free(0));
        free.take(0, &any).unwrap();
        assert_eq!(free.take(0, &any), None);
        assert!(!free.is_free(0) && free.is_free(1) && !free.is_free(2));
        let admin = ExactRequest {
            admin: true,
            ..any.clone()
        };
        free.take(0, &admin).unwrap();
        free.take(1, &admin).unwrap();
        assert!(free.is_free(1));
    }

    #[test]
    fn taints_block_requests_without_toleration() {
        let mut slice = whole("n", 1);
        let taint = |effect: &str| Taint {
            key: "sick".into(),
            value: "xid".into(),
            effect: effect.into(),
        };
        slice.devices[0].taints = vec![taint("None"), taint("Later")];
        assert!(
            fixtures::pools([slice.clone()])
                .node_devices(&node("n"))
                .is_free(0)
        );
        for effect in ["NoSchedule", "NoExecute"] {
            slice.devices[0].taints = vec![taint(effect)];
            let free = fixtures::pools([slice.clone()]).node_devices(&node("n"));
            assert!(!free.is_available(0, &ExactRequest::default()));
            let tolerant = ExactRequest {
                tolerations: vec![Toleration {
                    key: Some("sick".into()),
                    ..Toleration::default()
                }],
                ..ExactRequest::default()
            };
            assert!(free.is_available(0, &tolerant));
            assert_eq!(free.cards()[0].free_milli, 0);
        }
    }

    #[test]
    fn take_gives_shares_of_a_device() {
        let mut free = fixtures::pools([shared("n", 1, 80)]).node_devices(&node("n"));
        let gib = |n: i64| ExactRequest {
            capacity: [("memory".into(), n * 1000)].into(),
            ..ExactRequest::default()
        };
        free.take(0, &gib(60)).unwrap();
        assert_eq!(free.devices()[0].left_milli(), 250);
        assert_eq!(free.take(0, &gib(21)), None);
        // A request without an amount is for everything.
        assert!(!free.is_available(0, &ExactRequest::default()));
        free.take(0, &gib(20)).unwrap();
        assert!(!free.is_free(0));
        let domain: Box<str> = format!("{}/memory", fixtures::DRIVER).into();
        let with_domain = ExactRequest {
            capacity: [(domain, 0)].into(),
            ..ExactRequest::default()
        };
        assert!(free.is_available(0, &with_domain));
        let other = ExactRequest {
            capacity: [("cores".into(), 1)].into(),
            ..ExactRequest::default()
        };
        assert!(!free.is_available(0, &other));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// In any order of takes no counter and no capacity is exceeded, no device is given
        /// twice, and a refusal changes nothing.
        #[test]
        fn never_over_committed(takes in prop::collection::vec((0..24usize, 0..90i64), 0..60)) {
            let slices = partitioned("n", 1).into_iter().chain([shared("n", 2, 80), whole("n", 2)]);
            let mut free = fixtures::pools(slices).node_devices(&node("n"));
            let mut given = std::collections::BTreeSet::new();
            for (position, amount) in takes {
                let mut wanted = ExactRequest::default();
                if free.devices().get(position).is_some_and(|d| d.device().shared) {
                    wanted.capacity.insert("memory".into(), amount * 1000);
                }
                let before = format!("{free:?}");
                match free.take(position, &wanted) {
                    None => prop_assert_eq!(before, format!("{:?}", free)),
                    Some(_) => {
                        let exclusive = !free.devices()[position].device().shared;
                        prop_assert!(!exclusive || given.insert(position));
                    }
                }
                prop_assert!(!free.counters.iter().any(PoolCounters::overdrawn));
                for d in free.devices() {
                    for (name, used) in &d.used {
                        prop_assert!(*used <= d.device().capacity[name].value);
                    }
                }
                for card in free.cards() {
                    prop_assert!(card.free_milli <= 1000);
                }
            }
        }
    }
}
