use std::sync::Arc;

use tautline_core::{model::Taint, node_filter};

use super::{
    model::{Amounts, Device, DeviceId, ExactRequest, Slice, own_name},
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

/// Reasons why a device is not available to a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// A claim has the whole device, or there is no such device.
    #[error("another claim has it")]
    Held,
    /// Too little is left of the pool's counters that the device consumes.
    #[error("devices of the same card leave too little")]
    Counters,
    /// The device has a `NoSchedule` or `NoExecute` taint with this key that the request does not
    /// tolerate.
    #[error("taint {0} is not tolerated")]
    Taint(Box<str>),
    /// The device lacks the capacity with this name, or cannot give the requested amount of the
    /// capacity.
    #[error("not enough {0} is free, or the request is below the minimum")]
    Capacity(Box<str>),
}

/// The devices that a node can use, and their free parts.
#[derive(Clone, Debug, Default)]
pub struct NodeDevices {
    pub(super) devices: Vec<NodeDevice>,
    pub(super) counters: Vec<PoolCounters>,
}

impl NodeDevices {
    /// The devices in the order of the scheduler's allocator: by driver, pool and slice name, then
    /// as published; pools with binding conditions come last.
    pub fn devices(&self) -> &[NodeDevice] {
        &self.devices
    }

    pub(super) fn counters(&self, device: &NodeDevice) -> &PoolCounters {
        &self.counters[device.pool]
    }

    /// The reason why a device is not available to a request; `None`: the device is available.
    /// Ignores the request's selectors.
    pub fn unavailable(&self, position: usize, request: &ExactRequest) -> Option<Unavailable> {
        self.consumption(position, request).err()
    }

    pub(super) fn is_free(&self, position: usize) -> bool {
        let Some(offered) = self.devices.get(position) else {
            return false;
        };
        self.check_available(offered, &ExactRequest::default())
            .is_ok()
            && offered.left_milli() > 0
    }

    /// Takes the device for a request. Changes nothing if the device is not available.
    pub(super) fn take(
        &mut self,
        position: usize,
        request: &ExactRequest,
    ) -> Result<(), Unavailable> {
        let consumed = self.consumption(position, request)?;
        if request.admin {
            return Ok(());
        }
        let offered = &mut self.devices[position];
        if !offered.has_shares {
            self.counters[offered.pool].charge(&offered.device().consumes);
        }
        match consumed {
            None => offered.held = true,
            Some(consumed) => {
                offered.has_shares = true;
                for (name, amount) in consumed {
                    let used = offered.used.entry(name).or_default();
                    *used = used.saturating_add(amount);
                }
            }
        }
        Ok(())
    }

    /// The amounts that a request consumes of a shared device; `None`: it takes the whole device.
    fn consumption(
        &self,
        position: usize,
        request: &ExactRequest,
    ) -> Result<Option<Amounts>, Unavailable> {
        let Some(offered) = self.devices.get(position) else {
            return Err(Unavailable::Held);
        };
        self.check_available(offered, request)?;
        let device = offered.device();
        let mut names = request.capacity.keys();
        let driver = &offered.id.pool.driver;
        if let Some(unknown) = names.find(|n| !device.capacity.contains_key(own_name(driver, n))) {
            return Err(Unavailable::Capacity(unknown.clone()));
        }
        let mut consumed = Amounts::new();
        for (name, capacity) in &device.capacity {
            let short = || Unavailable::Capacity(name.clone());
            let requested = request.requested(driver, name);
            let amount = capacity.consumed(requested).ok_or_else(short)?;
            let left = if device.shared {
                offered.left(name)
            } else {
                capacity.value
            };
            if amount > left {
                return Err(short());
            }
            consumed.insert(name.clone(), amount);
        }
        Ok(device.shared.then_some(consumed))
    }

    fn check_available(
        &self,
        offered: &NodeDevice,
        request: &ExactRequest,
    ) -> Result<(), Unavailable> {
        let device = offered.device();
        if !request.admin {
            if offered.held {
                return Err(Unavailable::Held);
            }
            // The first share of a shared device takes the device's counters.
            if !offered.has_shares && !self.counters[offered.pool].has_enough(&device.consumes) {
                return Err(Unavailable::Counters);
            }
        }
        let blocks = |t: &&Taint| {
            blocks_new_claims(t) && !node_filter::is_tolerated(t, &request.tolerations)
        };
        match device.taints.iter().find(blocks) {
            Some(taint) => Err(Unavailable::Taint(taint.key.as_str().into())),
            None => Ok(()),
        }
    }
}

fn blocks_new_claims(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
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
        assert_eq!(free.take(0, &any), Err(Unavailable::Held));
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
            assert_eq!(
                free.unavailable(0, &ExactRequest::default()),
                Some(Unavailable::Taint("sick".into()))
            );
            let tolerant = ExactRequest {
                tolerations: vec![Toleration {
                    key: Some("sick".into()),
                    ..Toleration::default()
                }],
                ..ExactRequest::default()
            };
            assert_eq!(free.unavailable(0, &tolerant), None);
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
        let short = Unavailable::Capacity("memory".into());
        assert_eq!(free.take(0, &gib(21)), Err(short.clone()));
        // A request without an amount is for everything.
        assert_eq!(free.unavailable(0, &ExactRequest::default()), Some(short));
        free.take(0, &gib(20)).unwrap();
        assert!(!free.is_free(0));
        let domain: Box<str> = format!("{}/memory", fixtures::DRIVER).into();
        let with_domain = ExactRequest {
            capacity: [(domain, 0)].into(),
            ..ExactRequest::default()
        };
        assert_eq!(free.unavailable(0, &with_domain), None);
        let other = ExactRequest {
            capacity: [("cores".into(), 1)].into(),
            ..ExactRequest::default()
        };
        let refused = Some(Unavailable::Capacity("cores".into()));
        assert_eq!(free.unavailable(0, &other), refused);
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
                    Err(_) => prop_assert_eq!(before, format!("{:?}", free)),
                    Ok(()) => {
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
