use super::{fixtures::healthy_dra, *};

const CLASS: &str = "DeviceClass gpu.tautline.io";
const AGENT: &str = "DaemonSet tautline-gpu-agent";
const SLICE: &str = "n1-gpu.tautline.io-0";

#[track_caller]
fn finds_dra(expected: Expected, break_it: impl FnOnce(&mut Cluster)) {
    finds(expected, |cluster| {
        *cluster = healthy_dra();
        break_it(cluster);
    });
}

/// The faults of a cluster, each as its code.
fn faults(cluster: &Cluster) -> Vec<&'static str> {
    let findings = run(cluster).into_iter();
    findings
        .filter(|f| f.level != Level::Ok)
        .map(|f| f.check)
        .collect()
}

fn said(cluster: &Cluster) -> String {
    let findings = run(cluster);
    let delivery = findings.iter().find(|f| f.check == "GpuDelivery").unwrap();
    delivery.text.clone()
}

fn allocatable(cluster: &mut Cluster, node: &str, quantities: Value) {
    edit(&mut cluster.nodes, node, |n| {
        n["status"] = json!({"allocatable": quantities});
    });
}

/// The agents deliver by a device plugin, and the node offers its cards so.
fn device_plugin() -> Cluster {
    let mut cluster = healthy_dra();
    edit(&mut cluster.daemon_sets, "tautline-gpu-agent", |d| {
        let args = &mut d["spec"]["template"]["spec"]["containers"][0]["args"];
        args.as_array_mut().unwrap().pop();
    });
    cluster.resource_slices = Some(Vec::new());
    cluster.device_classes = Some(Vec::new());
    allocatable(&mut cluster, "n1", json!({"tautline.io/gpu-milli": "1k"}));
    cluster
}

#[test]
fn the_delivery_is_said() {
    let cluster = healthy_dra();
    assert_eq!(faults(&cluster), [""; 0]);
    assert!(said(&cluster).starts_with("DRA delivers cards, by --delivery=dra (v1.36.3)"));
    let cluster = device_plugin();
    assert_eq!(faults(&cluster), [""; 0]);
    assert!(said(&cluster).starts_with("a device plugin delivers cards"));
    assert!(!run(&healthy()).iter().any(|f| f.check.starts_with("Gpu")));
}

#[test]
fn class() {
    let reapply = "kubectl apply --server-side -k deploy";
    finds_dra(
        (
            Problem,
            "DeviceClassMissing",
            CLASS,
            "does not exist",
            reapply,
        ),
        |c| c.device_classes = Some(Vec::new()),
    );
    let missing = "spec.extendedResourceName is missing, not tautline.io/gpu";
    finds_dra(
        (
            Problem,
            "DeviceClassUnnamed",
            CLASS,
            missing,
            "DRAExtendedResource",
        ),
        |c| {
            edit(&mut c.device_classes, "gpu.tautline.io", |class| {
                class["spec"] = json!({});
            });
        },
    );
    finds_dra(
        (
            Problem,
            "DeviceClassUnnamed",
            CLASS,
            "is a.example/gpu, not",
            reapply,
        ),
        |c| {
            edit(&mut c.device_classes, "gpu.tautline.io", |class| {
                class["spec"]["extendedResourceName"] = json!("a.example/gpu");
            });
        },
    );
}

#[test]
fn cards_that_cannot_be_shared() {
    let fix = "gpu.delivery of the chart";
    let old = "v1.35.2 is older than 1.36: cards are given whole only";
    finds_dra((Problem, "GpuCardsWhole", AGENT, old, fix), |c| {
        c.kubernetes = "v1.35.2".to_owned();
        c.resource_slices = Some(Vec::new());
    });
    let dropped = "spec.devices[gpu-0].allowMultipleAllocations was dropped";
    let undivided = |c: &mut Cluster| {
        edit(&mut c.resource_slices, SLICE, |s| {
            s["spec"]["devices"][0]
                .as_object_mut()
                .unwrap()
                .remove("allowMultipleAllocations");
        });
    };
    finds_dra((Problem, "GpuCardsWhole", SLICE, dropped, fix), undivided);
    // With its feature gates an older API server keeps the field.
    let mut gated = healthy_dra();
    gated.kubernetes = "v1.35.2".to_owned();
    assert_eq!(faults(&gated), [""; 0]);
    // An instance of MIG has no thousandths.
    let mut mig = healthy_dra();
    edit(&mut mig.resource_slices, SLICE, |s| {
        s["spec"]["devices"] =
            json!([{"name": "gpu-0-mig-0-1", "capacity": {"memory": {"value": "10Gi"}}}]);
    });
    assert_eq!(faults(&mig), [""; 0]);
}

#[test]
fn nodes_without_slices() {
    let missing = "names 1 node with cards (label nvidia.com/gpu.count) in spec.nodeName: n1";
    let logs = "logs ds/tautline-gpu-agent";
    finds_dra((Problem, "GpuSlicesMissing", AGENT, missing, logs), |c| {
        c.resource_slices = Some(Vec::new());
    });
    finds_dra((Problem, "GpuSlicesMissing", AGENT, missing, logs), |c| {
        edit(&mut c.resource_slices, SLICE, |s| {
            s["spec"]["driver"] = json!("gpu.nvidia.com");
        });
    });
    // NVIDIA's device plugin owns the cards of the node, or no agent runs there.
    let mut owned = healthy_dra();
    owned.resource_slices = Some(Vec::new());
    allocatable(&mut owned, "n1", json!({"nvidia.com/gpu": "8"}));
    assert_eq!(faults(&owned), [""; 0]);
    let mut without = healthy_dra();
    without.resource_slices = Some(Vec::new());
    remove(&mut without.pods, "gpu-agent-n1");
    assert_eq!(faults(&without), [""; 0]);
}

#[test]
fn cards_that_are_offered_twice() {
    let (wait, twice) = (
        "the agents give no card twice",
        "a card could be given twice",
    );
    for (resource, effect, fix) in [
        (
            "tautline.io/gpu-milli",
            wait,
            "give all agents one gpu.delivery",
        ),
        ("nvidia.com/gpu", twice, "take NVIDIA's device plugin off"),
        (
            "nvidia.com/mig-1g.10gb",
            twice,
            "take NVIDIA's device plugin off",
        ),
    ] {
        let text = format!("status.allocatable {resource} above 0: n1; {effect}");
        let text: &'static str = text.leak();
        finds_dra((Problem, "GpuCardsTwice", "1 node", text, fix), |c| {
            allocatable(c, "n1", json!({"cpu": "8", resource: "1"}));
        });
    }
    // The kubelet keeps the resources of a plugin that has gone, with nothing to allocate.
    let mut gone = healthy_dra();
    allocatable(&mut gone, "n1", json!({"tautline.io/gpu-milli": "0"}));
    assert_eq!(faults(&gone), [""; 0]);
    // Slices of an agent that has gone, beside the device plugin.
    let mut left = device_plugin();
    left.resource_slices = healthy_dra().resource_slices;
    assert_eq!(faults(&left), ["GpuCardsTwice"]);
}

#[test]
fn gpu_parts_may_be_unread_alone() {
    let parts: [fn(&mut Cluster); 5] = [
        |c| c.device_classes = None,
        |c| c.resource_slices = None,
        |c| c.nodes = None,
        |c| c.pods = None,
        |c| c.kubernetes.clear(),
    ];
    for (i, forget) in parts.into_iter().enumerate() {
        let mut cluster = healthy_dra();
        forget(&mut cluster);
        assert_eq!(faults(&cluster), [""; 0], "{i}");
    }
}
