//! Costs steer which node gives a pod its device: the scheduler picks the device, the
//! gpu-slice provider the node.

use serde_json::json;
use tautline_tests::{PATIENCE, devices, eventually, objects, servers::Server};

use crate::{World, placing::known};

/// Waits until the provider has seen so many claims.
async fn claims(provider: &Server, state: &str, count: f64) {
    let metric = format!("tautline_gpu_claims{{state=\"{state}\"}}");
    let look = async || (provider.metric(&metric).await == count).then_some(());
    let what = format!("{count} claims {state}");
    eventually(&what, PATIENCE, look, async || provider.process.tail()).await;
}

#[tokio::test]
async fn instances_gather_on_a_card_so_that_a_whole_one_is_left() {
    let world = World::start(&["n1", "n2", "n3"], &[]).await.unwrap();
    let client = world.plane.client.clone();
    devices::classes(&client).await.unwrap();
    for node in ["n1", "n2", "n3"] {
        devices::partitionable(&client, node).await.unwrap();
    }
    let provider = Server::start(&world.plane, "gpu-slice", &["provider", "gpu-slice"])
        .await
        .unwrap();
    objects::provider(&client, "default", "p", provider.port, &["gpu-slice"])
        .await
        .unwrap();
    objects::policy(
        &client,
        "default",
        "gpu",
        json!({"name": "gpu-slice"}),
        json!({}),
    )
    .await
    .unwrap();
    known(&world, "gpu").await;

    // One card is filled to its end before the next is begun, whatever the
    // scheduler's own scores say; 1g, 2g, 1g, 3g: 3g goes where it still fits.
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
