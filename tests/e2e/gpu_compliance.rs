//! Cards of bound pods that disappear: the pod's binding names the card within a period.

use std::time::{Instant, UNIX_EPOCH};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tautline_tests::{PATIENCE, eventually, objects, workloads};

use crate::{
    governed_cluster::{GovernedCluster, compliance_of},
    gpu::{self, CARDS, create, gpu_pod},
};

const EVALUATIONS: &str = "tautline_controller_evaluations_total";

#[tokio::test]
async fn gpu_compliance_names_the_lost_card() {
    let world = GovernedCluster::with("gated-gpu.yaml", &[], &[], &["--bind"])
        .await
        .unwrap();
    let client = world.client();
    let provider = gpu::provider(&world.plane).await;
    gpu::service(client, provider.port).await;
    for (node, resource) in [
        ("g1", CARDS),
        ("g2", CARDS),
        ("w1", "nvidia.com/gpu"),
        ("w2", "nvidia.com/gpu"),
    ] {
        gpu::node(client, node, json!({resource: "2"})).await;
    }
    for (app, rule) in [
        ("one", json!({"request": "1"})),
        ("two", json!({"request": "2", "limit": "1"})),
        ("own", json!({"request": "true"})),
        ("more", json!({"request": "2", "limit": "1"})),
    ] {
        offer(&world, app, rule).await;
    }
    gpu::wait_until_reserving(provider.port, "g1", async || provider.process.tail()).await;
    for (pod, app, requests, node) in [
        ("one-0", "one", json!({}), "g1"),
        ("one-1", "one", json!({}), "g1"),
        ("two-0", "two", json!({}), "g2"),
        ("own-0", "own", json!({"nvidia.com/gpu": "1"}), "w1"),
        ("own-1", "own", json!({"nvidia.com/gpu": "1"}), "w1"),
        ("more-0", "more", json!({"nvidia.com/gpu": "2"}), "w2"),
    ] {
        create(client, &gpu_pod(pod, app, requests, Some(node))).await;
        let state = async || provider.process.tail() + &world.state(app).await;
        objects::wait_until_bound(client, "default", pod, state).await;
    }
    for (app, count) in [("one", 2), ("two", 1), ("own", 2), ("more", 1)] {
        world.wait_for_compliance(app, count, "Compliant").await;
    }

    intruded(&world).await;
    withdrawn(&world).await;
    unhealthy(&world).await;
    limited(&world).await;
    counted(&world).await;
}

/// The policy of the pods of `app`, evaluated each second.
async fn offer(world: &GovernedCluster, app: &str, mut rule: Value) {
    rule["name"] = "gpu-slice".into();
    let more = json!({"period": "1s", "grace": "0s", "violationPolicy": "Ignore"});
    objects::policy(world.client(), "default", app, rule, more)
        .await
        .unwrap();
    let known = |rule: &Value| rule["provider"].is_string();
    world.extender.wait_for_rules("default", app, known).await;
}

/// The pod of `one` that holds the card, and the one that does not.
async fn holder(world: &GovernedCluster, card: &str) -> [&'static str; 2] {
    match gpu::devices(world.client(), "one-0").await == format!("{card}:1000") {
        true => ["one-0", "one-1"],
        false => ["one-1", "one-0"],
    }
}

/// Waits until the binding of a pod has this compliance and reason.
async fn stands(world: &GovernedCluster, app: &str, pod: &str, compliance: &str, reason: &str) {
    let from = Instant::now();
    let check = async || {
        let binding = workloads::binding(world.client(), "default", app, pod).await?;
        let reason_now = binding.status.as_ref()?.first_reason.clone();
        (compliance_of(&binding) == compliance && reason_now.contains(reason)).then_some(())
    };
    let what = format!("{pod} is {compliance}: {reason}");
    eventually(&what, PATIENCE, check, async || world.state(app).await).await;
    // About a period, which is 1 s; the grace is 0.
    println!("{what}: after {:?}", from.elapsed());
}

/// Pods that nobody planned claim what others hold: an annotation of their own names the card, or
/// they are on the node without asking a scheduler. They violate themselves alone.
async fn intruded(world: &GovernedCluster) {
    let client = world.client();
    let before = holders(world).await;
    next_second().await;
    offer(world, "intruder", json!({"request": "true"})).await;
    for (name, node, requests, annotations, reason) in [
        (
            "claims-0",
            "g1",
            json!({}),
            json!({"alibabacloud.com/gpu-index": "0"}),
            "node g1: card 0 is over-committed: 2000m of 1000m held; before it came default/one-",
        ),
        (
            "claims-1",
            "w1",
            json!({"nvidia.com/gpu": "2"}),
            json!({}),
            "node w1 offers nvidia.com/gpu 2 and its pods hold 4; before it came default/own-",
        ),
    ] {
        let mut pod = gpu_pod(name, "intruder", requests, None);
        pod.metadata.annotations = serde_json::from_value(annotations).unwrap();
        if let Some(spec) = &mut pod.spec {
            spec.node_name = Some(node.into());
        }
        create(client, &pod).await;
        stands(world, "intruder", name, "Violation", reason).await;
    }
    // All are evaluated several times more: each second.
    let evaluated = world.metric(EVALUATIONS).await;
    world.wait_for_metric(EVALUATIONS, evaluated + 24.0).await;
    assert_eq!(holders(world).await, before, "{}", world.state("").await);
    for name in ["claims-0", "claims-1"] {
        gpu::delete(client, name).await;
    }
}

