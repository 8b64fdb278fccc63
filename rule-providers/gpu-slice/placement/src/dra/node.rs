//! The devices that a node can reach, and what is left of each.

use std::sync::Arc;

use tautline_core::{model::Taint, node_filter};

use super::{
    counters::{Counters, milli},
    model::{Amounts, Device, DeviceId, PoolId, Slice, Wanted, own_name},
    pool::Unusable,
};

/// A device of a node, with what is held of it.
#[derive(Clone, Debug)]
pub struct Offered {
    pub(super) id: DeviceId,
    pub(super) slice: Arc<Slice>,
    pub(super) position: usize,
    /// Its pool among the node's.
    pub(super) pool: usize,
    pub(super) held: bool,
    pub(super) shares: u32,
    pub(super) used: Amounts,
}

impl Offered {
    pub fn id(&self) -> &DeviceId {
        &self.id
    }

    pub fn device(&self) -> &Device {
        &self.slice.devices[self.position]
    }

    /// A claim has it for itself.
    pub fn held(&self) -> bool {
        self.held
    }

    /// How many claims have a part of it.
    pub fn shares(&self) -> u32 {
        self.shares
    }

    /// What is left of a capacity.
    pub fn left(&self, capacity: &str) -> i64 {
        let total = self.device().capacity.get(capacity).map_or(0, |c| c.value);
        let used = self.used.get(capacity).copied().unwrap_or(0);
        if self.held { 0 } else { (total - used).max(0) }
    }

    /// The scarcest of its capacities in thousandths; all of it or nothing where
    /// it is not shared.
    pub fn left_milli(&self) -> u16 {
        let capacities = &self.device().capacity;
        let rests = capacities.iter().filter(|(_, c)| c.value > 0);
        let scarcest = rests.map(|(n, c)| milli(self.left(n), c.value)).min();
        match scarcest {
            _ if self.held => 0,
            Some(scarcest) if self.device().shared => scarcest,
            _ => 1000,
        }
    }
}

/// Why a device cannot be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("another claim has it")]
    Held,
    #[error("devices of the same card leave too little")]
    Counters,
    #[error("taint {0} is not tolerated")]
    Taint(Box<str>),
    #[error("too little {0} is left, or less than that must be asked for")]
    Capacity(Box<str>),
}

/// What a node's devices are and what is left of them. A device is never given
/// twice, and no counter or capacity beyond what there is.
#[derive(Clone, Debug, Default)]
pub struct NodeDevices {
    pub(super) offered: Vec<Offered>,
    pub(super) counters: Vec<Counters>,
    pub(super) ignored: Vec<(PoolId, Unusable)>,
}

impl NodeDevices {
    /// The devices in the order in which the scheduler's allocator tries them:
    /// by driver, pool and slice name, then as published; pools with binding
    /// conditions last.
    pub fn devices(&self) -> &[Offered] {
        &self.offered
    }

    /// Pools whose devices are left out, and why.
    pub fn ignored(&self) -> &[(PoolId, Unusable)] {
        &self.ignored
    }

    /// What is left of the counters of a device's pool.
    pub fn counters(&self, device: &Offered) -> &Counters {
        &self.counters[device.pool]
    }

    /// Whether claims hold more of some pool than it has.
    pub fn overdrawn(&self) -> bool {
        self.counters.iter().any(Counters::overdrawn)
    }

    /// What keeps a request from the device at a position, if anything does.
    /// Its selectors are not read here.
    pub fn refusal(&self, position: usize, wanted: &Wanted) -> Option<Refusal> {
        self.consumption(position, wanted).err()
    }

    /// Whether the device could be given to some request without tolerations.
    pub fn is_free(&self, position: usize) -> bool {
        let Some(offered) = self.offered.get(position) else {
            return false;
        };
        self.unblocked(offered, &Wanted::default()).is_ok() && offered.left_milli() > 0
    }

    /// Gives the device at a position to a request.
    ///
    /// # Errors
    /// What keeps it from the request; nothing is changed then.
    pub fn take(&mut self, position: usize, wanted: &Wanted) -> Result<(), Refusal> {
        let consumed = self.consumption(position, wanted)?;
        let Some(offered) = self.offered.get_mut(position) else {
            return Err(Refusal::Held);
        };
        if wanted.admin {
            return Ok(());
        }
        let consumes = &offered.slice.devices[offered.position].consumes;
        if offered.shares == 0 && !self.counters[offered.pool].take(consumes) {
            return Err(Refusal::Counters);
        }
        match consumed {
            None => offered.held = true,
            Some(consumed) => {
                offered.shares += 1;
                for (name, amount) in consumed {
                    let used = offered.used.entry(name).or_default();
                    *used = used.saturating_add(amount);
                }
            }
        }
        Ok(())
    }

