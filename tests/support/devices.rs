//! The objects of a DRA driver of GPUs, and claims of its devices. The test is the driver:
//! nodes have no kubelet that would need one.

use anyhow::Result;
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{DeviceClass, ResourceClaim},
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Map, Value, json};

use crate::{
    PATIENCE, eventually,
    objects::{apply_one, events},
};

/// The driver of all devices here.
pub const DRIVER: &str = "gpu.example.com";

/// Profiles of an 80 GB card with 7 compute and 8 memory slices, with their
/// starts: a part of NVIDIA's table, enough to collide.
const PROFILES: [(&str, u32, u32, &[u32]); 4] = [
    ("1g.10gb", 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    ("2g.20gb", 2, 2, &[0, 2, 4]),
    ("3g.40gb", 3, 4, &[0, 4]),
    ("4g.40gb", 4, 4, &[0]),
];

/// DeviceClasses `gpu` (whole cards), `mig` (instances) and `shared` (parts of cards).
pub async fn classes(client: &Client) -> Result<()> {
    let of_type = |t: &str| {
        format!("device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{t}'")
    };
    for (name, cel) in [
        ("gpu", of_type("gpu")),
        ("mig", of_type("mig")),
        ("shared", of_type("shared")),
    ] {
        let class: DeviceClass = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": cel}}]},
        }))?;
        Api::all(client.clone())
            .create(&PostParams::default(), &class)
            .await?;
    }
    Ok(())
}

/// Publishes slices of a pool of a node, named after the pool, at a generation.
async fn publish(
    client: &Client,
    node: &str,
    pool: &str,
    generation: u32,
    parts: &[Value],
) -> Result<()> {
    for (i, part) in parts.iter().enumerate() {
        let mut spec = json!({
            "driver": DRIVER, "nodeName": node,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": parts.len()},
        });
        if let (Some(spec), Some(part)) = (spec.as_object_mut(), part.as_object()) {
            spec.extend(part.clone());
        }
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": format!("{pool}-{i}")}, "spec": spec,
        });
        apply_one(client, slice).await?;
    }
    Ok(())
}

