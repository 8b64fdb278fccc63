use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tautline_gpu_placement::dra::{Access, Count, Slice};

use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn devices() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": "n-gpu"},
        "spec": {
            "driver": "gpu.example.com", "nodeName": "n",
            "pool": {"name": "n", "generation": 3, "resourceSliceCount": 2},
            "devices": [
                {
                    "name": "gpu-0-part-0",
                    "attributes": {
                        "type": {"string": "mig"},
                        "gpu.example.com/uuid": {"string": "U"},
                        "resource.kubernetes.io/pcieRoot": {"string": "pci0"},
                        "driverVersion": {"version": "1.2.3"},
                        "index": {"int": 7}, "ecc": {"bool": true},
                        "later": {"strings": ["a"]},
                    },
                    "capacity": {
                        "memory": {"value": "80Gi", "requestPolicy": {
                            "default": "10Gi",
                            "validRange": {"min": "5Gi", "max": "40Gi", "step": "5Gi"}}},
                        "gpu.example.com/cores": {"value": "7", "requestPolicy": {
                            "default": "1", "validValues": ["1", "2"]}},
                    },
                    "consumesCounters": [
                        {"counterSet": "gpu-0", "counters": {"memory": {"value": "10Gi"}}}],
                    "allowMultipleAllocations": true,
                    "taints": [{"key": "sick", "effect": "NoSchedule"}],
                    "bindingConditions": ["ready"],
                },
                {"name": "gpu-1"},
            ],
        },
    })
}

const GI: i64 = (1 << 30) * 1000;

#[test]
fn slices_with_all_that_devices_have() {
    let got = resource_slice(&read(devices())).unwrap();
    assert_eq!(
        (&*got.name, &*got.id.driver, &*got.id.pool),
        ("n-gpu", "gpu.example.com", "n")
    );
    assert_eq!((got.generation, got.slices), (3, 2));
    assert_eq!(got.access, Access::Node("n".into()));
    let device = &got.devices[0];
    assert_eq!(&*device.attributes["uuid"], "U");
    for no_text in ["driverVersion", "index", "ecc"] {
        assert_eq!(device.attributes.get(no_text), None);
    }
    assert!(
        device
            .attributes
            .contains_key("resource.kubernetes.io/pcieRoot")
    );
    assert!(!device.attributes.contains_key("later"));
    let numbers: Vec<_> = device.numbers.iter().map(|(n, v)| (&**n, *v)).collect();
    assert_eq!(numbers, [("index", 7)]);
    let memory = &device.capacity["memory"];
    assert_eq!(memory.value, 80 * GI);
    assert_eq!(memory.consumed(Some(6 * GI)), Some(10 * GI));
    assert_eq!(device.capacity["cores"].consumed(Some(1_500)), Some(2_000));
    assert_eq!(device.consumes[0].counters["memory"], 10 * GI);
    assert_eq!(device.taints[0].effect, "NoSchedule");
    assert!(device.shared && device.binding_conditions);
    assert!(!got.devices[1].shared && got.devices[1].taints.is_empty());
}

