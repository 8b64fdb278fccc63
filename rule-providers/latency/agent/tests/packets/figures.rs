//! Reported figures against the network's.

use std::time::{Duration, Instant};

use tautline_proto::latency::{Pair, State};

use crate::{
    PATIENCE, eventually,
    world::{World, name},
};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// Within 5 % or `least`, whichever is larger.
fn near(nanos: u64, round_trip: Duration, least: Duration) -> bool {
    let off = Duration::from_nanos(nanos).abs_diff(round_trip);
    off <= (round_trip / 20).max(least)
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_samples_tell_the_delay_through_jitter_and_loss() {
    let world = World::start(6).await;
    world.relay.set_jitter(0.1);
    world.relay.set_loss(0.02);
    let delays = [200 * US, MS, 5 * MS, 20 * MS, 40 * MS];
    for (to, delay) in delays.iter().enumerate() {
        world.relay.set_round_trip(0, to + 1, *delay);
    }
    let pairs = sixty(&world).await;
    let late = world.relay.late_share();
    eprintln!("{:.1} % of packets were delivered late", late * 100.0);
    for (to, delay) in delays.iter().enumerate() {
        let pair = pairs.iter().find(|p| p.node == name(to + 1)).unwrap();
        let mut did = world.relay.round_trips(0, to + 1);
        did = did.split_off(did.len().saturating_sub(60));
        let mut recent = did.split_off(did.len().saturating_sub(20));
        did.extend_from_slice(&recent);
        did.sort();
        recent.sort();
        let half = recent[recent.len() * 3 / 4] - recent[recent.len() / 4];
        let did = did[did.len() / 2];
        eprintln!(
            "{delay:?}: the network's median {did:?}, middle half {half:?}; p50 {} us, p95 {} us, middle half {} us",
            pair.p50_nanos / 1_000,
            pair.p95_nanos / 1_000,
            pair.middle_half_nanos / 1_000
        );
        assert_eq!(pair.state(), State::Measured);
        // A busy machine also keeps the agent waiting before it takes the time.
        let least = if late < 0.1 { 50 * US } else { 500 * US };
        assert!(near(pair.p50_nanos, did, least), "{did:?}: {pair:?}");
        assert!(pair.middle_half_nanos > 0, "{pair:?}");
        // Else this machine is too busy to be a network of that delay.
        if late < 0.1 {
            assert!(near(pair.p50_nanos, *delay, least), "{delay:?}: {pair:?}");
            // Of near targets the machine's own waits are as large.
            let told = Duration::from_nanos(pair.middle_half_nanos);
            let alike = half / 3 < told && told < half * 3;
            assert!(half < 500 * US || alike, "{half:?}: {pair:?}");
        }
    }
}

/// The pairs of node 0 to five others, of 60 samples each.
async fn sixty(world: &World) -> Vec<Pair> {
    let targets: Vec<_> = (1..6).map(|to| world.target(0, to, false)).collect();
    for _ in 0..60 {
        let (pairs, _) = world.probe(0, targets.clone(), 5, 2_000 * MS).await;
        if pairs.len() == 5 && pairs.iter().all(|p| p.samples == 60) {
            return pairs;
        }
    }
    panic!("never 60 samples\n{}", world.provider.state());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_link_in_demand_is_unreachable_within_seconds_and_comes_back() {
    let world = World::start(2).await;
    world.relay.set_round_trip(0, 1, 3 * MS);
    world.targets(0, &[], &[1]).await;
    let measured = |p: &Pair| p.state() == State::Measured;
    world
        .until("it is measured", PATIENCE, (0, 1), measured)
        .await;
    // Beyond the 16 visits of a new node, which are closer together.
    let sent = async || (world.count(0, "sent").await >= 18).then_some(());
    eventually("it goes on", PATIENCE, sent, || world.provider.state()).await;
    world.relay.cut(0, 1, true);
    let start = Instant::now();
    let limit = Duration::from_secs(15);
    let gone = |p: &Pair| p.state() == State::Unreachable;
    world.until("it is unreachable", limit, (0, 1), gone).await;
    let (_, turned_at) = world.provider.heard("n0", |h| h.turned["n1"]);
    eprintln!("unreachable was told {:?} after the cut", turned_at - start);
    world.relay.cut(0, 1, false);
    let start = Instant::now();
    world.until("it is back", limit, (0, 1), measured).await;
    eprintln!("back after {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_delay_shows_within_three_visits() {
    let world = World::start(2).await;
    world.relay.set_round_trip(0, 1, 4 * MS);
    // Each probe of one sample is one visit.
    let visit = async || {
        let (mut pairs, _) = world
            .probe(0, vec![world.target(0, 1, false)], 1, 900 * MS)
            .await;
        pairs.pop().unwrap()
    };
    let mut pair = visit().await;
    while pair.samples < 10 {
        pair = visit().await;
    }
    let changed = |p: &Pair| Duration::from_nanos(p.window_nanos[0]) > 8_500 * US;
    assert!(!changed(&pair), "{pair:?}");
    world.relay.set_round_trip(0, 1, 9 * MS);
    let before = pair.samples;
    while pair.samples < before + 3 {
        pair = visit().await;
    }
    assert!(changed(&pair), "{pair:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_udp_is_lost_and_tcp_is_not_the_connect_is_the_sample() {
    // A listener at the relay's address answers connects. Its port is chosen for UDP: for
    // TCP another program may have it.
    let mut tries = 0;
    let (world, listener) = loop {
        let world = World::start(2).await;
        let address = world.relay.address(1).unwrap();
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => break (world, listener),
            Err(error) if tries == 20 => panic!("{address}: {error}"),
            Err(_) => tries += 1,
        }
    };
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    world.relay.cut(0, 1, true);
    world.targets(0, &[], &[1]).await;
    let limit = Duration::from_secs(15);
    let measured = |p: &Pair| p.state() == State::Measured && p.samples >= 2;
    world
        .until("it is measured by TCP", limit, (0, 1), measured)
        .await;
    assert!(world.count(0, "lost").await >= 3);
    world.relay.cut(0, 1, false);
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_answers_by_its_deadline_with_partial_results() {
    let world = World::start(3).await;
    world.relay.set_round_trip(0, 1, 2 * MS);
    world.relay.cut(0, 2, true);
    let targets = vec![world.target(0, 1, false), world.target(0, 2, false)];
    let (pairs, took) = world.probe(0, targets, 3, 300 * MS).await;
    eprintln!("the answer took {took:?} of 300 ms");
    assert_eq!(pairs.len(), 1, "of the other nothing is known yet");
    // Three samples on a busy machine: no shorter than the network's.
    assert!(pairs[0].p50_nanos > 1_900_000, "{pairs:?}");
    assert_eq!(pairs[0].window_nanos.len(), 1);
    // All there: no need to wait.
    let target = vec![world.target(0, 1, false)];
    let (_, took) = world.probe(0, target, 1, 10_000 * MS).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}
