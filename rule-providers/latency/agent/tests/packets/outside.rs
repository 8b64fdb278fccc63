//! Targets outside the cluster, where no agent answers.

use std::time::Duration;

use tautline_proto::latency::{State, Target, Targets, Throughput, to_agent::What as Order};
use tokio::{io::AsyncReadExt, net::TcpListener, sync::mpsc, time::timeout};

use crate::{PATIENCE, eventually, world::World};

#[tokio::test(flavor = "multi_thread")]
async fn an_outside_target_is_measured_by_connects_that_carry_no_data() {
    let world = World::start(1).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target {
        node: "outside".to_owned(),
        address: listener.local_addr().unwrap().to_string(),
        outside: true,
        ..Target::default()
    };
    let (served, mut received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = Vec::new();
            _ = served.send(stream.read_to_end(&mut bytes).await.map(|_| bytes));
        }
    });
    let list = Targets {
        targets: vec![target.clone()],
        ..world.list(0, &[], &[])
    };
    world.provider.order("n0", Order::Targets(list)).await;
    let sampled = async || {
        let pair = world.provider.pair("n0", "outside");
        pair.filter(|p| p.samples > 0)
    };
    let state = || world.provider.state();
    let pair = eventually("its connect time", PATIENCE, sampled, state).await;
    assert_eq!(
        (pair.state(), pair.connect, pair.refresh_millis),
        (State::Measured, true, 10_000)
    );
    assert!(pair.p50_nanos > 0, "{pair:?}");
    // The connection ends without data.
    let bytes = timeout(PATIENCE, received.recv()).await.unwrap();
    assert!(bytes.unwrap().unwrap().is_empty());

    let (pairs, _) = world
        .probe(0, vec![target.clone()], 5, Duration::from_secs(1))
        .await;
    let known = |p: &tautline_proto::latency::Pair| p.connect && p.samples > 0;
    assert!(pairs.len() == 1 && pairs.iter().all(known), "{pairs:?}");
    let test = Throughput {
        id: 7,
        target: Some(target),
        max_bytes: 1 << 20,
        max_millis: 100,
    };
    world.provider.order("n0", Order::Throughput(test)).await;
    let answered = async || {
        let provider = &world.provider;
        provider.heard("n0", |h| h.transferred.get(&7).cloned())
    };
    let refused = eventually("its refusal", PATIENCE, answered, state).await;
    assert!(
        refused.error.contains("outside the cluster"),
        "{}",
        refused.error
    );
    assert_eq!(world.count(0, "sent").await, 0, "an echo was sent");
    let metrics = world.metrics(0).await;
    for line in [
        "tautline_latency_agent_outside_targets 1",
        "tautline_latency_agent_targets 0",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
    while let Ok(bytes) = received.try_recv() {
        assert!(bytes.unwrap().is_empty());
    }
}
