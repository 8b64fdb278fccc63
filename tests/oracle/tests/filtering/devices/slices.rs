//! Random pools of devices, as DRA drivers publish them in ResourceSlices.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::filtering::random::{chance, pick};

pub const DRIVER: &str = "gpu.example.com";
pub const OTHER_DRIVER: &str = "other.example.com";
const CARD_MEMORY_GIB: u32 = 40;
/// The parts of a card that is partitionable. Each has an equal share of the memory.
const CARD_PARTS: u32 = 4;

/// A pool's slices, and the devices of the slices that count.
pub struct Pool {
    pub slices: Vec<Value>,
    pub devices: Vec<Offer>,
}

/// A device that a claim may hold.
#[derive(Clone)]
pub struct Offer {
    pub driver: String,
    pub pool: String,
    pub device: String,
    /// The node that alone has the device.
    pub node: Option<String>,
    /// The memory of a device that several claims may share.
    pub shared_gib: Option<u32>,
    /// The card that the device is a part of, and the number of its parts.
    pub card: Option<(String, u32)>,
}

/// Returns a pool that `node` alone has, or that some or all nodes have.
pub fn pool(rng: &mut Rng, name: &str, node: Option<&str>) -> Pool {
    let driver = if chance(rng, 80) {
        DRIVER
    } else {
        OTHER_DRIVER
    };
    let (counters, devices) = match rng.u32(..10) {
        0..6 => (Vec::new(), whole(rng)),
        6 | 7 => (Vec::new(), shared(rng)),
        _ => partitioned(rng),
    };
    let access = access(rng, node);
    let is_per_device = access["perDeviceNodeSelection"] == true;
    let offers = devices.iter().map(|(device, shared_gib, card)| Offer {
        driver: driver.to_owned(),
        pool: name.to_owned(),
        device: device["name"].as_str().unwrap_or_default().to_owned(),
        node: node.map(str::to_owned),
        shared_gib: *shared_gib,
        card: card.clone(),
    });
    let offers: Vec<Offer> = offers.collect();
    let mut devices: Vec<Value> = devices.into_iter().map(|(device, _, _)| device).collect();
    if is_per_device {
        for device in &mut devices {
            device["nodeName"] = json!(format!("n{}", rng.u32(..4)));
        }
    }
    let generation = rng.u32(1..3);
    let mut specs = Vec::new();
    if !counters.is_empty() {
        specs.push(json!({"sharedCounters": counters}));
    }
    let split = if chance(rng, 30) {
        devices.len() / 2
    } else {
        0
    };
    let rest = devices.split_off(split);
    for devices in [devices, rest] {
        if !devices.is_empty() {
            specs.push(json!({"devices": devices}));
        }
    }
    let is_incomplete = chance(rng, 6);
    let count = specs.len() + usize::from(is_incomplete);
    let slice = |(index, mut spec): (usize, Value), generation: u32| {
        spec["driver"] = json!(driver);
        spec["pool"] = json!({"name": name, "generation": generation, "resourceSliceCount": count});
        for (field, value) in access.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": format!("{name}-{index}-{generation}")}, "spec": spec})
    };
    let outdated = specs.last().filter(|_| generation > 1 && chance(rng, 30));
    let outdated = outdated.map(|spec| slice((count, spec.clone()), generation - 1));
    let mut slices: Vec<Value> = specs
        .into_iter()
        .enumerate()
        .map(|s| slice(s, generation))
        .collect();
    slices.extend(outdated);
    Pool {
        slices,
        devices: if is_incomplete { Vec::new() } else { offers },
    }
}

