//! The controller requeues rejected pods; without a controller the extender does.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tautline_tests::{PATIENCE, eventually, objects};

use crate::governed_cluster::GovernedCluster;

#[tokio::test]
async fn rejected_pods_are_requeued_by_one_process_and_never_in_a_loop() {
    let mut world = GovernedCluster::start(&[("n1", -1), ("n2", -1)], &[])
        .await
        .unwrap();
    let client = world.client().clone();
    world.offer("web", json!({})).await;
    world
        .extender
        .wait_for_rules("default", "web", |rule| rule["outcome"] == "OK")
        .await;
    let rejected = async |world: &GovernedCluster, pod: &str| {
        objects::pod(&client, "default", pod, "web").await.unwrap();
        world.wait_for_event(pod, "near/OverLimit").await;
    };
    let bound = async |world: &GovernedCluster, pod: &str| {
        objects::wait_until_bound(&client, "default", pod, async || world.state("web").await).await
    };
    // The extender requeues, or the controller. Other events in the cluster may make
    // kube-scheduler retry first: then the next pod decides.
    let woken = async |world: &GovernedCluster, name: &str, node: &str, by_extender: bool| {
        for turn in 0..5 {
            let pod = format!("{name}-{turn}");
            world.judge.set(&[("n1", -1), ("n2", -1)]);
            rejected(world, &pod).await;
            let costs = ["n1", "n2"].map(|n| (n, if n == node { 1 } else { -1 }));
            world.judge.set(&costs);
            assert_eq!(bound(world, &pod).await, node);
            let wakes = match by_extender {
                true => world.extender.metric("tautline_pod_requeues_total").await,
                false => world.metric("tautline_pod_requeues_total").await,
            };
            if wakes >= 1.0 {
                return;
            }
        }
        panic!(
            "five pods found a node, none was woken: {}",
            world.state("web").await
        );
    };

    // The extender has found out that a controller runs.
    let condition = async || {
        let here = world.extender.metric("tautline_pod_requeue_active").await;
        let there = world.metric("tautline_pod_requeue_active").await;
        ((here, there) == (0.0, 1.0)).then_some(())
    };
    eventually("the controller requeues", PATIENCE, condition, async || {
        world.state("web").await
    })
    .await;
    woken(&world, "web-0", "n2", false).await;
    assert_eq!(
        world.extender.metric("tautline_pod_requeues_total").await,
        0.0
    );

    // Both know the rejected pods; the controller requeues them.
    world.judge.set(&[("n1", -1), ("n2", -1)]);
    rejected(&world, "web-waits").await;
    world.wait_for_metric("tautline_rejected_pods", 1.0).await;
    world
        .extender
        .wait_for_metric("tautline_rejected_pods", 1.0)
        .await;
    world.judge.set(&[("n1", 1), ("n2", -1)]);
    assert_eq!(bound(&world, "web-waits").await, "n1");

    // A relabelled provider also requeues.
    world.judge.set(&[("n1", -1), ("n2", -1)]);
    rejected(&world, "web-1").await;
    let near = crate::node_judge::NodeJudge::new(&client, &[("n1", 1), ("n2", 5)]);
    let running = tautline_sdk::testkit::start(near).await.unwrap();
    let port = running.address.port();
    objects::provider(
        &client,
        "default",
        "judge",
        port,
        &[crate::governed_cluster::RULE],
    )
    .await
    .unwrap();
    assert_eq!(bound(&world, "web-1").await, "n1");

    // Without a controller the extender requeues.
    world.judge.set(&[("n1", -1), ("n2", -1)]);
    let port = world.provider.address.port();
    objects::provider(
        &client,
        "default",
        "judge",
        port,
        &[crate::governed_cluster::RULE],
    )
    .await
    .unwrap();
    world
        .extender
        .wait_for_rules("default", "web", |rule| rule["provider"].is_string())
        .await;
    assert_eq!(world.controllers[0].process.terminate(), Some(0));
    woken(&world, "web-2", "n1", true).await;

    // After a restart it knows the pods rejected before.
    world.judge.set(&[("n1", -1), ("n2", -1)]);
    rejected(&world, "web-before").await;
    world.extender.restart().await.unwrap();
    let condition = async || {
        let known = world.extender.metric("tautline_rejected_pods").await;
        (known == 1.0).then_some(())
    };
    eventually(
        "the extender knows the rejected pods",
        PATIENCE,
        condition,
        async || world.state("web").await,
    )
    .await;
    world.judge.set(&[("n1", 1), ("n2", -1)]);
    assert_eq!(bound(&world, "web-before").await, "n1");
    let requeues = "tautline_pod_requeues_total";
    let before = world.extender.settled_metric(requeues).await;

    // A pod that is pending for another reason is not requeued again and again.
    let big = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-3", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"automountServiceAccountToken": false, "containers": [
            {"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": "999"}}}]}});
    objects::apply_one(&client, big).await.unwrap();
    world.wait_for_event("web-3", "Insufficient cpu").await;
    let condition = async || {
        let lag = world.extender.metric("tautline_rejected_pods").await;
        (lag == 0.0).then_some(())
    };
    eventually("no pod waits for a rule", PATIENCE, condition, async || {
        world.state("web").await
    })
    .await;
    assert_eq!(world.extender.settled_metric(requeues).await, before);
}

