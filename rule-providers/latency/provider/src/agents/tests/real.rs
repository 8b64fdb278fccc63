//! Real agents on loopback.

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
async fn real_agents_measure_and_answer_probes() {
    let running = start(trusting(), None).await;
    for node in ["a", "b", "c"] {
        launch(&running, node).await;
    }
    let metrics = &running.network.metrics;
    let pairs = [("a", "b"), ("a", "c"), ("b", "c")];
    let measured = || pairs.iter().all(|(a, b)| fresh(&running.network, a, b));
    until("all pairs", measured).await;
    let found = running.network.probe("a", &["b", "c"], 3, DEADLINE).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(metrics.agents.get(), 3);
}
