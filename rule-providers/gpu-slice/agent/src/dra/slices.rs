//! Describes the node's cards as devices of ResourceSlices. The functions are pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use k8s_openapi::{
    api::resource::v1::{
        CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, CounterSet, Device,
        DeviceAttribute, DeviceCapacity, DeviceCounterConsumption, DeviceTaint,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use tautline_gpu_placement::{
    dra::FAULT_TAINT,
    mig::{MigLayout, MigPlace, MigProfile},
    node_inventory::{InventoryCard, NodeInventory},
    shape::CARD_MILLI,
};
use tautline_nvml::{Card, Reading};

use super::MILLI;

/// The largest number of devices in a slice with taints or counters.
const MAX_DEVICES: usize = 64;
/// The largest number of counter sets in a slice.
const MAX_COUNTER_SETS: usize = 8;
/// The longest text of an attribute, in bytes.
const MAX_ATTRIBUTE_BYTES: usize = 64;
/// The capacity of a device in bytes.
const MEMORY: &str = "memory";
/// The counter of a card's compute slices; the memory slices have a counter each.
const COMPUTE: &str = "compute";
/// The key of the taint of a card that a pod holds by its record, as on nodes with the device
/// plugin.
const RECORD_TAINT: &str = "gpu.tautline.io/held-by-record";

/// The facts about a node from which its slices follow.
pub(super) struct NodeCards<'a> {
    pub node: &'a str,
    pub inventory: &'a NodeInventory,
    pub reading: &'a Reading,
    /// The UUIDs of the cards that pods hold by their records.
    pub held: BTreeSet<&'a str>,
    /// The UUIDs of the cards whose pods have to go.
    pub evicted: BTreeSet<&'a str>,
}

/// The content of a slice: devices or counter sets, never both.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Content {
    pub devices: Vec<Device>,
    pub shared_counters: Vec<CounterSet>,
}

/// Returns the name of a card's device: its UUID in lower case, since an index may mean another
/// card after a restart of the node. The device of a MIG instance has its place and size after it.
pub(super) fn card_name(card: &InventoryCard) -> String {
    card.uuid.to_ascii_lowercase()
}

/// Returns the card that a device means, and the thousandths and the first memory slice of its MIG
/// instance if it means one.
pub(super) fn find_device<'a>(
    inventory: &'a NodeInventory,
    device: &str,
) -> Option<(&'a InventoryCard, Option<(u16, u8)>)> {
    inventory.cards.iter().find_map(|card| {
        let rest = device.strip_prefix(card_name(card).as_str())?;
        if rest.is_empty() {
            return Some((card, None));
        }
        let (start, milli) = rest.strip_prefix("-mig-")?.split_once('-')?;
        Some((card, Some((milli.parse().ok()?, start.parse().ok()?))))
    })
}

/// Returns the contents of the node's slices, in the order of the cards; empty without cards.
pub(super) fn slices(of: &NodeCards<'_>) -> Vec<Content> {
    let (mut whole, mut sets, mut divided) = (Vec::new(), Vec::new(), Vec::new());
    for card in &of.inventory.cards {
        match &card.mig {
            Some(layout) => {
                let compute = layout.free_compute(layout.empty());
                sets.push(CounterSet {
                    name: card_name(card),
                    counters: counters(layout.whole().slices(), compute),
                });
                divided.push(instances(of, card, layout));
            }
            None => whole.push(whole_card(of, card)),
        }
    }
    let content = |devices: &[Device], sets: &[CounterSet]| Content {
        devices: devices.to_vec(),
        shared_counters: sets.to_vec(),
    };
    let devices = |devices: &[Device]| content(devices, &[]);
    let mut contents: Vec<Content> = whole.chunks(MAX_DEVICES).map(devices).collect();
    let sets = sets.chunks(MAX_COUNTER_SETS);
    contents.extend(sets.map(|sets| content(&[], sets)));
    let divided = divided.iter().flat_map(|all| all.chunks(MAX_DEVICES));
    contents.extend(divided.map(devices));
    contents
}

fn whole_card(of: &NodeCards<'_>, card: &InventoryCard) -> Device {
    let amount = |amount: u16| Quantity(amount.to_string());
    let mut milli = capacity(CARD_MILLI.into());
    milli.request_policy = Some(CapacityRequestPolicy {
        default: Some(amount(CARD_MILLI)),
        valid_range: Some(CapacityRequestPolicyRange {
            min: amount(1),
            max: Some(amount(CARD_MILLI)),
            step: Some(amount(1)),
        }),
        valid_values: None,
    });
    // Claims do not consume the memory, since a share of the card includes it.
    let mut memory = capacity(card.memory_bytes);
    memory.request_policy = Some(CapacityRequestPolicy {
        default: Some(amount(0)),
        valid_values: Some(vec![amount(0)]),
        valid_range: None,
    });
    Device {
        name: card_name(card),
        allow_multiple_allocations: Some(true),
        attributes: Some(attributes(of, card)),
        capacity: Some([(MILLI.to_owned(), milli), (MEMORY.to_owned(), memory)].into()),
        taints: taints(of, card),
        ..Device::default()
    }
}

fn capacity(value: u64) -> DeviceCapacity {
    DeviceCapacity {
        value: Quantity(value.to_string()),
        request_policy: None,
    }
}

