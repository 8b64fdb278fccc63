use std::collections::BTreeMap;

use super::{
    model::{Device, PoolId},
    node::{NodeDevice, NodeDevices},
};

/// A GPU of a node, assembled from the devices that are parts of the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCard {
    /// Attribute `productName`, such as `NVIDIA A100-SXM4-80GB`.
    pub product: Option<Box<str>>,
    /// Free part of the card's scarcest resource, in thousandths; 0 if no device is free.
    pub free_milli: u16,
    /// Positions of the card's devices in [`NodeDevices::devices`].
    devices: Vec<usize>,
}

/// The identity of a card. Devices with the same key are parts of one card:
/// 1. the first counter set that they consume (KEP-4815);
/// 2. `parentUUID`, which NVIDIA's driver sets on MIG devices;
/// 3. `uuid`;
/// 4. otherwise the device: each device is a card.
///
/// The attribute `resource.kubernetes.io/pcieRoot` is no key: several cards share a root.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum CardKey<'a> {
    Counters(&'a PoolId, &'a str),
    /// The driver and the UUID. The pool is not part of the key, as two pools may have parts of one
    /// card.
    Uuid(&'a str, &'a str),
    Device(&'a PoolId, &'a str),
}

fn key(offered: &NodeDevice) -> CardKey<'_> {
    let (pool, device) = (&offered.id.pool, offered.device());
    if let Some(set) = device.consumes.first() {
        return CardKey::Counters(pool, &set.name);
    }
    match device.text("parentUUID").or(device.text("uuid")) {
        Some(uuid) => CardKey::Uuid(&pool.driver, uuid),
        None => CardKey::Device(pool, &device.name),
    }
}

fn is_part(device: &Device) -> bool {
    device.text("parentUUID").is_some() || device.text("profile").is_some()
}

impl NodeDevices {
    /// The node's cards, in the order of their first devices.
    pub fn cards(&self) -> Vec<DeviceCard> {
        let mut cards: Vec<Vec<usize>> = Vec::new();
        let mut indexes: BTreeMap<CardKey<'_>, usize> = BTreeMap::new();
        for (position, offered) in self.devices.iter().enumerate() {
            let index = *indexes.entry(key(offered)).or_insert_with(|| {
                cards.push(Vec::new());
                cards.len() - 1
            });
            cards[index].push(position);
        }
        cards.into_iter().map(|c| self.card(c)).collect()
    }

    /// The part of its card that a device is, in thousandths: by counters, or else an equal part
    /// among the card's parts. A device that is not a part has 1000.
    fn part_milli(&self, offered: &NodeDevice, parts: usize) -> u16 {
        let device = offered.device();
        if let Some(set) = device.consumes.first() {
            return self.counters(offered).share_milli(set).unwrap_or(1000);
        }
        let parts = if is_part(device) { parts.max(1) } else { 1 };
        u16::try_from(1000 / parts).unwrap_or(1000)
    }

    fn card(&self, devices: Vec<usize>) -> DeviceCard {
        let mut all = devices.iter().filter_map(|i| self.devices.get(*i));
        let product = all.find_map(|o| o.device().text("productName"));
        DeviceCard {
            product: product.map(Into::into),
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
            let open = all().filter(|o| o.has_shares);
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

    /// The value of the MIG instances that still fit on the card, higher is better: the sum of
    /// their compute slices over all instances that the driver publishes. `None`: the card's devices
    /// are not instances.
    pub fn mig_value(&self, card: &DeviceCard) -> Option<usize> {
        let compute = |i: &usize| Some((*i, compute_slices(self.devices.get(*i)?.device())?));
        let mut instances = card.devices.iter().filter_map(compute).peekable();
        instances.peek()?;
        let free = instances.filter(|(i, _)| self.is_free(*i));
        Some(free.map(|(_, slices)| slices).sum())
    }
}

/// The compute slices of a MIG device, from its profile such as `3g.40gb`; `None`: the device is no
/// instance, or has attributes such as `+me` in addition to the slices of another profile.
fn compute_slices(device: &Device) -> Option<usize> {
    let (compute, memory) = device.text("profile")?.split_once("g.")?;
    compute.parse().ok().filter(|_| !memory.contains('+'))
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
        assert_eq!(card.product.as_deref(), Some("NVIDIA A100-SXM4-80GB"));
        assert_eq!(free.mig_value(card), None);
    }

    #[test]
    fn partitions_of_a_card_are_one_card() {
        let mut free = fixtures::pools(partitioned("n", 1)).node_devices(&node("n"));
        assert_eq!(free.cards().len(), 1);
        assert_eq!(free.cards()[0].free_milli, 1000);
        take(&mut free, "gpu-0-mig-3g40gb-4");
        let card = &free.cards()[0];
        assert_eq!(card.free_milli, 500);
        // Four 1g, two 1g with twice the memory, two 2g, one 3g and one 4g still fit.
        assert_eq!(free.mig_value(card), Some(4 + 2 + 2 * 2 + 3 + 4));
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
        assert_eq!(card.free_milli, 500);
        assert_eq!(free.mig_value(card), Some(4));
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
