use std::time::Duration;

use tautline_conformance::Config;
use tautline_sdk::testkit;

use crate::spread;

#[tokio::test(flavor = "multi_thread")]
async fn provider_keeps_the_contract() {
    let server = testkit::start(spread).await.unwrap();
    let report = tautline_conformance::run(Config {
        nodes: vec!["node-a".into(), "node-b".into()],
        // Tests run on busy machines.
        deadline: Duration::from_secs(10),
        ..Config::new(server.address.to_string(), "spread")
    });
    let report = report.await.unwrap();
    assert_eq!(report.failed(), 0, "{}", report.tap());
    server.stop().await;
}