/// Returns the fields of a slice that say which nodes have its devices.
fn access(rng: &mut Rng, node: Option<&str>) -> Value {
    let selector = |key: &str, value: &str| {
        json!({"nodeSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}})
    };
    match node {
        Some(node) if chance(rng, 15) => selector("kubernetes.io/hostname", node),
        Some(node) => json!({"nodeName": node}),
        None => match rng.u32(..3) {
            0 => json!({"allNodes": true}),
            1 => selector("zone", pick(rng, &["a", "b"])),
            _ => json!({"perDeviceNodeSelection": true}),
        },
    }
}

type Published = (Value, Option<u32>, Option<(String, u32)>);

fn device(rng: &mut Rng, name: String) -> Value {
    let product = if chance(rng, 20) {
        format!("{DRIVER}/productName")
    } else {
        "productName".to_owned()
    };
    let mut device = json!({"name": name, "attributes": {
        product: {"string": pick(rng, &["A100", "H100"])}, "index": {"int": 1}}});
    if chance(rng, 12) {
        let effect = pick(rng, &["NoSchedule", "NoExecute", "None"]);
        device["taints"] = json!([{"key": "sick", "value": pick(rng, &["xid", "heat"]),
            "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}]);
    }
    device
}

fn whole(rng: &mut Rng) -> Vec<Published> {
    let count = rng.u32(..5);
    let has_memory = chance(rng, 70);
    let one = |i: u32| {
        let mut device = device(rng, format!("gpu-{i}"));
        if has_memory {
            device["capacity"] = json!({"memory": {"value": format!("{CARD_MEMORY_GIB}Gi")}});
        }
        (device, None, None)
    };
    (0..count).map(one).collect()
}

fn shared(rng: &mut Rng) -> Vec<Published> {
    let count = if chance(rng, 50) { 1 } else { 2 };
    let policy = match rng.u32(..4) {
        0 => Value::Null,
        1 => json!({"default": "10Gi", "validValues": ["5Gi", "10Gi", "20Gi"]}),
        2 => json!({"default": "40Gi", "validRange": {"min": "5Gi"}}),
        _ => json!({"default": "10Gi", "validRange": {"min": "5Gi", "max": "30Gi", "step": "5Gi"}}),
    };
    let one = |i: u32| {
        let mut device = device(rng, format!("shared-{i}"));
        device["allowMultipleAllocations"] = json!(true);
        let memory = &mut device["capacity"]["memory"];
        memory["value"] = json!(format!("{CARD_MEMORY_GIB}Gi"));
        if !policy.is_null() {
            memory["requestPolicy"] = policy.clone();
        }
        (device, Some(CARD_MEMORY_GIB), None)
    };
    (0..count).map(one).collect()
}

/// Returns counters, and the cards and parts of cards that consume them.
fn partitioned(rng: &mut Rng) -> (Vec<Value>, Vec<Published>) {
    let (mut counters, mut devices) = (Vec::new(), Vec::new());
    for card in 0..rng.u32(1..3) {
        let set = format!("card-{card}");
        let amounts = |parts: u32| {
            let memory = CARD_MEMORY_GIB / CARD_PARTS * parts;
            json!({"memory": {"value": format!("{memory}Gi")}, "parts": {"value": parts.to_string()}})
        };
        counters.push(json!({"name": set, "counters": amounts(CARD_PARTS)}));
        let mut sizes = vec![CARD_PARTS, 2, 2];
        sizes.extend((0..CARD_PARTS).map(|_| 1));
        for (index, parts) in sizes.into_iter().enumerate() {
            let mut device = device(rng, format!("{set}-{index}-of-{parts}"));
            device["consumesCounters"] = json!([{"counterSet": set, "counters": amounts(parts)}]);
            devices.push((device, None, Some((set.clone(), parts))));
        }
    }
    (counters, devices)
}

/// Returns the devices that claims hold, each with the memory that the claim has of it. No card and
/// no device is given away more than once.
pub fn held(rng: &mut Rng, offers: &[Offer]) -> Vec<(Offer, Option<u32>)> {
    let mut used_parts = std::collections::BTreeMap::new();
    let mut held = Vec::new();
    for offer in offers {
        if chance(rng, 60) {
            continue;
        }
        if let Some((card, parts)) = &offer.card {
            let used: &mut u32 = used_parts.entry((&offer.pool, card)).or_default();
            if *used + parts > CARD_PARTS || (*parts == CARD_PARTS && chance(rng, 70)) {
                continue;
            }
            *used += parts;
        }
        let shares = match offer.shared_gib {
            None => vec![None],
            Some(_) => (0..rng.u32(1..4))
                .map(|_| Some(if chance(rng, 50) { 10 } else { 5 }))
                .collect(),
        };
        held.extend(shares.into_iter().map(|share| (offer.clone(), share)));
    }
    held
}