    /// What of a shared device's capacity a request consumes; `None`: it takes
    /// the whole device.
    fn consumption(&self, position: usize, wanted: &Wanted) -> Result<Option<Amounts>, Refusal> {
        let Some(offered) = self.offered.get(position) else {
            return Err(Refusal::Held);
        };
        self.unblocked(offered, wanted)?;
        let device = offered.device();
        let mut names = wanted.capacity.keys();
        let driver = &offered.id.pool.driver;
        if let Some(unknown) = names.find(|n| !device.capacity.contains_key(own_name(driver, n))) {
            return Err(Refusal::Capacity(unknown.clone()));
        }
        let mut consumed = Amounts::new();
        for (name, capacity) in &device.capacity {
            let short = || Refusal::Capacity(name.clone());
            let asked = wanted.asked(driver, name);
            let amount = capacity.consumed(asked).ok_or_else(short)?;
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

    fn unblocked(&self, offered: &Offered, wanted: &Wanted) -> Result<(), Refusal> {
        let device = offered.device();
        if !wanted.admin {
            if offered.held {
                return Err(Refusal::Held);
            }
            // A shared device has its counters from its first share on.
            if offered.shares == 0 && !self.counters[offered.pool].suffice(&device.consumes) {
                return Err(Refusal::Counters);
            }
        }
        let blocks =
            |t: &&Taint| keeps_off(t) && !node_filter::is_tolerated(t, &wanted.tolerations);
        match device.taints.iter().find(blocks) {
            Some(taint) => Err(Refusal::Taint(taint.key.as_str().into())),
            None => Ok(()),
        }
    }
}

/// Effects that keep new claims away; unknown ones and `None` do not.
fn keeps_off(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dra::fixtures::{self, node, partitioned, shared, whole};
    use proptest::prelude::*;
    use tautline_core::model::Toleration;

    #[test]
    fn exclusive_devices_go_once() {
        let mut free = fixtures::pools([whole("n", 2)]).free(&node("n"));
        let any = Wanted::default();
        assert!(free.is_free(0));
        free.take(0, &any).unwrap();
        assert_eq!(free.take(0, &any), Err(Refusal::Held));
        assert!(!free.is_free(0) && free.is_free(1) && !free.is_free(2));
        // Administrative access takes nothing, and is not kept off.
        let admin = Wanted {
            admin: true,
            ..any.clone()
        };
        free.take(0, &admin).unwrap();
        free.take(1, &admin).unwrap();
        assert!(free.is_free(1));
    }

    #[test]
    fn taints_keep_off_whoever_does_not_tolerate_them() {
        let mut slice = whole("n", 1);
        let taint = |effect: &str| Taint {
            key: "sick".into(),
            value: "xid".into(),
            effect: effect.into(),
        };
        slice.devices[0].taints = vec![taint("None"), taint("Later")];
        assert!(fixtures::pools([slice.clone()]).free(&node("n")).is_free(0));
        for effect in ["NoSchedule", "NoExecute"] {
            slice.devices[0].taints = vec![taint(effect)];
            let free = fixtures::pools([slice.clone()]).free(&node("n"));
            assert_eq!(
                free.refusal(0, &Wanted::default()),
                Some(Refusal::Taint("sick".into()))
            );
            let tolerant = Wanted {
                tolerations: vec![Toleration {
                    key: Some("sick".into()),
                    ..Toleration::default()
                }],
                ..Wanted::default()
            };
            assert_eq!(free.refusal(0, &tolerant), None);
            assert_eq!(free.cards()[0].free_milli, 0);
        }
    }

    #[test]
    fn shares_of_a_device() {
        let mut free = fixtures::pools([shared("n", 1, 80)]).free(&node("n"));
        let gib = |n: i64| Wanted {
            capacity: [("memory".into(), n * 1000)].into(),
            ..Wanted::default()
        };
        free.take(0, &gib(60)).unwrap();
        assert_eq!(free.devices()[0].left_milli(), 250);
        let short = Refusal::Capacity("memory".into());
        assert_eq!(free.take(0, &gib(21)), Err(short.clone()));
        // Without a figure it is all of it.
        assert_eq!(free.refusal(0, &Wanted::default()), Some(short));
        free.take(0, &gib(20)).unwrap();
        assert_eq!((free.is_free(0), free.devices()[0].shares()), (false, 2));
        let domain: Box<str> = format!("{}/memory", fixtures::DRIVER).into();
        let with_domain = Wanted {
            capacity: [(domain, 0)].into(),
            ..Wanted::default()
        };
        assert_eq!(free.refusal(0, &with_domain), None);
        let other = Wanted {
            capacity: [("cores".into(), 1)].into(),
            ..Wanted::default()
        };
        let refused = Some(Refusal::Capacity("cores".into()));
        assert_eq!(free.refusal(0, &other), refused);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Whatever is taken in whatever order: no counter and no capacity is
        /// exceeded, no device given twice, and a refusal changes nothing.
        #[test]
        fn never_over_committed(takes in prop::collection::vec((0..24usize, 0..90i64), 0..60)) {
            let slices = partitioned("n", 1).into_iter().chain([shared("n", 2, 80), whole("n", 2)]);
            let mut free = fixtures::pools(slices).free(&node("n"));
            let mut given = std::collections::BTreeSet::new();
            for (position, amount) in takes {
                let mut wanted = Wanted::default();
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
                prop_assert!(!free.overdrawn());
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
