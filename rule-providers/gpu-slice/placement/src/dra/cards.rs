use std::collections::BTreeMap;

use super::{
    model::{Device, PoolId},
    node::{NodeDevice, NodeDevices},
};
use crate::mig::{Geometry, MigCard};

/// A GPU of a node, assembled from the devices that are parts of the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCard {
    /// Pool of the card's first device.
    pub pool: PoolId,
    /// UUID of the card if it is known, else the name of the counter set or of the device.
    pub id: Box<str>,
    /// Attribute `productName`, such as `NVIDIA A100-SXM4-80GB`.
    pub product: Option<Box<str>>,
    /// Attribute `architecture`, such as `Ampere`.
    pub architecture: Option<Box<str>>,
    /// Memory in bytes; for a card that is offered in parts only, the memory of the largest part.
    pub memory: i64,
    /// Free part of the card's scarcest resource, in thousandths; 0 if no device is free.
    pub free_milli: u16,
    /// Positions of the card's devices in [`NodeDevices::devices`].
    pub devices: Vec<usize>,
}

/// The identity of a card. Devices with the same key are parts of one card:
/// 1. the first counter set that they consume (KEP-4815);
/// 2. `parentUUID`, which NVIDIA's driver sets on MIG devices;
/// 3. `uuid`;
/// 4. otherwise the device: each device is a card.
///
/// The attribute `resource.kubernetes.io/pcieRoot` is no key: several cards share a root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CardKey {
    Counters(PoolId, Box<str>),
    /// The driver and the UUID. The pool is not part of the key, as two pools may have parts of one
    /// card.
    Uuid(std::sync::Arc<str>, Box<str>),
    Device(PoolId, Box<str>),
}

fn key(offered: &NodeDevice) -> CardKey {
    let (pool, device) = (&offered.id.pool, offered.device());
    if let Some(set) = device.consumes.first() {
        return CardKey::Counters(pool.clone(), set.name.clone());
    }
    match device.text("parentUUID").or(device.text("uuid")) {
        Some(uuid) => CardKey::Uuid(pool.driver.clone(), uuid.into()),
        None => CardKey::Device(pool.clone(), (*device.name).into()),
    }
}

fn is_part(device: &Device) -> bool {
    device.text("parentUUID").is_some() || device.text("profile").is_some()
}

impl NodeDevices {
    /// The node's cards, in the order of their first devices.
    pub fn cards(&self) -> Vec<DeviceCard> {
        self.by_card().into_iter().map(|c| self.card(c)).collect()
    }

    /// The part of its card that a device is, in thousandths: by counters, or else by the MIG
    /// profile of a known model, or else an equal part among the card's parts. A device that is not
    /// a part has 1000.
    pub fn milli_of(&self, position: usize) -> u16 {
        let Some(offered) = self.devices.get(position) else {
            return 0;
        };
        let own = key(offered);
        let siblings = self.devices.iter().filter(|o| key(o) == own);
        self.part_milli(offered, siblings.filter(|o| is_part(o.device())).count())
    }

    fn by_card(&self) -> Vec<Vec<usize>> {
        let mut order = Vec::new();
        let mut cards: BTreeMap<CardKey, Vec<usize>> = BTreeMap::new();
        for (position, offered) in self.devices.iter().enumerate() {
            let key = key(offered);
            let at = cards.entry(key.clone()).or_default();
            if at.is_empty() {
                order.push(key);
            }
            at.push(position);
        }
        order.iter().filter_map(|k| cards.remove(k)).collect()
    }

    fn part_milli(&self, offered: &NodeDevice, parts: usize) -> u16 {
        let device = offered.device();
        if let Some(set) = device.consumes.first() {
            return self.counters(offered).share_milli(set).unwrap_or(1000);
        }
        if !is_part(device) {
            return 1000;
        }
        let of_profile = || {
            let geometry = Geometry::of_product(device.text("productName")?, None)?;
            Some(geometry.profile(device.text("profile")?)?.milli(geometry))
        };
        let equal = || u16::try_from(1000 / parts.max(1)).unwrap_or(1000);
        of_profile().unwrap_or_else(equal)
    }

    fn card(&self, devices: Vec<usize>) -> DeviceCard {
        let all = || devices.iter().filter_map(|i| self.devices.get(*i));
        let text = |name: &str| all().find_map(|o| o.device().text(name)).map(Into::into);
        let whole = all().find(|o| !is_part(o.device()));
        let uuid = whole.and_then(|o| o.device().text("uuid"));
        let uuid = uuid.or_else(|| all().find_map(|o| o.device().text("parentUUID")));
        let first = all().next();
        let named = first.map(|o| match key(o) {
            CardKey::Counters(_, name) | CardKey::Uuid(_, name) | CardKey::Device(_, name) => name,
        });
        let memory = |o: &NodeDevice| o.device().capacity.get("memory").map_or(0, |c| c.value);
        DeviceCard {
            pool: first.map_or_else(
                || PoolId {
                    driver: "".into(),
                    pool: "".into(),
                },
                |o| o.id.pool.clone(),
            ),
            id: uuid.map(Into::into).or(named).unwrap_or_default(),
            product: text("productName"),
            architecture: text("architecture"),
            memory: all().map(memory).max().unwrap_or(0) / 1000,
            free_milli: self.card_milli(&devices),
            devices,
        }
    }

