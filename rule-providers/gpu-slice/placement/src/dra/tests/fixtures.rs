use tautline_core::model::Node;

use super::*;

pub(crate) const DRIVER: &str = "gpu.nvidia.com";
const GI: i64 = (1 << 30) * 1000;
/// The MIG profiles of an A100 with 80 GB: compute slices, memory slices of 10 GB, and starts.
const PROFILES: [(u8, u8, &[u8]); 6] = [
    (1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    (1, 2, &[0, 2, 4, 6]),
    (2, 2, &[0, 2, 4]),
    (3, 4, &[0, 4]),
    (4, 4, &[0]),
    (7, 8, &[0]),
];

pub(crate) fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        ..Node::default()
    }
}

pub(crate) fn pools(slices: impl IntoIterator<Item = Slice>) -> DeviceStore {
    let mut pools = DeviceStore::default();
    pools.reset_slices(slices);
    pools
}

pub(crate) fn pool(name: &str) -> PoolId {
    PoolId {
        driver: DRIVER.into(),
        pool: name.into(),
    }
}

fn slice(name: &str, pool_name: &str, node: &str, devices: Vec<Device>) -> Slice {
    Slice {
        name: name.into(),
        id: pool(pool_name),
        generation: 1,
        slices: 1,
        access: Access::Node(node.into()),
        counters: Vec::new(),
        devices,
    }
}

fn device(name: &str, attributes: &[(&str, &str)], memory: i64) -> Device {
    let text = |(n, v): &(&str, &str)| ((*n).into(), (*v).into());
    Device {
        name: name.into(),
        attributes: attributes.iter().map(text).collect(),
        capacity: [(
            "memory".into(),
            Capacity {
                value: memory,
                policy: None,
            },
        )]
        .into(),
        ..Device::default()
    }
}

fn card(node: &str, i: usize) -> Device {
    let uuid = format!("GPU-{node}-{i}");
    let attributes = [
        ("type", "gpu"),
        ("uuid", &uuid),
        ("productName", "NVIDIA A100-SXM4-80GB"),
        ("architecture", "Ampere"),
    ];
    device(&format!("gpu-{i}"), &attributes, 80 * GI)
}

pub(crate) fn whole(node: &str, count: usize) -> Slice {
    let devices = (0..count).map(|i| card(node, i)).collect();
    slice(&format!("{node}-whole"), node, node, devices)
}

pub(crate) fn shared(node: &str, count: usize, memory: i64) -> Slice {
    let of = |i: usize| {
        let uuid = format!("GPU-{node}-shared-{i}");
        Device {
            shared: true,
            ..device(&format!("shared-{i}"), &[("uuid", &uuid)], memory * 1000)
        }
    };
    let devices = (0..count).map(of).collect();
    slice(
        &format!("{node}-shared"),
        &format!("{node}-shared"),
        node,
        devices,
    )
}

fn mig(name: &str, node: &str, profile: &str) -> Device {
    let parent = format!("GPU-{node}-0");
    let attributes = [
        ("type", "mig"),
        ("parentUUID", parent.as_str()),
        ("profile", profile),
        ("productName", "NVIDIA A100-SXM4-80GB"),
    ];
    device(name, &attributes, 10 * GI)
}

pub(crate) fn static_mig(node: &str) -> Slice {
    let with_slices = |mut d: Device, slices: std::ops::Range<u8>| {
        for i in slices {
            let one = Capacity {
                value: 1000,
                policy: None,
            };
            d.capacity.insert(format!("memorySlice{i}").into(), one);
        }
        d
    };
    let devices = vec![
        with_slices(mig("gpu-0-mig-4g", node, "4g.40gb"), 0..4),
        with_slices(mig("gpu-0-mig-3g", node, "3g.40gb"), 4..8),
    ];
    slice(&format!("{node}-mig"), node, node, devices)
}

/// Cards and all possible MIG instances over counters: a pool of two slices.
pub(crate) fn partitioned(node: &str, count: usize) -> [Slice; 2] {
    let counters = |set: &str, compute: u8, memory: u8, start: u8| {
        let amounts = [
            ("multiprocessors".into(), i64::from(compute) * 14_000),
            ("memory".into(), i64::from(memory) * 10 * GI),
        ];
        let slices = start..start + memory;
        let slices = slices.map(|i| (format!("memory-slice-{i}").into(), 1000));
        CounterSet {
            name: set.into(),
            counters: amounts.into_iter().chain(slices).collect(),
        }
    };
    let (mut sets, mut devices) = (Vec::new(), Vec::new());
    for i in 0..count {
        let set = format!("gpu-{i}-counter-set");
        let whole = counters(&set, 7, 8, 0);
        sets.push(whole.clone());
        devices.push(Device {
            consumes: vec![whole],
            ..card(node, i)
        });
        for (compute, memory, starts) in PROFILES {
            for start in starts {
                let name = format!("gpu-{i}-mig-{compute}g{memory}0gb-{start}");
                let mut part = mig(&name, node, &format!("{compute}g.{memory}0gb"));
                // Instances that do not exist yet have no `parentUUID`.
                part.attributes.remove("parentUUID");
                part.consumes = vec![counters(&set, compute, memory, *start)];
                devices.push(part);
            }
        }
    }
    let of = |name: &str, devices| Slice {
        slices: 2,
        ..slice(name, &format!("{node}-parts"), node, devices)
    };
    [
        Slice {
            counters: sets,
            ..of(&format!("{node}-parts-counters"), Vec::new())
        },
        of(&format!("{node}-parts-devices"), devices),
    ]
}

pub(crate) fn holding(name: &str, pool_name: &str, devices: &[&str]) -> Claim {
    let of = |device: &&str| Allocation {
        device: DeviceId {
            pool: pool(pool_name),
            device: (*device).into(),
        },
        admin: false,
        share: None,
        consumed: Amounts::new(),
        tolerations: Vec::new(),
    };
    Claim {
        namespace: "default".into(),
        name: name.into(),
        allocated: Some(devices.iter().map(of).collect()),
        ..Claim::default()
    }
}
