//! Placement of pods under the real scheduler.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tautline_core::names::GATE_RESOURCE;
use tautline_sdk::testkit;
use tautline_tests::{PATIENCE, eventually, objects, root, servers::Server};

use crate::{
    World,
    fixed_costs::FixedCosts,
    traces::{self, collector::Collector},
};

#[tokio::test]
async fn pods_follow_costs_and_wait_with_reasons() {
    let world = World::start(&["n1", "n2", "n3"], &[]).await.unwrap();
    let client = &world.plane.client;
    let costs = FixedCosts::new(&[("n1", 50), ("n2", 5), ("n3", 20)]);
    let running = testkit::start(costs.clone()).await.unwrap();
    objects::provider(
        client,
        "default",
        "p",
        running.address.port(),
        &["latency", "far"],
    )
    .await
    .unwrap();
    objects::policy(
        client,
        "default",
        "web",
        json!({"name": "latency", "limit": "20ms"}),
        json!({}),
    )
    .await
    .unwrap();
    wait_for_provider(&world, "web").await;

    // The node of least cost, despite the scheduler's own scores.
    for i in 0..5 {
        objects::pod(client, "default", &format!("web-{i}"), "web")
            .await
            .unwrap();
        assert_eq!(world.bound(&format!("web-{i}")).await, "n2");
    }
    let (status, explained) = world
        .extender
        .admin("/explain/default/web-0")
        .await
        .unwrap();
    assert_eq!(status, 200, "{explained}");
    for part in ["\"provider\":\"default/p\"", "\"cost\":5", "\"score\":10"] {
        assert!(explained.contains(part), "{part} in {explained}");
    }

    // No node: Pending, with our reason in the scheduler's own event.
    costs.set(&[("n1", -1), ("n2", -1), ("n3", -1)]);
    objects::pod(client, "default", "web-x", "web")
        .await
        .unwrap();
    let check = async || {
        let events = objects::events(client, "default", "web-x").await;
        events.contains("3 latency/OverLimit").then_some(())
    };
    eventually("the event names the rule", PATIENCE, check, async || {
        objects::events(client, "default", "web-x").await + &world.state()
    })
    .await;
    assert_eq!(objects::node_of(client, "default", "web-x").await, None);

    // Its plan, from the live cluster, which `plan` does not change.
    let kubeconfig = world.plane.kubeconfig("admin");
    let mut plan = std::process::Command::new(tautline_tests::servers::binary().unwrap());
    plan.args(["plan", "-o", "json", "--kubeconfig"])
        .arg(&kubeconfig);
    // On another thread: the provider that it calls runs here.
    let planned = tokio::task::spawn_blocking(move || plan.output().unwrap())
        .await
        .unwrap();
    let output = String::from_utf8_lossy(&planned.stdout).into_owned();
    assert_eq!(
        planned.status.code(),
        Some(1),
        "{output}{}",
        String::from_utf8_lossy(&planned.stderr)
    );
    assert!(
        output.contains("3 latency/OverLimit") && output.contains("web-x"),
        "{output}"
    );

    // The provider's answer changes: the pod is placed soon, not at the scheduler's flush
    // after 5 minutes. Five seconds are promised; a busy machine may take longer.
    costs.set(&[("n1", 3), ("n2", -1), ("n3", -1)]);
    let start = Instant::now();
    assert_eq!(world.bound("web-x").await, "n1");
    println!(
        "placed {:?} after the provider changed its answer",
        start.elapsed()
    );
    let requeued = async || {
        let requeues = world.extender.metric("tautline_pod_requeues").await;
        (requeues >= 1.0).then_some(())
    };
    let state = async || world.state();
    eventually("the extender counts the requeue", PATIENCE, requeued, state).await;
}