    fn card_milli(&self, devices: &[usize]) -> u16 {
        if !devices.iter().any(|i| self.is_free(*i)) {
            return 0;
        }
        let all = || devices.iter().filter_map(|i| self.devices.get(*i));
        let parts = all().filter(|o| is_part(o.device())).count();
        let size = |o: &NodeDevice| u32::from(self.part_milli(o, parts));
        let by_counters = all().find_map(|o| {
            let set = o.device().consumes.first()?;
            self.counters(o).free_milli(&set.name)
        });
        if let Some(free) = by_counters {
            let open = all().filter(|o| o.share_count > 0);
            let rest: u32 = open
                .map(|o| size(o) * u32::from(o.left_milli()) / 1000)
                .sum();
            return u16::try_from((u32::from(free) + rest).min(1000)).unwrap_or(1000);
        }
        let used: u32 = all()
            .map(|o| size(o) * u32::from(1000 - o.left_milli()) / 1000)
            .sum();
        u16::try_from(1000 - used.min(1000)).unwrap_or(0)
    }

    /// The card with its MIG instances, if its devices are possible instances (`memory-slice-N`
    /// counters or `memorySliceN` capacities of NVIDIA's driver give their place). Instances
    /// that do not fit the model are omitted.
    pub fn mig(&self, card: &DeviceCard) -> Option<MigCard> {
        let product = card.product.as_deref()?;
        let mib = u64::try_from(card.memory >> 20).ok()?;
        let geometry =
            Geometry::of_product(product, Some(mib)).or(Geometry::of_product(product, None))?;
        let of = |i: &usize| self.devices.get(*i);
        let parts = || {
            let all = card.devices.iter().filter_map(of);
            all.filter(|o| is_part(o.device()))
        };
        parts().next()?;
        let mut mig = MigCard::new(geometry);
        for offered in parts().filter(|o| o.held || o.share_count > 0) {
            let device = offered.device();
            let profile = device.text("profile").and_then(|n| geometry.profile(n));
            if let (Some(profile), Some(start)) = (profile, first_slice(device)) {
                _ = mig.take_at(profile, start);
            }
        }
        Some(mig)
    }
}

fn first_slice(device: &Device) -> Option<u8> {
    let counters = device.consumes.iter().flat_map(|s| s.counters.keys());
    let slices = counters.filter_map(|n| n.strip_prefix("memory-slice-"));
    let capacities = device.capacity.keys();
    let slices = slices.chain(capacities.filter_map(|n| n.strip_prefix("memorySlice")));
    slices.filter_map(|n| n.parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dra::{
        ExactRequest,
        fixtures::{self, node, partitioned, shared, static_mig, whole},
    };

    fn take(free: &mut NodeDevices, device: &str) {
        let named = |o: &NodeDevice| &*o.id.device == device;
        let at = free.devices().iter().position(named).unwrap();
        free.take(at, &ExactRequest::default()).unwrap();
    }

    #[test]
    fn whole_cards_are_free_or_not() {
        let mut free = fixtures::pools([whole("n", 2)]).node_devices(&node("n"));
        take(&mut free, "gpu-0");
        let milli: Vec<u16> = free.cards().iter().map(|c| c.free_milli).collect();
        assert_eq!(milli, [0, 1000]);
        let card = &free.cards()[1];
        assert_eq!(&*card.id, "GPU-n-1");
        assert_eq!(card.product.as_deref(), Some("NVIDIA A100-SXM4-80GB"));
        assert_eq!(card.memory, 80 << 30);
        assert!(free.mig(card).is_none());
    }

    #[test]
    fn partitions_of_a_card_are_one_card() {
        let mut free = fixtures::pools(partitioned("n", 1)).node_devices(&node("n"));
        assert_eq!(free.cards().len(), 1);
        assert_eq!(free.cards()[0].free_milli, 1000);
        assert_eq!(free.milli_of(0), 1000);
        take(&mut free, "gpu-0-mig-3g40gb-4");
        let card = &free.cards()[0];
        assert_eq!(card.free_milli, 500);
        let mig = free.mig(card).unwrap();
        assert_eq!(format!("{mig:?}"), "A100 or H100 80GB [3g.40gb 4:4]");
        assert!(mig.fits(mig.geometry().profile("4g.40gb").unwrap()));
        let free_now: Vec<&str> = (0..free.devices().len())
            .filter(|i| free.is_free(*i))
            .map(|i| &*free.devices()[i].id.device)
            .collect();
        assert!(free_now.contains(&"gpu-0-mig-4g40gb-0"));
        assert!(free_now.iter().all(|n| !n.ends_with("-4") && *n != "gpu-0"));
        take(&mut free, "gpu-0-mig-3g40gb-0");
        assert_eq!(free.cards()[0].free_milli, 0);
    }

    #[test]
    fn instances_that_are_there_for_good() {
        let mut free = fixtures::pools([static_mig("n")]).node_devices(&node("n"));
        assert_eq!(free.cards().len(), 1);
        take(&mut free, "gpu-0-mig-3g");
        let card = &free.cards()[0];
        assert_eq!((&*card.id, card.free_milli), ("GPU-n-0", 500));
        let mig = free.mig(card).unwrap();
        assert_eq!(mig.free_milli(), 500);
    }

    #[test]
    fn shares_leave_a_part_of_the_card() {
        let mut free = fixtures::pools([shared("n", 1, 80)]).node_devices(&node("n"));
        let wanted = ExactRequest {
            capacity: [("memory".into(), 20_000)].into(),
            ..ExactRequest::default()
        };
        free.take(0, &wanted).unwrap();
        assert_eq!(free.cards()[0].free_milli, 750);
    }
}