/// Waits until new pods are younger than those there are: creation times are whole seconds.
async fn next_second() {
    let second = || UNIX_EPOCH.elapsed().unwrap().as_secs();
    let start = second();
    let check = async || (second() > start).then_some(());
    eventually("the second ends", PATIENCE, check, async || "").await;
}

/// The compliance of those who have their cards, its reason, and when it last changed.
async fn holders(world: &GovernedCluster) -> Vec<(String, String, Option<Time>)> {
    let mut all = Vec::new();
    for (app, pod) in [
        ("one", "one-0"),
        ("one", "one-1"),
        ("own", "own-0"),
        ("own", "own-1"),
    ] {
        let binding = workloads::binding(world.client(), "default", app, pod).await;
        let binding = binding.unwrap();
        let status = binding.status.clone().unwrap_or_default();
        let changed = status.last_compliance_change_timestamp;
        all.push((compliance_of(&binding), status.first_reason, changed));
    }
    all
}

/// Waits until the binding of one of two pods has this compliance and reason; returns the pod.
async fn stands_one_of(
    world: &GovernedCluster,
    app: &str,
    pods: [&'static str; 2],
    compliance: &str,
    reason: &str,
) -> &'static str {
    let check = async || {
        for pod in pods {
            let binding = workloads::binding(world.client(), "default", app, pod).await?;
            let reason_now = binding.status.as_ref()?.first_reason.clone();
            if compliance_of(&binding) == compliance && reason_now.contains(reason) {
                return Some(pod);
            }
        }
        None
    };
    let what = format!("one of {pods:?} is {compliance}: {reason}");
    eventually(&what, PATIENCE, check, async || world.state(app).await).await
}

async fn withdrawn(world: &GovernedCluster) {
    let [loses, keeps] = holder(world, "1").await;
    gpu::set_allocatable(world.client(), "g1", CARDS, "1").await;
    stands(world, "one", loses, "Violation", "node g1: card 1 is gone").await;
    stands(world, "one", keeps, "Compliant", "").await;
    gpu::set_allocatable(world.client(), "g1", CARDS, "2").await;
    stands(world, "one", loses, "Compliant", "").await;
}

async fn unhealthy(world: &GovernedCluster) {
    let [loses, keeps] = holder(world, "0").await;
    annotate(world, "g1", Some("0")).await;
    let reason = "node g1: card 0 is unhealthy";
    stands(world, "one", loses, "Violation", reason).await;
    stands(world, "one", keeps, "Compliant", "").await;
    annotate(world, "g1", None).await;
    stands(world, "one", loses, "Compliant", "").await;
}

/// Half of the request is left, which meets the limit; zero does not.
async fn limited(world: &GovernedCluster) {
    gpu::set_allocatable(world.client(), "g2", CARDS, "1").await;
    let reason = "node g2: card 1 is gone; 1 of its cards left whole, the limit is 1";
    stands(world, "two", "two-0", "Limit", reason).await;
    annotate(world, "g2", Some("0")).await;
    let reason = "node g2: card 0 is unhealthy";
    stands(world, "two", "two-0", "Violation", reason).await;
    gpu::set_allocatable(world.client(), "g2", CARDS, "2").await;
    stands(world, "two", "two-0", "Limit", reason).await;
    annotate(world, "g2", None).await;
    stands(world, "two", "two-0", "Compliant", "").await;
}

/// With a device plugin that counts: fewer units than the pods have.
async fn counted(world: &GovernedCluster) {
    gpu::set_allocatable(world.client(), "w1", "nvidia.com/gpu", "1").await;
    let reason = "node w1 offers nvidia.com/gpu 1 and its pods hold 2; before it came default/";
    let younger = stands_one_of(world, "own", ["own-0", "own-1"], "Violation", reason).await;
    let older = if younger == "own-0" { "own-1" } else { "own-0" };
    stands(world, "own", older, "Compliant", "").await;
    gpu::set_allocatable(world.client(), "w2", "nvidia.com/gpu", "1").await;
    let reason = "node w2 offers nvidia.com/gpu 1 and its pods hold 2; 1 of its cards left whole";
    stands(world, "more", "more-0", "Limit", reason).await;
    gpu::set_allocatable(world.client(), "w2", "nvidia.com/gpu", "0").await;
    let reason = "node w2 offers nvidia.com/gpu 0 and its pods hold 2";
    stands(world, "more", "more-0", "Violation", reason).await;
}

/// Sets the annotation with a node's unhealthy cards.
async fn annotate(world: &GovernedCluster, node: &str, cards: Option<&str>) {
    let annotations = json!({"tautline.io/gpu-unhealthy": cards});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let nodes: Api<Node> = Api::all(world.client().clone());
    let params = PatchParams::default();
    nodes.patch(node, &params, &patch).await.unwrap();
}
