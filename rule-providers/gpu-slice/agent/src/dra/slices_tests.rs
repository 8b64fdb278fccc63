use serde_json::{Value, json};

use super::*;

fn card(index: u32) -> InventoryCard {
    InventoryCard {
        uuid: format!("GPU-{index:02}"),
        index,
        product: "NVIDIA-H200".to_owned(),
        memory_bytes: 141 << 30,
        nvlink: Some(0),
        numa: Some(1),
        ..InventoryCard::default()
    }
}

fn divided(index: u32) -> InventoryCard {
    let profile = |name: &str, milli, size, compute, starts: &[u8]| MigProfile {
        name: name.to_owned(),
        milli,
        size,
        compute,
        starts: starts.to_vec(),
    };
    let taken = MigPlace {
        start: 0,
        size: 1,
        compute: 1,
    };
    InventoryCard {
        mig: Some(MigLayout {
            profiles: vec![
                profile("1g.18gb", 125, 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
                profile("1g.35gb", 250, 2, 1, &[0, 2, 4, 6]),
                profile("2g.35gb", 250, 2, 2, &[0, 2, 4]),
                profile("7g.141gb", 1000, 8, 7, &[0]),
            ],
            taken: vec![taken],
        }),
        ..card(index)
    }
}

fn reading(cards: &[InventoryCard]) -> Reading {
    let read = |card: &InventoryCard| Card {
        uuid: card.uuid.clone(),
        product: "NVIDIA H200".to_owned(),
        compute: (9, 0),
        ..Card::default()
    };
    Reading {
        driver: "580.95.05".to_owned(),
        cuda: "13.0".to_owned(),
        cards: cards.iter().map(read).collect(),
        ..Reading::default()
    }
}

fn contents(cards: Vec<InventoryCard>, held: &[&str], evicted: &[&str]) -> Vec<Value> {
    let reading = reading(&cards);
    let inventory = NodeInventory {
        cards,
        ..NodeInventory::default()
    };
    let of = NodeCards {
        node: "n1",
        inventory: &inventory,
        reading: &reading,
        held: held.iter().copied().collect(),
        evicted: evicted.iter().copied().collect(),
    };
    let contents = slices(&of).into_iter();
    contents
        .map(|content| {
            assert!(content.devices.is_empty() != content.shared_counters.is_empty());
            for device in &content.devices {
                let (card, instance) = find_device(&inventory, &device.name).unwrap();
                assert_eq!(card.mig.is_some(), instance.is_some(), "{}", device.name);
            }
            json!([content.devices, content.shared_counters])
        })
        .collect()
}

#[test]
fn card_is_a_device_of_which_claims_consume_thousandths() {
    let all = contents(vec![card(0)], &[], &[]);
    let version = |text: &str| json!({"version": text});
    let device = json!({
        "name": "gpu-00",
        "allowMultipleAllocations": true,
        "attributes": {
            "uuid": {"string": "GPU-00"}, "index": {"int": 0}, "productName": {"string": "NVIDIA H200"},
            "numaNode": {"int": 1}, "nvlinkDomain": {"string": "n1.0"},
            "driverVersion": version("580.95.5"), "cudaDriverVersion": version("13.0.0"),
            "cudaComputeCapability": version("9.0.0"),
        },
        "capacity": {
            "milli": {"value": "1000", "requestPolicy": {"default": "1000",
                "validRange": {"min": "1", "max": "1000", "step": "1"}}},
            "memory": {"value": "151397597184",
                "requestPolicy": {"default": "0", "validValues": ["0"]}},
        },
    });
    assert_eq!(all, [json!([[device], []])]);
    assert_eq!(contents(vec![], &[], &[]), Vec::<Value>::new());
}

#[test]
fn cards_that_must_not_be_allocated_have_taints() {
    let broken = InventoryCard {
        fault: Some("Xid79".to_owned()),
        ..card(0)
    };
    let cards = vec![broken, card(1), card(2)];
    let taints = |evicted: &[&str]| {
        let all = contents(cards.clone(), &["GPU-01"], evicted);
        let devices = all[0][0].as_array().unwrap().clone();
        let taints = devices.iter().map(|d| d["taints"].clone());
        taints.collect::<Vec<Value>>()
    };
    let fault = |effect: &str| json!({"key": FAULT_TAINT, "value": "Xid79", "effect": effect});
    let held = json!([{"key": RECORD_TAINT, "value": "true", "effect": "NoSchedule"}]);
    let none = Value::Null;
    let [first, second] = ["NoSchedule", "NoExecute"].map(fault);
    assert_eq!(taints(&[]), [json!([first]), held.clone(), none.clone()]);
    let evicting = taints(&["GPU-00", "GPU-02"]);
    assert_eq!(evicting, [json!([first, second]), held, none]);
}

#[test]
fn card_in_mig_mode_is_a_device_for_each_instance() {
    let all = contents(vec![card(0), divided(1)], &[], &[]);
    assert_eq!(all.len(), 3);
    let counters = &all[1][1][0];
    assert_eq!(counters["name"], "gpu-01");
    assert_eq!(counters["counters"]["memory-slice-7"]["value"], "1");
    assert_eq!(counters["counters"]["compute"]["value"], "6");
    let devices = all[2][0].as_array().unwrap();
    let shown: Vec<_> = devices
        .iter()
        .map(|d| {
            let profile = d["attributes"]["profile"]["string"].as_str().unwrap();
            (d["name"].as_str().unwrap(), profile)
        })
        .collect();
    // The administrator has an instance on the first slice.
    assert_eq!(
        shown,
        [
            ("gpu-01-mig-1-125", "1g.18gb"),
            ("gpu-01-mig-2-125", "1g.18gb"),
            ("gpu-01-mig-3-125", "1g.18gb"),
            ("gpu-01-mig-4-125", "1g.18gb"),
            ("gpu-01-mig-5-125", "1g.18gb"),
            ("gpu-01-mig-6-125", "1g.18gb"),
            ("gpu-01-mig-2-250", "2g.35gb"),
            ("gpu-01-mig-4-250", "2g.35gb"),
            ("gpu-01-mig-6-250", "1g.35gb"),
        ]
    );
    assert_eq!(
        devices[6]["consumesCounters"],
        json!([{"counterSet": "gpu-01", "counters": {
            "memory-slice-2": {"value": "1"}, "memory-slice-3": {"value": "1"},
            "compute": {"value": "2"}}}])
    );
    assert!(devices[6].get("allowMultipleAllocations").is_none());
}

#[test]
fn slices_stay_within_the_limits_of_the_api() {
    let plain = contents((0..65).map(card).collect(), &[], &[]);
    let sizes: Vec<_> = plain
        .iter()
        .map(|c| c[0].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [64, 1]);
    let mig = contents((0..9).map(divided).collect(), &[], &[]);
    let sets: Vec<_> = mig.iter().map(|c| c[1].as_array().unwrap().len()).collect();
    assert_eq!(sets, [8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let long = "n".repeat(70);
    let name = domain_name(&long, 12);
    assert!(
        name.len() == MAX_ATTRIBUTE_BYTES && name.ends_with("n.12"),
        "{name}"
    );
    assert_eq!(version("r580"), None);
}