#[tokio::test]
async fn ungoverned_pods_do_not_wait_for_a_hanging_provider() {
    let world = World::start(&["n1", "n2"], &["--provider-deadline=2s"])
        .await
        .unwrap();
    let client = &world.plane.client;
    let hanging = FixedCosts::new(&[]);
    *hanging.delay.lock().unwrap() = Duration::from_secs(3600);
    let running = testkit::start(hanging.clone()).await.unwrap();
    objects::provider(client, "default", "p", running.address.port(), &["latency"])
        .await
        .unwrap();
    let unavailable = json!({"providerUnavailable": "Reject"});
    objects::policy(
        client,
        "default",
        "web",
        json!({"name": "latency"}),
        unavailable,
    )
    .await
    .unwrap();
    wait_for_provider(&world, "web").await;
    // Its own plan waits for the provider; the calls after a few are cut short.
    objects::pod(client, "default", "web-0", "web")
        .await
        .unwrap();
    for i in 0..10 {
        objects::pod(client, "default", &format!("plain-{i}"), "plain")
            .await
            .unwrap();
    }
    for i in 0..10 {
        world.bound(&format!("plain-{i}")).await;
    }
    let check = async || {
        let events = objects::events(client, "default", "web-0").await;
        events.contains("latency/ProviderTimeout").then_some(())
    };
    eventually(
        "the event says that the provider hangs",
        PATIENCE,
        check,
        async || objects::events(client, "default", "web-0").await + &world.state(),
    )
    .await;
    // The extender planned for no ungoverned pod.
    let (_, explained) = world
        .extender
        .admin("/explain/default/plain-0")
        .await
        .unwrap();
    assert!(explained.contains("no round"), "{explained}");
    println!("provider asked {} times", hanging.request_count());
}

