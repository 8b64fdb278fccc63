//! Filter's answers (`--answer`) under the real scheduler.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tautline_sdk::testkit::{self, TestServer};
use tautline_tests::objects;

use crate::{World, fixed_costs::FixedCosts, placement::wait_for_provider};

const PRIORITIZED: &str = "tautline_extender_requests_total{verb=\"prioritize\",status=\"200\"}";

/// A provider with these costs, and an offer that governs pods of app=web by its rule.
async fn governed(world: &World, costs: &[(&str, i64)]) -> (FixedCosts, TestServer) {
    let client = &world.plane.client;
    let costs = FixedCosts::new(costs);
    let running = testkit::start(costs.clone()).await.unwrap();
    let port = running.address.port();
    objects::provider(client, "default", "p", port, &["latency"])
        .await
        .unwrap();
    let rule = json!({"name": "latency", "limit": "20ms"});
    objects::policy(client, "default", "web", rule, json!({}))
        .await
        .unwrap();
    wait_for_provider(world, "web").await;
    (costs, running)
}

/// Creates a governed pod with these fields of its spec.
async fn create(world: &World, name: &str, cpu: &str, spec: Value) {
    let resources = json!({"requests": {"cpu": cpu, "memory": "1Gi"}});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"automountServiceAccountToken": false,
                 "containers": [{"name": "c", "image": "i", "resources": resources}]},
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    let pod: Pod = serde_json::from_value(pod).unwrap();
    Api::namespaced(world.plane.client.clone(), "default")
        .create(&PostParams::default(), &pod)
        .await
        .unwrap();
}

/// The answer in the last explanation of a pod.
async fn answer(world: &World, pod: &str) -> Value {
    let page = format!("/explain/default/{pod}");
    let (status, text) = world.extender.admin(&page).await.unwrap();
    assert_eq!(status, 200, "{text}");
    let mut answer = serde_json::from_str::<Value>(&text).unwrap()[0]["answer"].take();
    // kube-scheduler posts the nodes in any order.
    let nodes = answer["nodes"].as_array_mut().unwrap();
    nodes.sort_by_key(|name| name.as_str().map(str::to_owned));
    answer
}

#[tokio::test]
async fn kube_scheduler_chooses_among_ties_only() {
    let world = World::start(&["n1", "n2", "n3"], &[]).await.unwrap();
    let (costs, _running) = governed(&world, &[("n1", 5), ("n2", 5), ("n3", 9)]).await;
    let preferred = |node: &str| {
        let by_name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let term = json!({"weight": 100, "preference": {"matchFields": [by_name]}});
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    for (name, node) in [("a", "n1"), ("b", "n2"), ("c", "n1"), ("d", "n2")] {
        create(&world, name, "10m", preferred(node)).await;
        assert_eq!(world.bound(name).await, node);
        let expected = json!({"mode": "ties", "nodes": ["n1", "n2"], "tied": 2});
        assert_eq!(answer(&world, name).await, expected);
    }

    // Alone the best: no preference moves the pod, and kube-scheduler makes no second call.
    costs.set(&[("n1", 5), ("n2", 6), ("n3", 9)]);
    let before = world.extender.metric(PRIORITIZED).await;
    create(&world, "alone", "10m", preferred("n2")).await;
    assert_eq!(world.bound("alone").await, "n1");
    let expected = json!({"mode": "ties", "nodes": ["n1"], "tied": 1});
    assert_eq!(answer(&world, "alone").await, expected);
    assert_eq!(world.extender.metric(PRIORITIZED).await, before);
}

#[tokio::test]
async fn decisive_chooses_the_least_allocated_of_ties() {
    let world = World::start(&["n1", "n2", "n3"], &["--answer=decisive"])
        .await
        .unwrap();
    let (_costs, _running) = governed(&world, &[("n1", 5), ("n2", 5), ("n3", 9)]).await;
    // Equal nodes: a hash of the probe's UID chooses.
    let nodes = ["n1", "n2", "n3"];
    let extender = &world.extender;
    extender
        .wait_for_plan("default", "web", &nodes, |plan| plan["answer"]["tied"] == 2)
        .await;
    let by_hash = answer(&world, "probe-web").await["nodes"][0].clone();
    let other = if by_hash == "n1" { "n2" } else { "n1" };

    create(&world, "used", "10", json!({"nodeName": by_hash})).await;
    extender
        .wait_for_plan("default", "web", &nodes, |plan| {
            plan["answer"]["nodes"] == json!([other])
        })
        .await;
    create(&world, "placed", "10m", json!({})).await;
    assert_eq!(world.bound("placed").await, other);
    let expected = json!({"mode": "decisive", "nodes": [other], "tied": 2});
    assert_eq!(answer(&world, "placed").await, expected);
    assert_eq!(world.extender.metric(PRIORITIZED).await, 0.0);
}
