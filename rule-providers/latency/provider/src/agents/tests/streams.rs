//! Streams that come again, come late, lie or flood.

use super::*;

#[tokio::test]
async fn newer_stream_replaces_the_older() {
    let running = start(trusting(), None).await;
    let mut older = running.agent("a").await;
    let mut b = running.agent("b").await;
    older.targets(|t| named(t) == ["b"]).await;
    let mut newer = running.agent("a").await;
    assert_eq!(older.end().await.code(), Code::Aborted);
    newer.targets(|t| named(t) == ["b"]).await;
    newer.report(vec![pair("b", MILLI)]).await;
    until("a reading", || fresh(&running.network, "a", "b")).await;
    b.targets(|t| named(t) == ["a"]).await;
    assert_eq!(running.network.metrics.agents.get(), 2);
    drop(newer);
    until("one left", || running.network.metrics.agents.get() == 1).await;
    assert!(fresh(&running.network, "a", "b"), "its figures still hold");
}

#[tokio::test]
async fn new_address_of_an_agent_is_sent_to_the_others() {
    let running = start(trusting(), None).await;
    let (mut a, b) = (running.agent("a").await, running.agent("b").await);
    a.targets(|t| named(t) == ["b"]).await;
    drop(b);
    let address = "127.0.0.1:5311";
    let restarted = Hello {
        address: address.into(),
        ..hello("b")
    };
    let _b = Agent::with(running.endpoint(), restarted, None).await;
    a.targets(|t| t.targets.iter().any(|t| t.address == address))
        .await;
}

#[tokio::test]
async fn new_replica_has_measurements_with_the_first_report() {
    let (first, second) = (start(trusting(), None).await, start(trusting(), None).await);
    let (mut a, _b) = (first.agent("a").await, first.agent("b").await);
    a.targets(|t| named(t) == ["b"]).await;
    let _b = second.agent("b").await;
    until("b", || second.network.nic_bits_per_second("b").is_some()).await;
    let again = second.agent("a").await;
    again.report(vec![pair("b", MILLI)]).await;
    until("a reading", || fresh(&second.network, "a", "b")).await;
}

#[tokio::test]
async fn recreated_node_starts_without_measurements() {
    let running = start(trusting(), None).await;
    let (mut a, _b) = (running.agent("a").await, running.agent("b").await);
    a.targets(|t| named(t) == ["b"]).await;
    a.report(vec![pair("b", MILLI)]).await;
    until("a reading", || fresh(&running.network, "a", "b")).await;
    apply(&running.store, "a", "another");
    assert_eq!(a.end().await.code(), Code::Aborted);
    assert_eq!(running.network.measurement("a", "b"), Measurement::Missing);
    let mut a = running.agent("a").await;
    let targets = a.targets(|t| named(t) == ["b"]).await;
    assert_eq!(targets.echo_id, echo_id("another/boot"));
    assert_eq!(running.network.measurement("a", "b"), Measurement::Missing);
}

#[tokio::test]
async fn agent_reports_for_its_own_node_only() {
    let running = start(trusting(), None).await;
    let (liar, _b) = (running.agent("a").await, running.agent("b").await);
    let _c = running.agent("c").await;
    until("c", || running.network.nic_bits_per_second("c").is_some()).await;
    until("b", || running.network.nic_bits_per_second("b").is_some()).await;
    let made_up = Pair {
        instance: "uid-c/other".into(),
        ..pair("c", 1)
    };
    liar.report(vec![made_up, pair("a", 1), pair("c", 0), pair("b", MILLI)])
        .await;
    until("the honest part", || fresh(&running.network, "a", "b")).await;
    let refused = |why| running.network.metrics.reports_refused(why);
    assert_eq!(
        (
            refused("unknown-instance"),
            refused("same-node"),
            refused("malformed")
        ),
        (1, 1, 1)
    );
    assert_eq!(running.network.measurement("a", "c"), Measurement::Missing);
    assert_eq!(running.network.measurement("b", "c"), Measurement::Missing);
    // A second Hello does not make it another node.
    liar.say(Says::Hello(hello("c"))).await;
    liar.report(vec![pair("b", 9 * MILLI)]).await;
    let nine = Duration::from_millis(9);
    until(
        "the report",
        || matches!(running.network.measurement("a", "b"), Measurement::Fresh(f) if f.median == nine),
    )
    .await;
    assert_eq!(running.network.measurement("c", "b"), Measurement::Missing);
}

#[tokio::test]
async fn flood_is_delayed_and_does_not_delay_others() {
    let running = start(trusting(), None).await;
    let (flood, honest) = (running.agent("a").await, running.agent("b").await);
    let began = Instant::now();
    let flooding = tokio::spawn(async move {
        loop {
            flood.report(vec![]).await;
        }
    });
    let metrics = &running.network.metrics;
    until("a limit", || metrics.frames_limited.get() > 2).await;
    honest.report(vec![pair("a", MILLI)]).await;
    until("the honest report", || fresh(&running.network, "b", "a")).await;
    let most = 20 + 5 * (began.elapsed().as_secs() + 1) + 2;
    assert!(
        metrics.frames.get() <= most,
        "{} > {most}",
        metrics.frames.get()
    );
    flooding.abort();
}
