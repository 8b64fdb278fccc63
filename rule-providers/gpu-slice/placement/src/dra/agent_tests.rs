use tautline_core::model::Taint;

use super::*;
use crate::{
    dra::{
        fixtures,
        model::{Access, Capacity, DeviceId, ExactRequest, PoolId, Slice},
    },
    inventory::{self, Card, CardPool},
    topology::CardLinks,
};

const GIB: i64 = (1 << 30) * 1000;

fn device(name: &str, uuid: &str, memory: i64) -> Device {
    let texts = [("uuid", uuid), ("productName", "NVIDIA H100")];
    let memory = Capacity {
        value: memory * GIB,
        policy: None,
    };
    let index = name.split('-').nth(1).unwrap().parse().unwrap();
    Device {
        name: name.into(),
        numbers: [("index".into(), index)].into(),
        attributes: texts.map(|(n, v)| (n.into(), v.into())).into(),
        capacity: [("memory".into(), memory)].into(),
        shared: true,
        ..Device::default()
    }
}

fn pool(driver: &str) -> PoolId {
    PoolId {
        driver: driver.into(),
        pool: "n7".into(),
    }
}

fn slice(driver: &str, devices: Vec<Device>) -> Slice {
    Slice {
        name: "n7-gpu.tautline.io-0".into(),
        id: pool(driver),
        generation: 1,
        slices: 1,
        access: Access::Node("n7".into()),
        counters: Vec::new(),
        devices,
    }
}

fn held(device: &str, milli: Option<i64>) -> Allocation {
    Allocation {
        device: DeviceId {
            pool: pool(AGENT_DRIVER),
            device: device.into(),
        },
        admin: false,
        share: milli.map(|_| "share".into()),
        consumed: milli
            .map(|m| ("milli".into(), m * 1000))
            .into_iter()
            .collect(),
        tolerations: Vec::new(),
    }
}

fn claim(name: &str, allocated: &[Allocation], pods: &[&str]) -> Claim {
    Claim {
        namespace: "ml".into(),
        name: name.into(),
        allocated: Some(allocated.to_vec()),
        reserved_for: pods.iter().map(|pod| format!("uid-{pod}").into()).collect(),
        ..Claim::default()
    }
}

fn pod(name: &str) -> Arc<Pod> {
    Arc::new(Pod {
        namespace: "ml".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
        node: Some("n7".into()),
        ..Pod::default()
    })
}

fn store(devices: Vec<Device>, claims: Vec<Claim>) -> DeviceStore {
    let mut store = DeviceStore::default();
    store.reset_slices([slice(AGENT_DRIVER, devices)]);
    store.reset_claims(claims);
    store
}

fn pools(store: &DeviceStore, pods: &[Arc<Pod>]) -> Vec<CardPool> {
    let (claimed, held) = (store.agent_cards("n7"), store.agent_holders("n7", pods));
    let (node, on_node) = (fixtures::node("n7"), pods.iter().map(|pod| &**pod));
    inventory::read(&node, on_node, &held, claimed.as_ref()).pools
}

/// Each card of the node with its holders: `0: ml/a 250, ml/b 500`.
fn cards(pools: &[CardPool]) -> Vec<String> {
    let card = |card: &Card| {
        let holders = card.holders.iter();
        let holders = holders.map(|h| format!("{} {}", h.pod, h.milli));
        format!("{}: {}", card.name, holders.collect::<Vec<_>>().join(", "))
    };
    pools.iter().flat_map(|p| &p.cards).map(card).collect()
}

