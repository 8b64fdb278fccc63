//! A replica that sends its agents away, and wakes them.

use std::{net::UdpSocket, time::Duration};

use ring::hmac;
use tautline_proto::latency::{Park, to_agent::What as Order};

use crate::{
    PATIENCE, eventually,
    world::{World, name, secret},
};

/// As a provider sends it to agent 0, or somebody with another key.
fn wake(secret: &[u8], park: u64) -> Vec<u8> {
    let key = |key: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut packet = b"TL\x01\x03\0\0\0\0".to_vec();
    for number in [0, park, 1, 0_u64] {
        packet.extend(number.to_be_bytes());
    }
    let pair = hmac::sign(&key(secret), &0_u64.to_be_bytes());
    let tag = hmac::sign(&key(pair.as_ref()), &packet);
    packet.extend(&tag.as_ref()[..16]);
    packet
}

async fn park(world: &World, seconds: u32, key: u64) {
    let park = Order::Park(Park { seconds, key });
    world.provider.order(&name(0), park).await;
}

/// Waits for the agent's stream of that number; gives the key that it came with.
async fn opened(world: &World, streams: u32) -> u64 {
    let check = async || {
        let parked = |h: &crate::provider::Heard| {
            let told = h.opened == streams && h.reports > 0;
            told.then(|| h.hello.as_ref().map(|hello| hello.parked))
        };
        world.provider.heard(&name(0), parked).flatten()
    };
    eventually("a stream", PATIENCE, check, || world.provider.state()).await
}

async fn metric(world: &World, line: &str) {
    let check = async || {
        let metrics = world.metrics(0).await;
        metrics.lines().any(|l| l == line).then_some(())
    };
    eventually(line, PATIENCE, check, || world.provider.state()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_sent_away_measures_on_and_comes_back() {
    let world = World::start(2).await;
    assert!(
        world
            .provider
            .heard(&name(0), |h| h.hello.as_ref().unwrap().parks)
    );
    world.targets(0, &[1], &[]).await;
    park(&world, 2, 77).await;
    assert_eq!(opened(&world, 2).await, 77);
    let check = async || {
        let first = world.provider.heard(&name(0), |h| h.first.clone());
        first
            .into_iter()
            .find(|p| p.node == name(1) && p.samples > 0)
    };
    eventually("all it has", PATIENCE, check, || world.provider.state()).await;
    // It comes from nowhere when another stream breaks.
    world.provider.hang_up(&name(0));
    assert_eq!(opened(&world, 3).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_providers_own_wake_has_it_come_and_once() {
    let world = World::start(1).await;
    park(&world, 60, 78).await;
    metric(&world, "tautline_latency_agent_streams 1").await;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |packet: &[u8]| socket.send_to(packet, world.agents[0].real).unwrap();
    let own = wake(&secret(0), 78);
    let (others, replayed) = (wake(&secret(1), 78), wake(&secret(0), 77));
    let check = async || {
        // Until it is away, both are of a key that nobody waits for.
        send(&others);
        let metrics = world.metrics(0).await;
        let forged = metrics
            .lines()
            .any(|l| l.starts_with("tautline_latency_agent_forged_total ") && !l.ends_with(" 0"));
        forged.then_some(())
    };
    eventually("others' are refused", PATIENCE, check, || {
        world.provider.state()
    })
    .await;
    send(&replayed);
    send(&own[..40]);
    metric(&world, "tautline_latency_agent_malformed_total 1").await;
    metric(&world, "tautline_latency_agent_woken_total 0").await;
    assert_eq!(world.provider.heard(&name(0), |h| h.opened), 1);

    let began = std::time::Instant::now();
    send(&own);
    assert_eq!(opened(&world, 2).await, 78);
    assert!(began.elapsed() < Duration::from_secs(48), "before its time");
    send(&own);
    park(&world, 60, 79).await;
    send(&own);
    metric(&world, "tautline_latency_agent_woken_total 1").await;
    assert_eq!(world.provider.heard(&name(0), |h| h.opened), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ends_while_it_is_away_says_so() {
    let mut world = World::start(1).await;
    park(&world, 60, 80).await;
    let check = async || {
        let left = world.provider.heard(&name(0), |h| h.left);
        (left > 0).then_some(())
    };
    eventually("it is away", PATIENCE, check, || world.provider.state()).await;
    world.agents.clear();
    let check = async || {
        let last = world
            .provider
            .heard(&name(0), |h| (h.opened, h.hello.as_ref().map(|h| h.parked)));
        (last == (2, Some(80))).then_some(())
    };
    eventually("its last words", PATIENCE, check, || world.provider.state()).await;
}
