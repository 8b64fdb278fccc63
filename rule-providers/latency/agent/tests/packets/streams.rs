//! Replicas of the provider, good and bad.

use std::time::{Duration, Instant};

use tautline_latency_agent::{Config, Token};
use tautline_proto::latency::{State, Throughput, to_agent::What as Order};
use tautline_runtime::tls::ClientFiles;
use tokio::{io::AsyncWriteExt, net::TcpListener};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::{
    PATIENCE, eventually,
    provider::Provider,
    world::{World, config, launch},
};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread")]
async fn broken_replicas_disturb_no_others_and_a_new_replica_gets_all_pairs() {
    let mut world = World::with(2, 1).await;
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let later = hung.local_addr().unwrap();
    let garbage = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let providers = [later, garbage.local_addr().unwrap(), world.address];
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = garbage.accept().await {
            _ = stream.write_all(&[0xa5; 4_096]).await;
        }
    });
    let advertise = world.relay.address(1).unwrap();
    let agent = launch(config(1, &providers, advertise)).await;
    world.relay.attach(1, agent.real);
    world.agents.push(agent);
    for number in [0, 1] {
        world.connected(number).await;
        world.targets(number, &[], &[]).await;
    }
    world.relay.set_round_trip(0, 1, 2 * MS);
    world.targets(1, &[0], &[]).await;
    let measured = |p: &tautline_proto::latency::Pair| p.state() == State::Measured;
    world
        .until("it is measured", PATIENCE, (1, 0), measured)
        .await;

    // The one that hung is mended.
    drop(hung);
    let listener = eventually(
        "its port is free",
        PATIENCE,
        async || TcpListener::bind(later).await.ok(),
        String::new,
    )
    .await;
    let newcomer = Provider::serve(listener, world.stop.clone());
    let pair = eventually(
        "it is told",
        PATIENCE,
        async || newcomer.heard("n1", |h| h.first.first().cloned()),
        || newcomer.state(),
    )
    .await;
    assert_eq!((pair.node.as_str(), pair.state()), ("n0", State::Measured));
    assert!(pair.samples > 0);

    // In demand if either says so.
    let list = world.list(1, &[], &[0]);
    newcomer.order("n1", Order::Targets(list)).await;
    let often = |p: &tautline_proto::latency::Pair| p.refresh_millis == 1_900;
    // Told again after half a minute, or when it moves.
    world.relay.set_round_trip(0, 1, 6 * MS);
    world
        .until("it is in demand", PATIENCE, (1, 0), often)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_stream_is_reopened_and_gets_all_pairs() {
    let world = World::start(2).await;
    world.targets(0, &[], &[1]).await;
    let measured = |p: &tautline_proto::latency::Pair| p.state() == State::Measured;
    world
        .until("it is measured", PATIENCE, (0, 1), measured)
        .await;
    let hello = world.provider.heard("n0", |h| h.hello.clone()).unwrap();
    assert_eq!(hello.boot_id, "boot-0");
    assert_eq!(hello.address, world.relay.address(0).unwrap().to_string());
    world.provider.hang_up("n0");
    let again = async || {
        let first = |h: &crate::provider::Heard| h.opened == 2 && h.first.len() == 1;
        world.provider.heard("n0", first).then_some(())
    };
    eventually("another stream", PATIENCE, again, || world.provider.state()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throughput_is_measured_on_request() {
    let world = World::start(2).await;
    // Then the other has its keys.
    world.targets(0, &[1], &[]).await;
    world
        .until("it answers", PATIENCE, (0, 1), |p| p.samples > 0)
        .await;
    let mut target = world.target(0, 1, false);
    target.address = world.agents[1].real.to_string();
    let test = Throughput {
        id: 5,
        target: Some(target),
        max_bytes: 8 << 20,
        max_millis: 2_000,
    };
    for (id, good) in [(5, true), (6, false)] {
        let test = Throughput { id, ..test.clone() };
        world.provider.order("n0", Order::Throughput(test)).await;
        let check = async || {
            world
                .provider
                .heard("n0", |h| h.transferred.get(&id).cloned())
        };
        let done = eventually("its figure", PATIENCE, check, || world.provider.state()).await;
        assert_eq!(done.bits_per_second > 0, good, "{done:?}");
        assert_eq!(done.error.contains("one a minute"), !good, "{done:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_port_tells_of_the_agent() {
    let world = World::start(2).await;
    world.targets(0, &[1], &[]).await;
    let measured = |p: &tautline_proto::latency::Pair| p.samples > 0;
    world
        .until("it is measured", PATIENCE, (0, 1), measured)
        .await;
    assert!(world.admin(0, "/readyz").await.starts_with("HTTP/1.1 200"));
    let metrics = world.metrics(0).await;
    for line in [
        "tautline_latency_agent_streams 1",
        "tautline_latency_agent_targets 1",
        "tautline_latency_agent_demand_excess 0",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}\n{metrics}");
    }
    assert!(world.count(0, "sent").await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_sample_comes_within_a_report_of_the_list() {
    let world = World::start(8).await;
    let start = Instant::now();
    world.targets(0, &[1, 2, 3, 4, 5, 6, 7], &[]).await;
    for to in 1..8 {
        world
            .until("a sample", PATIENCE, (0, to), |p| p.samples > 0)
            .await;
    }
    eprintln!("all 7 were told after {:?}", start.elapsed());
    assert!(world.count(0, "sent").await >= 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_both_sides_prove_who_they_are_and_a_new_token_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let made = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (server, client) = (made("localhost"), made("n0"));
    for (name, text) in [
        ("ca.crt", server.cert.pem()),
        ("tls.crt", client.cert.pem()),
        ("tls.key", client.signing_key.serialize_pem()),
        ("token", "one".to_owned()),
    ] {
        std::fs::write(path(name), text).unwrap();
    }
    let identity = Identity::from_pem(server.cert.pem(), server.signing_key.serialize_pem());
    let tls = ServerTlsConfig::new()
        .identity(identity)
        .client_ca_root(Certificate::from_pem(client.cert.pem()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let builder = Server::builder().tls_config(tls).unwrap();
    let provider = Provider::serve_by(builder, listener, stop);
    let any = ([127, 0, 0, 1], 5_310).into();
    let _agent = launch(Config {
        providers: vec![format!("https://localhost:{port}").parse().unwrap()],
        tls: ClientFiles {
            ca: Some(path("ca.crt")),
            identity: Some((path("tls.crt"), path("tls.key"))),
        },
        token: Some(Token {
            file: path("token"),
            over_http: false,
        }),
        ..config(0, &[], any)
    })
    .await;
    for token in ["one", "two"] {
        std::fs::write(path("token"), token).unwrap();
        let shown = async || {
            let authorization = provider.heard("n0", |h| h.authorization.clone());
            authorization.filter(|a| *a == format!("Bearer {token}"))
        };
        eventually("the token is shown", PATIENCE, shown, || provider.state()).await;
    }
}