#[test]
fn cards_have_what_the_agent_publishes_and_what_claims_hold() {
    let mut linked = device("gpu-0", "GPU-a", 80);
    linked
        .attributes
        .insert("nvlinkDomain".into(), "n7.3".into());
    linked.numbers.insert("numaNode".into(), 1);
    let mut faulty = device("gpu-10", "GPU-c", 80);
    faulty.taints.push(Taint {
        key: FAULT_TAINT.into(),
        value: "Xid79".into(),
        effect: "NoSchedule".into(),
    });
    let devices = vec![device("gpu-2", "GPU-b", 40), faulty, linked];
    let store = store(
        devices,
        vec![
            claim(
                "a",
                &[held("gpu-0", Some(250)), held("gpu-2", Some(500))],
                &["a"],
            ),
            claim("idle", &[held("gpu-0", Some(100))], &[]),
            claim("whole", &[held("gpu-10", None)], &["gone", "b"]),
            claim("team", &[held("gpu-0", Some(300))], &["a", "b"]),
        ],
    );
    let pools = pools(&store, &[pod("a"), pod("b")]);
    let [first, second] = pools.as_slice() else {
        panic!("{pools:?}");
    };
    assert_eq!(
        cards(&pools),
        [
            "0: ml/a 250, ml/idle (claim) 100, ml/a 300, ml/b 0",
            "10: ml/b 1000",
            "2: ml/a 500"
        ]
    );
    assert_eq!(first.card_memory_bytes, Some(80 << 30));
    assert_eq!(&*first.kind.product, "NVIDIA-H100");
    assert_eq!(second.card_memory_bytes, Some(40 << 30));
    let [linked, faulty] = first.cards.as_slice() else {
        panic!("{first:?}");
    };
    assert_eq!(
        linked.links,
        CardLinks {
            nvlink: Some(3),
            numa: Some(1)
        }
    );
    assert_eq!(
        (linked.left_milli(), linked.uuid.as_deref()),
        (350, Some("GPU-a"))
    );
    assert_eq!(
        (faulty.fault.as_deref(), faulty.left_milli()),
        (Some("Xid79"), 0)
    );
    assert_eq!(store.agent_cards("n8"), None);
    let parts = store.agent_parts(&pod("b")).unwrap();
    let parts: Vec<_> = parts.iter().map(|p| (&*p.card, p.milli)).collect();
    assert_eq!(parts, [("0", 300), ("10", 1000)]);
}

#[test]
fn cards_are_shown_while_the_agent_replaces_its_slices() {
    let mut store = DeviceStore::default();
    store.reset_slices([Slice {
        slices: 2,
        ..slice(AGENT_DRIVER, vec![device("gpu-0", "GPU-a", 80)])
    }]);
    assert_eq!(cards(&pools(&store, &[])), ["0: "]);
}

#[test]
fn devices_of_other_drivers_are_no_cards_of_the_agent() {
    let mut store = DeviceStore::default();
    store.reset_slices([slice("gpu.nvidia.com", vec![device("gpu-0", "GPU-a", 80)])]);
    assert!(pools(&store, &[]).is_empty());
    let mut other = held("gpu-0", Some(250));
    other.device.pool = pool("gpu.nvidia.com");
    store.reset_claims([claim("a", &[other], &["a"])]);
    assert_eq!(store.agent_parts(&pod("a")), None);
    assert_eq!(store.claimed_milli(&pod("a")), 0);
    assert!(std::mem::take(&mut store.changed_nodes).is_empty());
}

#[test]
fn instances_are_parts_of_their_card() {
    let instance = |name: &str, profile: &str, memory| {
        let mut device = device(name, "GPU-a", memory);
        device.attributes.insert("profile".into(), profile.into());
        device
    };
    let ones = (0..7).map(|start| instance(&format!("gpu-0-mig-{start}-1"), "1g.10gb", 10));
    let halves = [0, 4].map(|start| instance(&format!("gpu-0-mig-{start}-4"), "3g.40gb", 40));
    let whole = [instance("gpu-0-mig-0-8", "7g.80gb", 80)];
    let devices = ones.chain(halves).chain(whole).collect();
    let store = store(
        devices,
        vec![claim("a", &[held("gpu-0-mig-4-4", None)], &["a", "b"])],
    );
    let pools = pools(&store, &[pod("a"), pod("b")]);
    assert_eq!(cards(&pools), ["0: ml/a 500, ml/b 0"]);
    assert_eq!(pools[0].cards[0].left_milli(), 500);
}

#[test]
fn records_of_an_earlier_delivery_and_claims_count_together() {
    let store = store(
        vec![device("gpu-0", "GPU-a", 80)],
        vec![claim("a", &[held("gpu-0", Some(600))], &["a"])],
    );
    let mut old = Pod::clone(&pod("old"));
    old.annotations = [("tautline.io/gpu-devices", "GPU-a:500")]
        .into_iter()
        .collect();
    let pods = [pod("a"), Arc::new(old)];
    let pools = pools(&store, &pods);
    let card = &pools[0].cards[0];
    assert_eq!((card.held_milli(), card.left_milli()), (1100, 0));
}

