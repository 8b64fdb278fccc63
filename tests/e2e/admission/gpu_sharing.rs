//! GPU sharing end to end: CastSlice's contract, with requests as from kubectl.

use tautline_tests::objects::{Response, post};

use super::*;

pub const SLICES: &[&str] = &["tautline-gpu-slices"];

/// A pod that requests two cards and, in an init container, one.
pub fn pod(namespace: &str, name: &str, annotations: Value, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": name, "namespace": namespace, "annotations": annotations, "labels": labels},
    "spec": {
        "automountServiceAccountToken": false,
        "initContainers": [{"name": "warm", "image": "example.com/app:1",
            "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        "containers": [
            {"name": "main", "image": "example.com/app:1", "resources": {
                "limits": {"nvidia.com/gpu": "2", "cpu": "1"},
                "requests": {"nvidia.com/gpu": "2", "cpu": "1"}}},
            {"name": "side", "image": "example.com/app:1"}],
    }})
}

pub async fn create(world: &AdmissionCluster, pod: &Value, dry: bool) -> Response {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap();
    let query = if dry { "?dryRun=All" } else { "" };
    let path = format!("/api/v1/namespaces/{namespace}/pods{query}");
    post(world.client(), &path, pod).await.unwrap()
}

fn resources_of(response: &Response, container: &str) -> (Value, Value) {
    let resources = &response.body["spec"][container][0]["resources"];
    (resources["limits"].clone(), resources["requests"].clone())
}

/// Waits until the response to a pod's creation passes `check`.
pub async fn until(
    world: &AdmissionCluster,
    what: &str,
    pod: &Value,
    check: impl Fn(&Response) -> bool,
) -> Response {
    let condition = async || {
        let response = create(world, pod, true).await;
        check(&response).then_some(response)
    };
    eventually(what, PATIENCE, condition, async || world.state()).await
}

pub async fn policy(world: &AdmissionCluster, text: &str) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cast-slice-policy", "namespace": "tautline-system"},
        "data": {"policy.json": text}});
    objects::apply_one(world.client(), map).await.unwrap();
}

async fn event(world: &AdmissionCluster, text: &str) {
    let condition = async || {
        let events = objects::events(world.client(), "tautline-system", "cast-slice-policy").await;
        events.contains(text).then_some(())
    };
    let what = format!("an event of the ConfigMap says {text}");
    eventually(&what, PATIENCE, condition, async || world.state()).await;
}

#[tokio::test]
async fn whole_cards_become_shares_by_annotation_and_policy() {
    let world = AdmissionCluster::start(SLICES, &[]).await.unwrap();
    let client = world.client();
    for name in ["ml", "odd"] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        objects::apply_one(client, namespace).await.unwrap();
    }
    let optimize = json!({"castops.io/optimize": "true", "castops.io/slice-ratio": "4"});
    let opted_in = pod("default", "a", optimize, json!({}));
    let sliced = |response: &Response| {
        response.body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu-shared"]
            == "8"
    };
    until(&world, "an opted-in pod gets shares", &opted_in, sliced).await;
    let response = create(&world, &opted_in, false).await;
    let main = json!({"nvidia.com/gpu-shared": "8", "cpu": "1"});
    assert_eq!(resources_of(&response, "containers"), (main.clone(), main));
    let warm = json!({"nvidia.com/gpu-shared": "4"});
    assert_eq!(
        resources_of(&response, "initContainers"),
        (warm.clone(), warm)
    );

    let plain = create(&world, &pod("default", "b", json!({}), json!({})), false).await;
    assert_eq!(resources_of(&plain, "containers").0["nvidia.com/gpu"], "2");
    let bad = json!({"castops.io/optimize": "true", "castops.io/slice-ratio": "65"});
    let response = create(&world, &pod("default", "c", bad, json!({})), false).await;
    assert_eq!(response.status, 422);
    assert!(
        response.message().contains("castops.io/slice-ratio"),
        "{response:?}"
    );

    policy(
        &world,
        r#"{"rules": [{"namespaces": ["ml"], "workloadType": "training"},
                                 {"namespaces": ["odd"], "sliceRatio": 99}]}"#,
    )
    .await;
    let ruled = pod("ml", "a", json!({}), json!({}));
    until(&world, "the policy counts", &ruled, sliced).await;
    assert_eq!(create(&world, &ruled, false).await.status, 201);
    let response = create(
        &world,
        &pod(
            "ml",
            "b",
            json!({"castops.io/optimize": "false"}),
            json!({}),
        ),
        false,
    )
    .await;
    assert_eq!(
        resources_of(&response, "containers").0["nvidia.com/gpu"],
        "2"
    );
    let response = create(&world, &pod("odd", "a", json!({}), json!({})), false).await;
    assert!(
        response.message().contains("rules[1]") && response.message().contains("99"),
        "{response:?}"
    );
    event(&world, "rules[1]").await;
    let exempt = json!({"castops.io/optimize": "true", "castops.io/slice-ratio": "4"});
    let response = create(&world, &pod("kube-system", "a", exempt, json!({})), false).await;
    assert_eq!(
        resources_of(&response, "containers").0["nvidia.com/gpu"],
        "2"
    );

    // A policy that cannot be read: the last good one stays.
    policy(&world, r#"{"rules": "none"}"#).await;
    event(&world, "the last valid policy stays").await;
    let created = create(&world, &pod("ml", "c", json!({}), json!({})), false).await;
    assert!(sliced(&created), "{created:?}");
    policy(&world, r#"{"rules": []}"#).await;
    until(
        &world,
        "no rule is left",
        &pod("ml", "d", json!({}), json!({})),
        |response| !sliced(response),
    )
    .await;

    let counted = [
        ("castslice_policy_enforced_total", 2.0),
        ("castslice_mutations_total", 3.0),
        ("castslice_refusals_total", 2.0),
    ];
    for (name, count) in counted {
        assert_eq!(world.server.metric(name).await, count, "{name}");
    }
}
