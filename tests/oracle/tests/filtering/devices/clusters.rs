//! Random small clusters with GPUs that device plugins or DRA drivers serve.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{
    pods::Made,
    slices::{DRIVER, OTHER_DRIVER, Offer, Pool, held, pool},
};
use crate::filtering::random::{chance, pick};

pub const GPU: &str = "nvidia.com/gpu";

/// Returns a cluster with pods that have no node, as the `filter` oracle reads them.
pub fn cluster(rng: &mut Rng) -> Value {
    let mut nodes: Vec<Value> = (0..rng.usize(2..6)).map(|i| node(rng, i)).collect();
    let mut pools: Vec<Pool> = Vec::new();
    for node in &nodes {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        if chance(rng, 60) {
            pools.push(pool(rng, name, Some(name)));
        }
        if chance(rng, 12) {
            pools.push(pool(rng, &format!("{name}-more"), Some(name)));
        }
    }
    if chance(rng, 20) {
        pools.push(pool(rng, "of-several", None));
    }
    let classes = classes(rng);
    let mut made = Made::default();
    let offers: Vec<Offer> = pools.iter().flat_map(|p| p.devices.clone()).collect();
    for (offer, share) in held(rng, &offers) {
        made.hold(rng, &nodes, &classes, &offer, share);
    }
    for node in &mut nodes {
        made.plugin_pods(rng, node);
    }
    let pending: Vec<Value> = (0..rng.usize(2..5))
        .map(|i| made.pending(rng, i, &classes))
        .collect();
    let slices: Vec<Value> = pools.into_iter().flat_map(|p| p.slices).collect();
    json!({"nodes": nodes, "pods": made.pods, "deviceClasses": classes, "slices": slices,
        "resourceClaims": made.claims, "pending": pending, "alone": true})
}

fn node(rng: &mut Rng, index: usize) -> Value {
    let name = format!("n{index}");
    let mut allocatable = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    if chance(rng, 40) {
        allocatable[GPU] = json!(rng.u32(..4).to_string());
    }
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name,
            "labels": {"kubernetes.io/hostname": name, "zone": pick(rng, &["a", "b"])}},
        "spec": {"unschedulable": chance(rng, 3)},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    })
}

pub(super) fn on_driver(driver: &str, product: Option<&str>) -> Value {
    let mut cel = format!("device.driver == {driver:?}");
    if let Some(product) = product {
        cel += &format!(" && device.attributes[{driver:?}].productName == {product:?}");
    }
    json!([{"cel": {"expression": cel}}])
}

fn classes(rng: &mut Rng) -> Vec<Value> {
    let class = |name: &str, selectors: Value, created: &str, resource: Option<&str>| {
        let mut class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"selectors": selectors}});
        if let Some(resource) = resource {
            class["spec"]["extendedResourceName"] = json!(resource);
        }
        class
    };
    let mut classes = Vec::new();
    if chance(rng, 90) {
        let product = chance(rng, 20).then_some("A100");
        let resource = chance(rng, 92).then_some(GPU);
        let selectors = on_driver(DRIVER, product);
        classes.push(class("gpu", selectors, "2026-01-02T00:00:00Z", resource));
    }
    if chance(rng, 20) {
        // Among classes of equal age the first name wins.
        let name = pick(rng, &["also", "zero"]);
        let created = pick(
            rng,
            &[
                "2026-01-01T00:00:00Z",
                "2026-01-02T00:00:00Z",
                "2026-01-03T00:00:00Z",
            ],
        );
        let selectors = on_driver(OTHER_DRIVER, None);
        classes.push(class(name, selectors, created, Some(GPU)));
    }
    if chance(rng, 40) {
        let selectors = on_driver(DRIVER, Some("H100"));
        classes.push(class("big", selectors, "2026-01-01T00:00:00Z", None));
    }
    classes
}
