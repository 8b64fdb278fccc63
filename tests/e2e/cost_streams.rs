//! Streams of costs under faults: no card is promised twice while a provider hangs, dies and comes
//! back, and while the extender restarts.

use std::collections::BTreeMap;

use serde_json::json;
use tautline_tests::eventually;

use crate::{
    World, gpu,
    in_flight::{LONG, NODES, bound, create, node_name, nothing_in_flight, pod},
};

const CARDS: usize = 8;
/// A quarter of the pods is created before each fault.
const BATCH: usize = 70;
const STREAMED: &str = "tautline_provider_costs_streamed_total";
const STREAMS: &str = "tautline_provider_streams";
const BREAKS: &str = "tautline_provider_stream_breaks_total";

async fn wait_for_more(world: &World, metric: &str, than: f64) {
    let check = async || (world.extender.metric(metric).await > than).then_some(());
    let state = async || world.extender.admin("/metrics").await.unwrap_or_default().1;
    eventually(&format!("{metric} is above {than}"), LONG, check, state).await;
}

#[tokio::test]
async fn cards_are_not_overcommitted_while_streams_break() {
    let mut world = World::start(&[], &[]).await.unwrap();
    let client = world.plane.client.clone();
    let mut provider = gpu::provider(&world.plane).await;
    gpu::service(&client, provider.port).await;
    for at in 0..NODES {
        gpu::node(
            &client,
            &node_name(at),
            json!({gpu::CARDS: CARDS.to_string()}),
        )
        .await;
    }
    gpu::policy(&world, "quarter", "250m").await;
    let annotations =
        json!({"alibabacloud.com/gpu-milli": "250", "alibabacloud.com/gpu-count": "1"});
    let make = |at: usize| {
        let more = json!({"/metadata/annotations": annotations});
        create(&client, pod(&format!("quarter-{at}"), "quarter", more))
    };
    for fault in 0..4 {
        let first = fault * BATCH;
        futures::future::join_all((first..first + BATCH / 2).map(make)).await;
        wait_for_more(&world, STREAMED, 0.0).await;
        // Only an open stream can break; after the last fault it is away for up to 5 s.
        wait_for_more(&world, STREAMS, 0.0).await;
        let breaks = world.extender.metric(BREAKS).await;
        match fault {
            // It hangs.
            0 => provider.process.pause(),
            // It dies; its successor knows nothing.
            1 => provider.restart().await.unwrap(),
            // The extender dies; its successor knows nothing of what it promised.
            2 => world.extender.restart().await.unwrap(),
            _ => {}
        }
        futures::future::join_all((first + BATCH / 2..first + BATCH).map(make)).await;
        if fault < 2 {
            wait_for_more(&world, BREAKS, breaks).await;
        }
        if fault == 0 {
            provider.process.resume();
        }
        bound(&world, "quarter-", first + BATCH).await;
    }
    let nodes = bound(&world, "quarter-", 4 * BATCH).await;
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    for node in nodes.values() {
        *used.entry(node).or_default() += 1;
    }
    let over: Vec<_> = used.iter().filter(|(_, pods)| **pods > 4 * CARDS).collect();
    assert_eq!(over, Vec::<(&&str, &usize)>::new(), "{}", world.state());
    nothing_in_flight(&world).await;
}
