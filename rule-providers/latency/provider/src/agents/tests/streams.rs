//! Streams that come again, come late, lie or flood.

use super::*;

#[tokio::test]
async fn a_newer_stream_takes_the_place_of_the_older() {
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
    assert_eq!(running.network.0.metrics.agents.get(), 2);
    drop(newer);
    until("one left", || running.network.0.metrics.agents.get() == 1).await;
    assert!(fresh(&running.network, "a", "b"), "its figures still hold");
}

#[tokio::test]
async fn a_replica_that_comes_later_is_warm_with_the_first_report() {
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
async fn a_node_of_the_same_name_is_another_node() {
    let running = start(trusting(), None).await;
    let (mut a, _b) = (running.agent("a").await, running.agent("b").await);
    a.targets(|t| named(t) == ["b"]).await;
    a.report(vec![pair("b", MILLI)]).await;
    until("a reading", || fresh(&running.network, "a", "b")).await;
    apply(&running.feed, "a", "another");
    assert_eq!(a.end().await.code(), Code::Aborted);
    assert_eq!(running.network.reading("a", "b"), Reading::Nothing);
    let mut a = running.agent("a").await;
    let targets = a.targets(|t| named(t) == ["b"]).await;
    assert_eq!(targets.echo_id, echo_id("another/boot"));
    assert_eq!(running.network.reading("a", "b"), Reading::Nothing);
}

#[tokio::test]
async fn a_liar_speaks_for_itself_only() {
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
    let refused = |why| running.network.0.metrics.refused(why);
    assert_eq!(
        (
            refused("unknown-instance"),
            refused("same-node"),
            refused("malformed")
        ),
        (1, 1, 1)
    );
    assert_eq!(running.network.reading("a", "c"), Reading::Nothing);
    assert_eq!(running.network.reading("b", "c"), Reading::Nothing);
    // A second Hello does not make it another node.
    liar.say(Says::Hello(hello("c"))).await;
    liar.report(vec![pair("b", 9 * MILLI)]).await;
    let nine = Duration::from_millis(9);
    until(
        "the report",
        || matches!(running.network.reading("a", "b"), Reading::Fresh(f) if f.median == nine),
    )
    .await;
    assert_eq!(running.network.reading("c", "b"), Reading::Nothing);
}

#[tokio::test]
async fn a_flood_waits_and_holds_up_nobody() {
    let running = start(trusting(), None).await;
    let (flood, honest) = (running.agent("a").await, running.agent("b").await);
    let began = Instant::now();
    let flooding = tokio::spawn(async move {
        loop {
            flood.report(vec![]).await;
        }
    });
    let metrics = &running.network.0.metrics;
    until("a limit", || metrics.limited.get() > 2).await;
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
