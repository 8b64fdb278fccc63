//! The only provider is killed with pods bound: their annotations have their cards, and the
//! restarted provider reads them.

use serde_json::json;
use tautline_tests::{PATIENCE, eventually};

use crate::{
    World,
    gpu::{self, CARDS, expect_devices},
    gpu_audit::Audit,
};

#[tokio::test]
async fn gpu_provider_restores_held_cards_after_a_restart() {
    let world = World::with("gated-gpu.yaml", &[], &["--bind"])
        .await
        .unwrap();
    let client = world.plane.client.clone();
    let mut provider = gpu::provider(&world.plane).await;
    gpu::service(&client, provider.port).await;
    gpu::node(&client, "n1", json!({CARDS: "2"})).await;
    for (app, request) in [("quarter", "250m"), ("half", "500m"), ("whole", "1")] {
        gpu::policy(&world, app, request).await;
    }
    gpu::wait_until_reserving(provider.port, "n1", async || provider.process.tail()).await;
    gpu::pod(&client, "whole-0", "whole", "n1").await;
    world.bound("whole-0").await;
    let full = gpu::devices(&client, "whole-0").await;
    // The card that the others share.
    let rest = if full == "0:1000" { 1 } else { 0 };
    gpu::pod(&client, "half-0", "half", "n1").await;
    expect_devices(&world, "half-0", "n1", &format!("{rest}:500")).await;
    gpu::pod(&client, "quarter-0", "quarter", "n1").await;
    expect_devices(&world, "quarter-0", "n1", &format!("{rest}:250")).await;

    // Killed; a pod is created while the provider is down.
    provider.process.kill();
    gpu::pod(&client, "half-1", "half", "n1").await;
    provider.restart().await.unwrap();
    gpu::wait_until_reserving(provider.port, "n1", async || provider.process.tail()).await;
    // 250m are free: both the costs and Reserve refuse half a card.
    crate::faults::wait_for_event(&world, "half-1", "gpu-slice/GpuBusy").await;
    refused_at_bind(&world, "half-1").await;
    gpu::pod(&client, "quarter-1", "quarter", "n1").await;
    expect_devices(&world, "quarter-1", "n1", &format!("{rest}:250")).await;
    let audit = Audit::read(&client).await;
    assert_eq!((audit.faults(), audit.bound()), (vec![], 4));
    assert_eq!(audit.hosts(audit.pending()[0]), Vec::<&str>::new());
    gpu::wait_until_released(&provider).await;

    // Two deleted quarters leave half a card.
    for pod in ["half-1", "quarter-0", "quarter-1"] {
        gpu::delete(&client, pod).await;
    }
    gpu::pod(&client, "half-2", "half", "n1").await;
    expect_devices(&world, "half-2", "n1", &format!("{rest}:500")).await;
    assert_eq!(Audit::read(&client).await.faults(), Vec::<String>::new());
}

/// A scheduler that binds without filter is refused too.
async fn refused_at_bind(world: &World, pod: &str) {
    let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(
        world.plane.client.clone(),
    );
    let uid = pods.get(pod).await.unwrap().metadata.uid.unwrap();
    let args = json!({"PodName": pod, "PodNamespace": "default", "PodUID": uid, "Node": "n1"});
    let refused = async || {
        let answer = crate::faults::post(world, "bind", &args.to_string()).await;
        answer.ok()?.contains("GpuBusy").then_some(())
    };
    let what = "a bind beyond the card is refused";
    eventually(what, PATIENCE, refused, async || world.state()).await;
}
