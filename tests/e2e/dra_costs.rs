//! Costs steer which node gives a pod its device: the scheduler picks the device, the
//! gpu-slice provider the node.

use serde_json::{Value, json};
use tautline_tests::{PATIENCE, devices, eventually, objects, servers::Server, workloads};

use crate::{World, placement::wait_for_provider};

/// The provider as a process, and an offer with its rule for pods labelled `gpu`.
async fn governed(world: &World, offer: Value) -> Server {
    let client = &world.plane.client;
    let provider = Server::start(&world.plane, "gpu-slice", &["provider", "gpu-slice"])
        .await
        .unwrap();
    objects::provider(client, "default", "p", provider.port, &["gpu-slice"])
        .await
        .unwrap();
    let rule = json!({"name": "gpu-slice"});
    objects::policy(client, "default", "gpu", rule, offer)
        .await
        .unwrap();
    provider
}

/// Waits until the provider has seen `count` claims.
async fn claims(provider: &Server, state: &str, count: f64) {
    let metric = format!("tautline_gpu_claims{{state=\"{state}\"}}");
    let condition = async || (provider.metric(&metric).await == count).then_some(());
    let what = format!("{count} claims {state}");
    eventually(&what, PATIENCE, condition, async || provider.process.tail()).await;
}

#[tokio::test]
async fn gpu_instances_share_a_card_and_leave_whole_ones() {
    let world = World::start(&["n1", "n2", "n3"], &[]).await.unwrap();
    let client = world.plane.client.clone();
    devices::classes(&client).await.unwrap();
    for node in ["n1", "n2", "n3"] {
        devices::partitionable(&client, node).await.unwrap();
    }
    let provider = governed(&world, json!({})).await;
    wait_for_provider(&world, "gpu").await;

    // One card is filled before the next one is used, despite the scheduler's own scores. After
    // 1g, 2g, 1g the 3g goes where it still fits.
    let mut nodes = Vec::new();
    for (name, profile) in [
        ("a", "1g.10gb"),
        ("b", "2g.20gb"),
        ("c", "1g.10gb"),
        ("d", "3g.40gb"),
    ] {
        devices::claim(&client, name, devices::instance(profile))
            .await
            .unwrap();
        claims(&provider, "free", 1.0).await;
        devices::pod_of_claim(&client, name, "gpu").await.unwrap();
        nodes.push(world.bound(name).await);
        claims(&provider, "allocated", nodes.len() as f64).await;
    }
    assert!(nodes.iter().all(|n| *n == nodes[0]), "{nodes:?}");

    // Two whole cards are left, for one pod each; a third finds none.
    for name in ["e", "f", "g"] {
        devices::claim(&client, name, devices::exactly("gpu", json!({})))
            .await
            .unwrap();
        devices::pod_of_claim(&client, name, "gpu").await.unwrap();
    }
    let check = async || {
        let mut bound = 0;
        for name in ["e", "f", "g"] {
            let node = objects::node_of(&client, "default", name).await;
            bound += usize::from(node.is_some());
        }
        (bound == 2).then_some(())
    };
    eventually("two of three are bound", PATIENCE, check, async || {
        world.state()
    })
    .await;
}

#[tokio::test]
async fn tainted_and_withdrawn_devices_are_violations() {
    let world = World::start(&["n1"], &[]).await.unwrap();
    let client = world.plane.client.clone();
    devices::classes(&client).await.unwrap();
    devices::cards(&client, "n1", 2, 1, None).await.unwrap();
    let _provider = governed(&world, json!({"period": "1s"})).await;
    let controller = Server::controller(&world.plane, "controller-a", &[])
        .await
        .unwrap();
    wait_for_provider(&world, "gpu").await;
    devices::claim(&client, "a", devices::exactly("gpu", json!({})))
        .await
        .unwrap();
    devices::pod_of_claim(&client, "a", "gpu").await.unwrap();
    world.bound("a").await;

    let stands = async |compliance: &str, reason: &str| {
        let condition = async || {
            let all = workloads::bindings(&client, "default", "gpu").await;
            let status = all.first()?.status.clone()?;
            let stands = format!("{:?}", status.compliance) == compliance
                && status.first_reason.contains(reason);
            stands.then_some(())
        };
        let what = format!("the binding is {compliance}: {reason}");
        eventually(&what, PATIENCE, condition, async || {
            let all = workloads::bindings(&client, "default", "gpu").await;
            let stands: Vec<_> = all.iter().map(|b| &b.status).collect();
            format!("{stands:?}\n{}", controller.process.tail())
        })
        .await;
    };
    stands("Compliant", "gpu-0").await;
    let taint = Some("NoExecute");
    devices::cards(&client, "n1", 2, 2, taint).await.unwrap();
    stands("Violation", "gpu-0: device has taint example.com/unhealthy").await;
    devices::cards(&client, "n1", 2, 3, None).await.unwrap();
    stands("Compliant", "gpu-0").await;
    devices::cards(&client, "n1", 0, 4, None).await.unwrap();
    stands("Violation", "gpu-0: device is not published any more").await;
}

/// Kubernetes 1.36: a class names an extended resource, and drivers serve it on nodes whose device
/// plugin offers none (KEP-5004).
#[tokio::test]
async fn pods_get_devices_of_drivers_by_an_extended_resource() {
    let world = World::start(&["n1", "n2"], &[]).await.unwrap();
    let client = world.plane.client.clone();
    devices::classes(&client).await.unwrap();
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": "extended"},
        "spec": {
            "extendedResourceName": "nvidia.com/gpu",
            "selectors": [{"cel": {"expression": format!("device.driver == '{}'", devices::DRIVER)}}],
        },
    });
    objects::apply_one(&client, class).await.unwrap();
    devices::cards(&client, "n2", 1, 1, None).await.unwrap();
    let provider = governed(&world, json!({"period": "1s"})).await;
    let controller = Server::controller(&world.plane, "controller-a", &[])
        .await
        .unwrap();
    wait_for_provider(&world, "gpu").await;
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "gpu"}},
            "spec": {"automountServiceAccountToken": false, "containers": [
                {"name": "main", "image": "example.com/app:1",
                 "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        })
    };
    objects::apply_one(&client, pod("a")).await.unwrap();
    assert_eq!(world.bound("a").await, "n2");
    claims(&provider, "allocated", 1.0).await;
    let condition = async || {
        let all = workloads::bindings(&client, "default", "gpu").await;
        let status = all.first()?.status.clone()?;
        (format!("{:?}", status.compliance) == "Compliant").then_some(())
    };
    eventually(
        "the binding is Compliant",
        PATIENCE,
        condition,
        async || {
            let all = workloads::bindings(&client, "default", "gpu").await;
            let stands: Vec<_> = all.iter().map(|b| &b.status).collect();
            format!("{stands:?}\n{}", controller.process.tail())
        },
    )
    .await;
    // The only device is in use.
    objects::apply_one(&client, pod("b")).await.unwrap();
    let why = devices::unschedulable(&client, "b", async || world.state()).await;
    assert!(why.contains("0/2 nodes are available"), "{why}");
}
