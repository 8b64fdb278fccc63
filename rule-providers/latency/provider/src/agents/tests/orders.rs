//! Orders to agents.

use super::*;

#[tokio::test]
async fn demanded_pairs_come_first() {
    let running = start(trusting(), None).await;
    let (mut a, mut b) = (running.agent("a").await, running.agent("b").await);
    running.network.demand(
        crate::network::demanded_pairs::Requester::TRUSTED,
        "a",
        "b",
        DEADLINE,
    );
    running.network.demand(
        crate::network::demanded_pairs::Requester::TRUSTED,
        "a",
        "nobody",
        DEADLINE,
    );
    assert_eq!(running.network.demand.lock().pairs(0).count(), 1);
    let by = |of: &Targets, node: &str| of.targets.iter().any(|t| t.node == node && t.demand);
    a.targets(|t| by(t, "b")).await;
    b.targets(|t| by(t, "a")).await;
    until("counted", || {
        running.network.metrics.demanded_pairs.get() == 1
    })
    .await;
    running.network.demand(
        crate::network::demanded_pairs::Requester::TRUSTED,
        "a",
        "c",
        Duration::ZERO,
    );
    let _c = running.agent("c").await;
    let targets = a.targets(|t| named(t) == ["b", "c"]).await;
    assert!(by(&targets, "b") && !by(&targets, "c"), "{targets:?}");
}

#[tokio::test]
async fn probes_go_to_the_peer_or_else_to_the_nodes() {
    let running = start(trusting(), None).await;
    let (mut a, mut b) = (running.agent("a").await, running.agent("b").await);
    until("both", || running.network.metrics.agents.get() == 2).await;
    let answer = async |agent: &mut Agent, to: &str| {
        loop {
            if let Told::Probe(probe) = agent.hear().await.unwrap() {
                assert_eq!(probe.targets[0].node, to);
                assert_eq!(probe.samples, 3);
                let pairs = vec![pair(to, 2 * MILLI)];
                agent
                    .say(Says::Probed(Probed {
                        id: probe.id,
                        pairs,
                    }))
                    .await;
                return;
            }
        }
    };
    let within = DEADLINE;
    let probe = running.network.probe("a", &["b", "x", "a"], 3, within);
    let ((), found) = tokio::join!(answer(&mut a, "b"), probe);
    let Some(Measurement::Fresh(figure)) = found.get("b").filter(|_| found.len() == 1) else {
        panic!("{found:?}");
    };
    assert_eq!(figure.median, Duration::from_millis(2));
    // The peer's agent goes; the other one measures.
    drop(a);
    until("one", || running.network.metrics.agents.get() == 1).await;
    let probe = running.network.probe("a", &["b"], 3, within);
    let ((), found) = tokio::join!(answer(&mut b, "a"), probe);
    assert_eq!(found.len(), 1);
    // No agent answers: the probe ends at its deadline.
    drop(b);
    until("none", || running.network.metrics.agents.get() == 0).await;
    assert!(
        running
            .network
            .probe("a", &["b"], 3, within)
            .await
            .is_empty()
    );
    assert_eq!(running.network.metrics.probes_answered.get(), 2);
}

#[tokio::test]
async fn order_without_targets_is_answered_and_not_sent() {
    let running = start(trusting(), None).await;
    let mut a = running.agent("a").await;
    until("a", || running.network.metrics.agents.get() == 1).await;
    // Known from a report of old, but its agent has not come.
    let b = running
        .network
        .pairs
        .lock()
        .instance("b", "uid-b", "boot", Duration::ZERO);
    let probe_order = running.network.order_probe("a", vec![b], DEADLINE);
    let answered = timeout(DEADLINE, probe_order).await;
    assert_eq!(answered, Ok(true));
    drop(running);
    while let Ok(order) = a.hear().await {
        assert!(!matches!(order, Told::Probe(_)), "{order:?}");
    }
}

#[tokio::test]
async fn transfer_returns_its_rate() {
    let running = start(trusting(), None).await;
    let (mut a, _b) = (running.agent("a").await, running.agent("b").await);
    until("both", || running.network.metrics.agents.get() == 2).await;
    let answer = async {
        loop {
            if let Told::Throughput(order) = a.hear().await.unwrap() {
                assert_eq!(order.max_bytes, 1000);
                let done = Transferred {
                    id: order.id,
                    bits_per_second: 8,
                    error: String::new(),
                };
                a.say(Says::Transferred(done)).await;
                return;
            }
        }
    };
    let transfer = running.network.transfer("a", "b", 1000, DEADLINE);
    let ((), found) = tokio::join!(answer, transfer);
    assert_eq!(found, Ok(8));
}