fn card(node: &str, i: u32) -> Value {
    json!({
        "name": format!("gpu-{i}"),
        "attributes": {
            "type": {"string": "gpu"}, "uuid": {"string": format!("GPU-{node}-{i}")},
            "productName": {"string": "NVIDIA A100-SXM4-80GB"},
            "architecture": {"string": "Ampere"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    })
}

/// Whole cards of a node, with a taint of this effect on all of them if given. Another call
/// needs a new generation.
pub async fn cards(
    client: &Client,
    node: &str,
    count: u32,
    generation: u32,
    taint: Option<&str>,
) -> Result<()> {
    let one = |i: u32| {
        let mut card = card(node, i);
        if let Some(effect) = taint {
            card["taints"] = json!([{"key": "example.com/unhealthy", "effect": effect}]);
        }
        card
    };
    let devices: Vec<Value> = (0..count).map(one).collect();
    let pool = format!("{node}-cards");
    publish(
        client,
        node,
        &pool,
        generation,
        &[json!({"devices": devices})],
    )
    .await
}

/// Cards of a node; any part of their 80Gi of memory can be claimed.
pub async fn shared_cards(client: &Client, node: &str, count: u32) -> Result<()> {
    let one = |i: u32| {
        let mut card = card(node, i);
        card["attributes"]["type"] = json!({"string": "shared"});
        card["allowMultipleAllocations"] = true.into();
        card["capacity"]["memory"]["requestPolicy"] =
            json!({"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi"}});
        card
    };
    let devices: Vec<Value> = (0..count).map(one).collect();
    let pool = format!("{node}-shared");
    publish(client, node, &pool, 1, &[json!({"devices": devices})]).await
}

/// One card of a node with every instance that could be made on it (KEP-4815).
pub async fn partitionable(client: &Client, node: &str) -> Result<()> {
    let counters = |compute: u32, memory: u32, start: u32| {
        let mut all = Map::new();
        let mut add = |name: String, value: String| _ = all.insert(name, json!({"value": value}));
        add("multiprocessors".into(), (14 * compute).to_string());
        add("memory".into(), format!("{}Gi", 10 * memory));
        for i in start..start + memory {
            add(format!("memory-slice-{i}"), "1".into());
        }
        Value::Object(all)
    };
    let consumes = |c: Value| json!([{"counterSet": "gpu-0", "counters": c}]);
    let mut whole = card(node, 0);
    whole["consumesCounters"] = consumes(counters(7, 8, 0));
    let mut devices = vec![whole];
    for (profile, compute, memory, starts) in PROFILES {
        for start in starts {
            let kind = profile.split('.').next().unwrap_or_default();
            devices.push(json!({
                "name": format!("gpu-0-mig-{kind}-{start}"),
                "attributes": {
                    "type": {"string": "mig"}, "profile": {"string": profile},
                    "productName": {"string": "NVIDIA A100-SXM4-80GB"},
                },
                "capacity": {"memory": {"value": format!("{}Gi", 10 * memory)}},
                "consumesCounters": consumes(counters(compute, memory, *start)),
            }));
        }
    }
    let sets = json!([{"name": "gpu-0", "counters": counters(7, 8, 0)}]);
    let parts = [json!({"sharedCounters": sets}), json!({"devices": devices})];
    publish(client, node, &format!("{node}-parts"), 1, &parts).await
}

/// A request's `exactly`: a class and more fields.
pub fn exactly(class: &str, more: Value) -> Value {
    let mut exactly = json!({"deviceClassName": class});
    if let (Some(exactly), Some(more)) = (exactly.as_object_mut(), more.as_object()) {
        exactly.extend(more.clone());
    }
    json!({"requests": [{"name": "gpu", "exactly": exactly}]})
}

/// The request of an instance of a MIG profile.
pub fn instance(profile: &str) -> Value {
    let cel = format!("device.attributes['{DRIVER}'].profile == '{profile}'");
    exactly("mig", json!({"selectors": [{"cel": {"expression": cel}}]}))
}

/// A claim.
pub async fn claim(client: &Client, name: &str, devices: Value) -> Result<()> {
    let claim: ResourceClaim = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"devices": devices},
    }))?;
    Api::default_namespaced(client.clone())
        .create(&PostParams::default(), &claim)
        .await?;
    Ok(())
}

/// A pod labelled `app` that uses the claim of the same name.
pub async fn pod_of_claim(client: &Client, name: &str, app: &str) -> Result<()> {
    pod(client, name, app, json!({"resourceClaimName": name})).await
}

/// A claim template, and a pod labelled `app` of the same name that uses it.
pub async fn pod_with_template(
    client: &Client,
    name: &str,
    app: &str,
    devices: Value,
) -> Result<()> {
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": name}, "spec": {"spec": {"devices": devices}},
    });
    apply_one(client, template).await?;
    pod(
        client,
        name,
        app,
        json!({"resourceClaimTemplateName": name}),
    )
    .await
}

async fn pod(client: &Client, name: &str, app: &str, claim: Value) -> Result<()> {
    let mut of_pod = json!({"name": "gpu"});
    if let (Some(of_pod), Some(claim)) = (of_pod.as_object_mut(), claim.as_object()) {
        of_pod.extend(claim.clone());
    }
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "automountServiceAccountToken": false,
            "resourceClaims": [of_pod],
            "containers": [{"name": "main", "image": "example.com/app:1", "resources":
                {"requests": {"cpu": "10m"}, "claims": [{"name": "gpu"}]}}],
        },
    }))?;
    Api::default_namespaced(client.clone())
        .create(&PostParams::default(), &pod)
        .await?;
    Ok(())
}

/// Waits until the scheduler reports that no node fits a pod, with this reason.
pub async fn unschedulable(
    client: &Client,
    name: &str,
    state: impl AsyncFnOnce() -> String,
) -> String {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let check = async || {
        let status = pods.get(name).await.ok()?.status?;
        let mut conditions = status.conditions?.into_iter();
        let scheduled = conditions.find(|c| c.type_ == "PodScheduled")?;
        let waits = scheduled.reason.as_deref() == Some("Unschedulable");
        waits.then(|| scheduled.message.unwrap_or_default())
    };
    let more = async || format!("{}{}", events(client, "default", name).await, state().await);
    eventually(&format!("pod {name} finds no node"), PATIENCE, check, more).await
}