#[test]
fn counters_and_nodes() {
    let with = |key: &str, value: Value| -> Slice {
        let mut document = devices();
        let spec = document["spec"].as_object_mut().unwrap();
        spec.remove("nodeName");
        spec.insert(key.into(), value);
        resource_slice(&read(document)).unwrap()
    };
    assert_eq!(with("allNodes", json!(true)).access, Access::All);
    let per_device = with("perDeviceNodeSelection", json!(true));
    assert_eq!(
        (per_device.access, per_device.devices[0].access.clone()),
        (Access::PerDevice, None)
    );
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions":
        [{"key": "rack", "operator": "In", "values": ["a"]}]}]});
    let Access::Nodes(terms) = with("nodeSelector", terms).access else {
        panic!("not a selector");
    };
    assert_eq!(terms[0].labels[0].key, "rack");
    let counters = with(
        "sharedCounters",
        json!([
        {"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}, "slice-0": {"value": "1"}}}]),
    );
    assert_eq!(counters.counters[0].counters["slice-0"], 1_000);
}

#[test]
fn convert_names_malformed_quantities() {
    let mut document = devices();
    document["spec"]["devices"][0]["capacity"]["memory"]["value"] = "lots".into();
    let error = resource_slice(&read(document)).unwrap_err().to_string();
    assert_eq!(
        error,
        "memory: quantity \"lots\" is not understood; \
         write it as 2, 500m, 1.5 or 20Gi"
    );
}

fn claimed(mode: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "owner", "controller": true}]},
        "spec": {"devices": {"requests": [
            {"name": "one", "exactly": {
                "deviceClassName": "gpu", "count": 2, "allocationMode": mode,
                "selectors": [{"cel": {"expression": "true"}}],
                "capacity": {"requests": {"memory": "20Gi"}},
                "tolerations": [{"key": "sick", "operator": "Exists"}]}},
            {"name": "other", "firstAvailable": [
                {"name": "a", "deviceClassName": "big"}, {"name": "b", "deviceClassName": "small"}]},
        ]}},
        "status": {
            "allocation": {"nodeSelector": {"nodeSelectorTerms": [{"matchFields":
                [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
                "devices": {"results": [
                {"request": "one", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0",
                 "shareID": "s", "consumedCapacity": {"gpu.example.com/memory": "20Gi", "cores": "1"}},
                {"request": "watch", "driver": "gpu.example.com", "pool": "n", "device": "gpu-1",
                 "adminAccess": true},
            ]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"},
                            {"resource": "others", "apiGroup": "x", "name": "q", "uid": "v"}],
        },
    })
}

#[test]
fn claims_with_requests_and_allocations() {
    let got = resource_claim(&read(claimed("ExactCount"))).unwrap();
    assert_eq!((&*got.namespace, &*got.name), ("ns", "c"));
    assert_eq!(
        (got.owner.as_deref(), got.reserved_for.as_slice()),
        (Some("owner"), &["u".into()][..])
    );
    assert_eq!(
        got.nodes.as_ref().unwrap()[0].names,
        [(true, vec!["n".to_owned()])]
    );
    let one = &got.requests[0][0];
    assert_eq!(
        (&*one.class, one.count, one.admin),
        ("gpu", Count::Exact(2), false)
    );
    assert_eq!(
        (&*one.selectors[0], one.capacity["memory"]),
        ("true", 20 * GI)
    );
    assert_eq!(
        (one.tolerations[0].key.as_deref(), &one.tolerations[0].value),
        (Some("sick"), &tautline_core::model::TolerationValue::Any)
    );
    let classes: Vec<&str> = got.requests[1].iter().map(|w| &*w.class).collect();
    assert_eq!(classes, ["big", "small"]);
    let held = got.allocated.unwrap();
    let device = DeviceId {
        pool: pool_id("gpu.example.com", "n"),
        device: "gpu-0".into(),
    };
    assert_eq!(held[0].device, device);
    assert_eq!(
        (held[0].share.as_deref(), held[0].admin),
        (Some("s"), false)
    );
    assert_eq!(
        (held[0].consumed["memory"], held[0].consumed["cores"]),
        (20 * GI, 1_000)
    );
    assert!(held[1].admin && held[1].share.is_none());
    let all = resource_claim(&read(claimed("All"))).unwrap();
    assert_eq!(all.requests[0][0].count, Count::All);
    let error = resource_claim(&read(claimed("Some")))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "allocationMode: \"Some\" is not known; use ExactCount or All"
    );
    let mut fresh = claimed("All");
    fresh.as_object_mut().unwrap().remove("status");
    assert_eq!(resource_claim(&read(fresh)).unwrap().allocated, None);
}

#[test]
fn classes() {
    let got = device_class(&read(
        json!({"metadata": {"name": "gpu", "creationTimestamp": "1970-01-01T00:01:00Z"}, "spec": {
        "extendedResourceName": "example.com/gpu",
        "selectors": [{"cel": {"expression": "device.driver == 'd'"}}]}}),
    ));
    assert_eq!(
        (&*got.name, &*got.selectors[0]),
        ("gpu", "device.driver == 'd'")
    );
    assert_eq!(got.extended_resource.as_deref(), Some("example.com/gpu"));
    assert_eq!(got.created_unix, 60);
}