#[tokio::test]
async fn pod_that_others_keep_off_is_not_woken() {
    let world = GovernedCluster::start(&[("n1", -1), ("n2", -1)], &[])
        .await
        .unwrap();
    let client = world.client().clone();
    world.offer("web", json!({})).await;
    world
        .extender
        .wait_for_rules("default", "web", |rule| rule["outcome"] == "OK")
        .await;
    let pod = |name: &str, labels: serde_json::Value, away: Option<&str>| {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"automountServiceAccountToken": false,
                     "containers": [{"name": "main", "image": "example.com/app:1"}]}});
        if let Some(label) = away {
            pod["spec"]["affinity"]["podAntiAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname",
                     "labelSelector": {"matchLabels": {label: "yes"}}}]});
        }
        pod
    };
    let bound = async |world: &GovernedCluster, pod: &str| {
        objects::wait_until_bound(&client, "default", pod, async || world.state("web").await).await
    };
    let nodes: Api<Node> = Api::all(client.clone());
    for name in ["n1", "n2"] {
        let labels = json!({"metadata": {"labels": {"kubernetes.io/hostname": name}}});
        let patch = Patch::Merge(labels);
        nodes
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    // No offer governs it. It keeps shy pods off the only node that will be within the limit.
    let mut guard = pod("guard", json!({"guard": "yes"}), Some("shy"));
    guard["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
    objects::apply_one(&client, guard).await.unwrap();
    assert_eq!(bound(&world, "guard").await, "n1");
    let kept_off = [
        ("web-shy", json!({"app": "web", "shy": "yes"}), None),
        ("web-away", json!({"app": "web"}), Some("guard")),
    ];
    for (name, labels, away) in kept_off.clone() {
        let pod = pod(name, labels, away);
        objects::apply_one(&client, pod).await.unwrap();
        world.wait_for_event(name, "near/OverLimit").await;
    }
    objects::pod(&client, "default", "web-free", "web")
        .await
        .unwrap();
    world.wait_for_event("web-free", "near/OverLimit").await;
    world.wait_for_metric("tautline_rejected_pods", 3.0).await;
    world.judge.set(&[("n1", 1), ("n2", -1)]);
    // The round that wakes it plans the others too.
    assert_eq!(bound(&world, "web-free").await, "n1");
    let requeues = "tautline_pod_requeues_total";
    world.controllers[0].settled_metric(requeues).await;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    for (name, ..) in kept_off {
        let pod = pods.get(name).await.unwrap();
        let woken = pod.metadata.annotations.unwrap_or_default();
        assert!(
            !woken.contains_key("constraint.ciena.com/woken"),
            "{name}: {woken:?}"
        );
    }
}