/// Providers as processes under their own roles; the extender binds. All send spans to one
/// collector.
#[tokio::test]
async fn providers_and_bind_work_under_their_own_roles() {
    let (collector, url) = Collector::start().await;
    let traced = ["--bind", "--traces-endpoint", &url];
    let world = World::with("gated-gpu.yaml", &["n1"], &traced)
        .await
        .unwrap();
    let client = &world.plane.client;
    let zone = |z: &str| json!({"topology.kubernetes.io/zone": z});
    for (node, labels) in [("a1", zone("a")), ("b1", zone("b"))] {
        objects::node(client, node, labels).await.unwrap();
    }
    let table = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "rtt", "namespace": "default", "labels": {"constraint.ciena.com/latency-table": "enabled"}},
        "data": {"t": "a1,a1,0s\na,b,12ms\n"}});
    objects::apply_one(client, table).await.unwrap();
    let script = json!({"apiVersion": "constraint.ciena.com/v1", "kind": "CostProvider",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"rule": "pick", "priority": 1, "target": "Pod:web.*",
                 "values": [{"node": "b", "cost": 1}, {"node": "a", "cost": 9}]}});
    objects::apply_one(client, script).await.unwrap();
    let mut providers = Vec::new();
    for (name, rule) in [
        ("scripted", "pick"),
        ("latency", "latency"),
        ("gpu-slice", "gpu-slice"),
    ] {
        let args = ["provider", name, "--traces-endpoint", &url];
        let server = Server::start(&world.plane, name, &args).await.unwrap();
        objects::provider(client, "default", name, server.port, &[rule])
            .await
            .unwrap();
        providers.push(server);
    }
    objects::policy(client, "default", "web", json!({"name": "pick"}), json!({}))
        .await
        .unwrap();
    let peer = json!({"targets": [
        {"name": "source", "kind": "Pod", "labelSelector": {"matchLabels": {"app": "db"}}},
        {"name": "destination", "kind": "Pod", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let limit = json!({"name": "latency", "request": "1ms", "limit": "20ms"});
    objects::policy(client, "default", "db", limit, peer)
        .await
        .unwrap();
    wait_for_provider(&world, "web").await;
    wait_for_provider(&world, "db").await;

    gated_pod(client, "web-0", "web").await;
    assert_eq!(world.bound("web-0").await, "b1");
    gated_pod(client, "db-0", "db").await;
    assert_eq!(
        world.bound("db-0").await,
        "b1",
        "0 beside its peer, 12ms away, unknown on n1"
    );
    let bound = "tautline_extender_binds_total{outcome=\"bound\"}";
    world.extender.wait_for_metric(bound, 2.0).await;
    traces::wait_for_placement(&collector, "web-0", "b1", "tautline-scripted").await;
    traces::wait_for_placement(&collector, "db-0", "b1", "tautline-latency").await;

    // gpu-slice: no node has a GPU, and the reason names it.
    objects::policy(
        client,
        "default",
        "ml",
        json!({"name": "gpu-slice", "request": "250m"}),
        json!({}),
    )
    .await
    .unwrap();
    wait_for_provider(&world, "ml").await;
    gated_pod(client, "ml-0", "ml").await;
    let check = async || {
        let events = objects::events(client, "default", "ml-0").await;
        events.contains("3 gpu-slice/NoSuchGpu").then_some(())
    };
    eventually("the reason of gpu-slice", PATIENCE, check, async || {
        objects::events(client, "default", "ml-0").await + &world.state()
    })
    .await;
    for mut server in providers {
        assert_eq!(
            server.process.terminate(),
            Some(0),
            "{}",
            server.process.tail()
        );
    }
}

/// A scheduler that requires the gate's resource on nodes, unlike our sample.
#[tokio::test]
async fn gated_pods_wait_until_the_controller_advertises_the_resource() {
    let sample = root().join("deploy/scheduler/gated.yaml");
    let sample = std::fs::read_to_string(sample).unwrap();
    let required = sample.replace("ignoredByScheduler: true", "ignoredByScheduler: false");
    assert_ne!(required, sample);
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("gated.yaml");
    std::fs::write(&config, required).unwrap();
    let world = World::with(config.to_str().unwrap(), &["n1"], &[]).await;
    let world = world.unwrap();
    let client = &world.plane.client;
    let role = std::fs::read_to_string(root().join("deploy/with-gate/role.yaml")).unwrap();
    objects::apply(client, &role).await.unwrap();

    let mut plain = Server::controller(&world.plane, "controller-a", &[]).await;
    let plain = plain.as_mut().unwrap();
    gated_pod(client, "web-0", "web").await;
    let check = async || {
        let events = objects::events(client, "default", "web-0").await;
        events
            .contains("Insufficient constraint.ciena.com/governed")
            .then_some(())
    };
    eventually("the pod waits", PATIENCE, check, async || {
        objects::events(client, "default", "web-0").await + &world.state()
    })
    .await;
    assert_eq!(objects::node_of(client, "default", "web-0").await, None);
    assert_eq!(
        plain.process.terminate(),
        Some(0),
        "{}",
        plain.process.tail()
    );

    let flag = ["--advertise-gate"];
    let advertises = Server::controller(&world.plane, "controller-b", &flag).await;
    let advertises = advertises.unwrap();
    assert_eq!(world.bound("web-0").await, "n1");
    // A new node, and one that lost the resource.
    objects::node(client, "n2", json!({})).await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let none = json!({"status": {"capacity": {GATE_RESOURCE: null}, "allocatable": {GATE_RESOURCE: null}}});
    let (params, none) = (PatchParams::default(), Patch::Merge(none));
    nodes.patch_status("n1", &params, &none).await.unwrap();
    for name in ["n1", "n2"] {
        let check = async || {
            let status = nodes.get(name).await.ok()?.status?;
            let amounts = [status.capacity?, status.allocatable?];
            let there = |a: &BTreeMap<String, Quantity>| {
                a.contains_key(GATE_RESOURCE) && a.contains_key("cpu")
            };
            amounts.iter().all(there).then_some(())
        };
        let what = format!("{name} carries the resource");
        eventually(&what, PATIENCE, check, async || {
            advertises.process.tail() + &world.state()
        })
        .await;
    }
}

/// A pod with the gate's resource, for which kube-scheduler calls the extender.
pub async fn gated_pod(client: &Client, name: &str, app: &str) {
    let one = json!({"constraint.ciena.com/governed": "1"});
    let more = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"automountServiceAccountToken": false, "containers": [
            {"name": "main", "image": "example.com/app:1", "resources": {"requests": one, "limits": one}}]}});
    objects::apply_one(client, more).await.unwrap();
}

/// Waits until the extender knows the offer, its policy and the provider of its
/// rules: each comes by a watch of its own.
pub async fn wait_for_provider(world: &World, app: &str) {
    world
        .extender
        .wait_for_rules("default", app, |rule| rule["provider"].is_string())
        .await;
}

/// The same for an offer whose rule has no provider.
pub async fn wait_for_offer(world: &World, app: &str) {
    world
        .extender
        .wait_for_rules("default", app, |rule| rule["outcome"] != "PolicyMissing")
        .await;
}