#[test]
fn requests_are_those_of_claims_or_of_the_extended_resource() {
    let request = |class: &str, count, milli: Option<i64>| ExactRequest {
        class: class.into(),
        count: Count::Exact(count),
        capacity: milli
            .map(|m| ("milli".into(), m * 1000))
            .into_iter()
            .collect(),
        ..ExactRequest::default()
    };
    let waiting = Claim {
        requests: vec![
            vec![
                request("gpu.nvidia.com", 1, None),
                request(AGENT_DRIVER, 2, Some(250)),
            ],
            vec![request(AGENT_DRIVER, 1, None)],
            vec![request("other", 1, None)],
        ],
        allocated: None,
        ..claim("c", &[], &["a"])
    };
    let store = store(Vec::new(), vec![waiting]);
    assert_eq!(store.claimed_milli(&pod("a")), 1500);
    let cards = Pod {
        requests: [(CARD_RESOURCE, 2000)].into_iter().collect(),
        ..Pod::clone(&pod("cards"))
    };
    assert_eq!(store.claimed_milli(&cards), 2000);
    assert_eq!(store.claimed_milli(&pod("none")), 0);
}

#[test]
fn nodes_change_with_their_slices_and_claims() {
    let devices = vec![device("gpu-0", "GPU-a", 80)];
    let a = claim("a", &[held("gpu-0", Some(250))], &["a"]);
    let mut store = store(devices.clone(), vec![a.clone()]);
    let changed = |store: &mut DeviceStore| !std::mem::take(&mut store.changed_nodes).is_empty();
    assert!(changed(&mut store) && !changed(&mut store));
    store.reset_slices([slice(AGENT_DRIVER, devices)]);
    store.reset_claims([a.clone(), claim("none", &[], &[])]);
    assert!(!changed(&mut store));
    store.reset_claims([Claim {
        reserved_for: Vec::new(),
        ..a
    }]);
    assert!(changed(&mut store));
    store.reset_claims([]);
    assert!(changed(&mut store));
    store.reset_slices([]);
    assert!(changed(&mut store));
}

#[test]
fn single_changes_of_claims_are_as_a_new_list() {
    let devices = || vec![device("gpu-0", "GPU-a", 80), device("gpu-1", "GPU-b", 80)];
    let a = |milli| claim("a", &[held("gpu-0", Some(milli))], &["a"]);
    let b = claim(
        "b",
        &[held("gpu-0", Some(100)), held("gpu-1", None)],
        &["b", "c"],
    );
    let mut changed = store(
        devices(),
        vec![a(250), claim("old", &[held("gpu-1", None)], &["d"])],
    );
    changed.touched.clear();
    changed.changed_nodes.clear();
    changed.put_claim(a(250));
    assert!(changed.touched.is_empty() && changed.changed_nodes.is_empty());
    changed.put_claim(a(500));
    changed.put_claim(b.clone());
    changed.remove_claim("ml/old");
    changed.remove_claim("ml/absent");
    let listed = store(devices(), vec![a(500), b]);
    let pods = ["a", "b", "c", "d"].map(pod);
    assert_eq!(
        cards(&pools(&changed, &pods)),
        cards(&pools(&listed, &pods))
    );
    let node = fixtures::node("n7");
    let devices = |store: &DeviceStore| format!("{:?}", store.node_devices(&node));
    assert_eq!(devices(&changed), devices(&listed));
    for uid in ["uid-a", "uid-b", "uid-c", "uid-d"] {
        let names = |store: &DeviceStore| {
            let claims = store.claims_of(uid, "ml", []);
            claims.iter().map(|c| c.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&changed), names(&listed), "{uid}");
    }
    assert_eq!(changed.touched, [pool(AGENT_DRIVER)].into());
    assert_eq!(
        changed.node_of(&pool(AGENT_DRIVER)).map(|n| &**n),
        Some("n7")
    );
    assert_eq!(changed.claim_counts(), (2, 0));
}