/// Returns a device for each MIG instance that the card can have beside the administrator's, the
/// smallest first.
fn instances(of: &NodeCards<'_>, card: &InventoryCard, layout: &MigLayout) -> Vec<Device> {
    let taken = layout.empty();
    let free = layout.instances().into_iter();
    let free = free.filter(|(_, _, place)| taken.is_free(*place));
    let device = |(milli, profile, place): (u16, &MigProfile, MigPlace)| {
        let mut attributes = attributes(of, card);
        attributes.insert("profile".to_owned(), text(&profile.name));
        let bytes = card.memory_bytes / u64::from(CARD_MILLI) * u64::from(milli);
        Device {
            name: format!("{}-mig-{}-{milli}", card_name(card), place.start),
            attributes: Some(attributes),
            capacity: Some([(MEMORY.to_owned(), capacity(bytes))].into()),
            consumes_counters: Some(vec![DeviceCounterConsumption {
                counter_set: card_name(card),
                counters: counters(place.slices(), place.compute),
            }]),
            taints: taints(of, card),
            ..Device::default()
        }
    };
    free.map(device).collect()
}

fn counters(slices: impl Iterator<Item = u8>, compute: u8) -> BTreeMap<String, Counter> {
    let counter = |count: u8| Counter {
        value: Quantity(count.to_string()),
    };
    let memory = slices.map(|slice| (format!("memory-slice-{slice}"), counter(1)));
    memory
        .chain([(COMPUTE.to_owned(), counter(compute))])
        .collect()
}

fn text(text: &str) -> DeviceAttribute {
    let ascii = text.chars().filter(char::is_ascii);
    DeviceAttribute {
        string: Some(ascii.take(MAX_ATTRIBUTE_BYTES).collect()),
        ..DeviceAttribute::default()
    }
}

fn number(number: impl Into<i64>) -> DeviceAttribute {
    DeviceAttribute {
        int: Some(number.into()),
        ..DeviceAttribute::default()
    }
}

/// Returns a version as the semantic version that attributes require: `580.95.05` is `580.95.5`.
fn version(version: &str) -> Option<DeviceAttribute> {
    let numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let mut numbers: Vec<u32> = numbers.collect::<Option<_>>()?;
    numbers.resize(3, 0);
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    Some(DeviceAttribute {
        version: Some(numbers.join(".")),
        ..DeviceAttribute::default()
    })
}

/// Returns the attributes of a card; those that NVIDIA's DRA driver has too have its names.
fn attributes(of: &NodeCards<'_>, card: &InventoryCard) -> BTreeMap<String, DeviceAttribute> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, value: Option<DeviceAttribute>| {
        all.extend(value.map(|value| (name.to_owned(), value)));
    };
    add("uuid", Some(text(&card.uuid)));
    add("index", Some(number(card.index)));
    add("numaNode", card.numa.map(number));
    let domain = card.nvlink.map(|n| text(&domain_name(of.node, n)));
    add("nvlinkDomain", domain);
    add("driverVersion", version(&of.reading.driver));
    add("cudaDriverVersion", version(&of.reading.cuda));
    if let Some(read) = of.reading.cards.iter().find(|c| c.uuid == card.uuid) {
        let Card {
            product,
            compute,
            pci,
            ..
        } = read;
        let capability = format!("{}.{}", compute.0, compute.1);
        let capability = version(&capability).filter(|_| compute.0 > 0);
        add("productName", Some(text(product)));
        add("cudaComputeCapability", capability);
        add("resource.kubernetes.io/pcieRoot", pcie_root(pci));
    }
    all
}

/// Returns a name of the NVLink domain that other nodes' domains do not have.
fn domain_name(node: &str, domain: u16) -> String {
    let end = format!(".{domain}");
    let dropped = node.len().saturating_sub(MAX_ATTRIBUTE_BYTES - end.len());
    node.chars().skip(dropped).chain(end.chars()).collect()
}

/// Returns the PCIe root of a card, such as `pci0000:00`, from the path of the device in sysfs.
fn pcie_root(pci: &str) -> Option<DeviceAttribute> {
    let device = Path::new("/sys/bus/pci/devices").join(pci.to_ascii_lowercase());
    let path = std::fs::canonicalize(device).ok()?;
    let mut parts = path.iter().filter_map(|part| part.to_str());
    let is_root = |part: &&str| part.starts_with("pci") && part.contains(':');
    parts.find(is_root).map(text)
}

fn taints(of: &NodeCards<'_>, card: &InventoryCard) -> Option<Vec<DeviceTaint>> {
    let taint = |key: &str, value: &str, effect: &str| DeviceTaint {
        key: key.to_owned(),
        value: Some(value.to_owned()),
        effect: effect.to_owned(),
        time_added: None,
    };
    let mut taints = Vec::new();
    if let Some(fault) = &card.fault {
        taints.push(taint(FAULT_TAINT, fault, "NoSchedule"));
        if of.evicted.contains(card.uuid.as_str()) {
            taints.push(taint(FAULT_TAINT, fault, "NoExecute"));
        }
    }
    if of.held.contains(card.uuid.as_str()) {
        taints.push(taint(RECORD_TAINT, "true", "NoSchedule"));
    }
    (!taints.is_empty()).then_some(taints)
}

#[cfg(test)]
#[path = "slices_tests.rs"]
mod tests;
