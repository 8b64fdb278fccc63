//! Units of cards that a device plugin shares (CastSlice's `nvidia.com/gpu-shared`):
//! the scheduler counts units, the provider knows that a pod's come from one card.

use std::process::Command;

use serde_json::json;
use tautline_tests::servers::binary;

use crate::{
    World,
    gpu::{self, create, gpu_pod},
};

const UNITS: &str = "nvidia.com/gpu-shared";

/// A pod that requests this number of units, for one node if given.
async fn units(world: &World, name: &str, units: u32, node: Option<&str>) {
    let requests = json!({UNITS: units.to_string()});
    create(
        &world.plane.client,
        &gpu_pod(name, "shared", requests, node),
    )
    .await;
}

#[tokio::test]
async fn gpu_shares_of_a_pod_come_from_one_card() {
    let world = World::with("gated-gpu.yaml", &[], &["--bind"])
        .await
        .unwrap();
    let client = &world.plane.client;
    let provider = gpu::provider(&world.plane).await;
    gpu::service(client, provider.port).await;
    let four = json!({"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.product": "NVIDIA-L40S"});
    gpu::labelled(client, "s1", json!({UNITS: "8"}), four.clone()).await;
    gpu::labelled(client, "s2", json!({UNITS: "4"}), four).await;
    gpu::policy(&world, "shared", "true").await;
    gpu::wait_until_reserving(provider.port, "s1", async || provider.process.tail()).await;

    // One unit is free on each card of s1, two on the card of s2.
    for (name, count, node) in [("a-0", 3, "s1"), ("a-1", 3, "s1"), ("b-0", 2, "s2")] {
        units(&world, name, count, Some(node)).await;
        assert_eq!(world.bound(name).await, node);
    }
    // Two nodes have two units; one of them has them on one card.
    units(&world, "c-0", 2, None).await;
    assert_eq!(world.bound("c-0").await, "s2");
    let (_, explained) = world.extender.admin("/explain/default/c-0").await.unwrap();
    for part in ["GpuFragmented", "card 0 would have 0m left"] {
        assert!(explained.contains(part), "{part} in {explained}");
    }
    // The plugin chooses the card: nothing is recorded, nothing stays reserved.
    assert_eq!(gpu::devices(client, "c-0").await, "");
    gpu::wait_until_released(&provider).await;

    // The two free units are on two cards: the pod waits with a reason.
    units(&world, "d-0", 2, None).await;
    crate::faults::wait_for_event(&world, "d-0", "1 gpu-slice/GpuFragmented").await;
    let output = plan(&world).await;
    let why = "1 gpu-slice/GpuFragmented, 1 insufficient nvidia.com/gpu-shared";
    assert!(output.contains(why), "{output}");
    // One unit fits.
    units(&world, "e-0", 1, None).await;
    assert_eq!(world.bound("e-0").await, "s1");
    gpu::delete(client, "b-0").await;
    assert_eq!(world.bound("d-0").await, "s2");
}

/// The output of `tautline plan` for the pending pods.
async fn plan(world: &World) -> String {
    let mut plan = Command::new(binary().unwrap());
    let trusted = "--provider-namespaces=default";
    plan.args(["plan", "-o", "json", trusted, "--kubeconfig"])
        .arg(world.plane.kubeconfig("admin"));
    // On another thread: the servers that it calls run here.
    let planned = tokio::task::spawn_blocking(move || plan.output().unwrap()).await;
    let planned = planned.unwrap();
    assert_eq!(planned.status.code(), Some(1), "{planned:?}");
    String::from_utf8_lossy(&planned.stdout).into_owned()
}
