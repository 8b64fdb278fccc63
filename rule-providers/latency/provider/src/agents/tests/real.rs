//! Real agents on loopback, most of which are away.

use tautline_latency_agent::{App, Config};

use super::*;

/// Runs an agent until the provider's test ends.
async fn launch(running: &Running, node: &str) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = Config {
        node: node.into(),
        boot_id: "boot".into(),
        advertise: None,
        listen: any,
        admin: any,
        nic_bits_per_second: 0,
        providers: vec![format!("http://{}", running.address).parse().unwrap()],
        tls: Default::default(),
        token: None,
        throughput_tests: false,
    };
    let app = App::build(config).await.unwrap();
    let mut tasks = Tasks::default();
    app.spawn(&mut tasks).unwrap();
    tokio::spawn(tasks.run(running.stop.clone().cancelled_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_are_away_measure_and_come_when_they_are_asked() {
    let running = keeping(0, trusting(), None).await;
    for node in ["a", "b", "c"] {
        launch(&running, node).await;
    }
    let metrics = &running.network.0.metrics;
    let pairs = [("a", "b"), ("a", "c"), ("b", "c")];
    let measured = || pairs.iter().all(|(a, b)| fresh(&running.network, a, b));
    until("all pairs, by agents that are away", measured).await;
    until("all away", || metrics.parked.get() == 3).await;
    let found = running.network.probe("a", &["b", "c"], 3, DEADLINE).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((metrics.wakes.get(), metrics.unanswered.get()), (1, 0));
    assert_eq!((metrics.agents.get(), metrics.parked.get()), (3, 2));
    running
        .network
        .demand(crate::demand::Asker::TRUSTED, "b", "c", DEADLINE);
    until("both measure", || metrics.parked.get() == 0).await;
}
