//! The stream over real gRPC, with scripted agents.

mod parking;
mod real;
mod verification;

use std::{net::SocketAddr, path::Path, time::Duration};

use tautline_core::{index::Object, model};
use tautline_proto::latency::{
    Hello, Pair, Probed, Report, State, Targets, Transferred, agents_client::AgentsClient,
    from_agent::What as Says, to_agent::What as Told,
};
use tautline_runtime::{feed::Feed, tasks::Tasks};
use tautline_sdk::{Server, TlsFiles, testkit};
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity as Pem},
};

use super::*;
use crate::{
    Latency, Measuring, Reading, Reviewed, Settings, Tokens,
    keys::echo_id,
    tokens::{AUDIENCE, Review},
};

/// Nobody waits longer for anything here.
const DEADLINE: Duration = Duration::from_secs(30);
const MILLI: u64 = 1_000_000;

struct Running {
    address: SocketAddr,
    network: Network,
    keys: Keys,
    feed: Feed,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn trusting() -> Identity {
    Identity {
        trust: true,
        ..Identity::default()
    }
}

async fn start(identity: Identity, tls: Option<TlsFiles>) -> Running {
    keeping(Settings::default().streams, identity, tls).await
}

/// Keeps so many streams.
async fn keeping(streams: usize, identity: Identity, tls: Option<TlsFiles>) -> Running {
    let feed = Feed::default();
    for name in ["a", "b", "c", "d"] {
        apply(&feed, name, &format!("uid-{name}"));
    }
    let config = tautline_sdk::Config {
        tls,
        ..testkit::loopback()
    };
    let (mut server, mut tasks) = (Server::bind(config).await.unwrap(), Tasks::default());
    let settings = Settings {
        transfers: true,
        agents_within: Duration::ZERO,
        streams,
        ..Settings::default()
    };
    let network = Network::new(feed.clone(), settings);
    let keys = Keys::random().unwrap();
    let measuring = Measuring {
        network: network.clone(),
        identity,
        keys: keys.clone(),
        key_file: None,
    };
    measuring.serve(&mut server, &mut tasks);
    let (address, stop) = (server.address(), tasks.stop_token());
    let provider = Latency::new(feed.clone()).measuring(network.clone());
    server.spawn(Arc::new(provider), &mut tasks).unwrap();
    tokio::spawn(tasks.run(std::future::pending()));
    Running {
        address,
        network,
        keys,
        feed,
        stop,
    }
}

fn apply(feed: &Feed, name: &str, uid: &str) {
    feed.apply(Object::Node(model::Node {
        name: name.into(),
        uid: uid.into(),
        ..model::Node::default()
    }));
}

impl Running {
    fn endpoint(&self) -> Endpoint {
        Channel::from_shared(format!("http://{}", self.address)).unwrap()
    }

    async fn agent(&self, node: &str) -> Agent {
        Agent::connect(self.endpoint(), node, None).await
    }
}

/// An agent that says what it is told to.
struct Agent {
    send: mpsc::Sender<FromAgent>,
    stream: Streaming<ToAgent>,
}

impl Agent {
    async fn connect(endpoint: Endpoint, node: &str, token: Option<&str>) -> Self {
        let (send, messages) = mpsc::channel(64);
        let mut client = AgentsClient::new(endpoint.connect().await.unwrap());
        let mut request = Request::new(ReceiverStream::new(messages));
        if let Some(token) = token {
            let header = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", header);
        }
        let stream = client.follow(request).await.unwrap().into_inner();
        let agent = Self { send, stream };
        agent.say(Says::Hello(hello(node))).await;
        agent
    }

    /// Says hello as one that does as Park says.
    async fn parking(endpoint: Endpoint, node: &str, address: SocketAddr, parked: u64) -> Self {
        let (send, messages) = mpsc::channel(64);
        let mut client = AgentsClient::new(endpoint.connect().await.unwrap());
        let stream = client.follow(ReceiverStream::new(messages)).await;
        let stream = stream.unwrap().into_inner();
        let agent = Self { send, stream };
        let hello = Hello {
            address: address.to_string(),
            parks: true,
            parked,
            ..hello(node)
        };
        agent.say(Says::Hello(hello)).await;
        agent
    }

    async fn say(&self, what: Says) {
        _ = self.send.send(FromAgent { what: Some(what) }).await;
    }

    async fn report(&self, pairs: Vec<Pair>) {
        self.say(Says::Report(Report {
            pairs,
            counts: None,
        }))
        .await;
    }

    async fn hear(&mut self) -> Result<Told, Status> {
        let message = timeout(DEADLINE, self.stream.message())
            .await
            .expect("no message")?;
        Ok(message.and_then(|m| m.what).expect("the stream ended"))
    }

    /// The first list that is as it should be.
    async fn targets(&mut self, good: impl Fn(&Targets) -> bool) -> Targets {
        loop {
            if let Told::Targets(targets) = self.hear().await.unwrap()
                && good(&targets)
            {
                return targets;
            }
        }
    }

    /// Why its stream ended.
    async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.hear().await {
                return status;
            }
        }
    }
}

fn hello(node: &str) -> Hello {
    Hello {
        node: node.into(),
        boot_id: "boot".into(),
        address: "127.0.0.1:5310".into(),
        nic_bits_per_second: 7,
        ..Hello::default()
    }
}

fn pair(to: &str, nanos: u64) -> Pair {
    Pair {
        node: to.into(),
        instance: format!("uid-{to}/boot"),
        state: State::Measured.into(),
        window_nanos: vec![nanos],
        p50_nanos: nanos,
        p95_nanos: nanos,
        samples: 5,
        refresh_millis: 32_000,
        ..Pair::default()
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn fresh(network: &Network, a: &str, b: &str) -> bool {
    matches!(network.reading(a, b), Reading::Fresh(_))
}

fn named(targets: &Targets) -> Vec<&str> {
    let mut names: Vec<&str> = targets.targets.iter().map(|t| t.node.as_str()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn what_is_reported_is_known_and_targets_are_told() {
    let running = start(trusting(), None).await;
    let mut a = running.agent("a").await;
    let _b = running.agent("b").await;
    let targets = a.targets(|t| named(t) == ["b"]).await;
    assert_eq!(targets.echo_id, echo_id("uid-a/boot"));
    assert_eq!(
        targets.responder_keys,
        running.keys.of_responder("uid-a/boot")
    );
    let b = &targets.targets[0];
    assert_eq!(
        (b.instance.as_str(), b.address.as_str()),
        ("uid-b/boot", "127.0.0.1:5310")
    );
    assert_eq!(b.key, running.keys.between("uid-a/boot", "uid-b/boot"));
    assert!(!b.demand);

    assert!(running.network.is_measuring());
    assert_eq!(running.network.nic_bits_per_second("a"), Some(7));
    a.report(vec![pair("b", MILLI)]).await;
    until("a reading", || fresh(&running.network, "b", "a")).await;
    until("an estimate", || {
        running.network.row("b").estimate("a").is_some()
    })
    .await;

    // New keys are told at once, the old ones accepted still.
    Service::rekeyed(&running.network);
    a.targets(|t| named(t) == ["b"]).await;
}

#[tokio::test]
async fn without_proof_an_agent_is_refused_and_told_the_mend() {
    let running = start(Identity::default(), None).await;
    let refused = running.agent("a").await.end().await;
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("--trust-agents"), "{refused}");
    assert_eq!(running.network.0.metrics.turned_away.get(), 1);
    assert!(!running.network.is_measuring());
}

#[tokio::test]
async fn malformed_beginnings_are_refused_by_field() {
    let running = start(trusting(), None).await;
    for (bad, field) in [
        (
            Hello {
                node: String::new(),
                ..hello("a")
            },
            "node",
        ),
        (
            Hello {
                boot_id: "x y".into(),
                ..hello("a")
            },
            "bootId",
        ),
        (
            Hello {
                address: "nowhere".into(),
                ..hello("a")
            },
            "address",
        ),
    ] {
        let (send, messages) = mpsc::channel(1);
        let channel = running.endpoint().connect().await.unwrap();
        let stream = AgentsClient::new(channel)
            .follow(ReceiverStream::new(messages))
            .await;
        let mut agent = Agent {
            send,
            stream: stream.unwrap().into_inner(),
        };
        agent.say(Says::Hello(bad)).await;
        let refused = agent.end().await;
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(
            refused.message().contains(&format!(", {field}: expected")),
            "{refused}"
        );
    }
    let unknown = running.agent("x").await.end().await;
    assert_eq!(unknown.code(), Code::FailedPrecondition);
}

/// A CA in `dir`, and certificates of it.
struct Ca {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
    files: TlsFiles,
}

fn ca(dir: &Path) -> Ca {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let own_key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
    let own = own.signed_by(&own_key, &issuer).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).unwrap();
        dir.join(name)
    };
    let files = TlsFiles {
        cert: write("crt", &own.pem()),
        key: write("key", &own_key.serialize_pem()),
        client_ca: Some(write("ca", &pem)),
        alpn: vec![],
    };
    Ca { issuer, pem, files }
}

#[tokio::test]
async fn a_certificate_speaks_for_its_node_only() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let identity = Identity {
        certificates: true,
        ..Identity::default()
    };
    let running = start(identity, Some(ca.files.clone())).await;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "system:node:a");
    let own = params.signed_by(&key, &ca.issuer).unwrap();
    let tls = ClientTlsConfig::new()
        .domain_name("localhost")
        .ca_certificate(Certificate::from_pem(&ca.pem))
        .identity(Pem::from_pem(own.pem(), key.serialize_pem()));
    let endpoint = Channel::from_shared(format!("https://{}", running.address)).unwrap();
    let endpoint = endpoint.tls_config(tls).unwrap();

    let mut a = Agent::connect(endpoint.clone(), "a", None).await;
    a.targets(|_| true).await;
    let refused = Agent::connect(endpoint, "b", None).await.end().await;
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(
        refused.message().contains("names a, not node b"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_token_speaks_for_its_node_only() {
    let review: Review = Arc::new(|token| {
        let reviewed = Reviewed {
            authenticated: token == "good",
            audiences: vec![AUDIENCE.into()],
            user: "system:serviceaccount:ns:agent".into(),
            node: Some("a".into()),
        };
        Box::pin(async { Ok(reviewed) })
    });
    let identity = Identity {
        tokens: Some(Arc::new(Tokens::new("ns", "agent", review))),
        ..Identity::default()
    };
    let running = start(identity, None).await;
    let with = |node: &'static str, token| Agent::connect(running.endpoint(), node, token);
    with("a", Some("good")).await.targets(|_| true).await;
    for (node, token) in [("b", Some("good")), ("a", Some("bad")), ("a", None)] {
        let refused = with(node, token).await.end().await;
        let expected = match token {
            Some(_) => Code::PermissionDenied,
            None => Code::Unauthenticated,
        };
        assert_eq!(refused.code(), expected, "{refused}");
    }
}

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
            refused("itself"),
            refused("garbage")
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

#[tokio::test]
async fn pairs_that_rules_name_come_first() {
    let running = start(trusting(), None).await;
    let (mut a, mut b) = (running.agent("a").await, running.agent("b").await);
    running.network.demand("a", "b", DEADLINE);
    running.network.demand("a", "nobody", DEADLINE);
    assert_eq!(running.network.0.demand.lock().pairs(0).count(), 1);
    let by = |of: &Targets, node: &str| of.targets.iter().any(|t| t.node == node && t.demand);
    a.targets(|t| by(t, "b")).await;
    b.targets(|t| by(t, "a")).await;
    until("counted", || running.network.0.metrics.demand.get() == 1).await;
    running.network.demand("a", "c", Duration::ZERO);
    let _c = running.agent("c").await;
    let targets = a.targets(|t| named(t) == ["b", "c"]).await;
    assert!(by(&targets, "b") && !by(&targets, "c"), "{targets:?}");
}

#[tokio::test]
async fn probes_go_to_the_peer_or_else_to_the_others() {
    let running = start(trusting(), None).await;
    let (mut a, mut b) = (running.agent("a").await, running.agent("b").await);
    until("both", || running.network.0.metrics.agents.get() == 2).await;
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
    let [(node, Reading::Fresh(figure))] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (node.as_str(), figure.median),
        ("b", Duration::from_millis(2))
    );
    // The peer's agent goes; the other one measures.
    drop(a);
    until("one", || running.network.0.metrics.agents.get() == 1).await;
    let probe = running.network.probe("a", &["b"], 3, within);
    let ((), found) = tokio::join!(answer(&mut b, "a"), probe);
    assert_eq!(found.len(), 1);
    // Nobody answers: no longer than said.
    drop(b);
    until("none", || running.network.0.metrics.agents.get() == 0).await;
    assert!(
        running
            .network
            .probe("a", &["b"], 3, within)
            .await
            .is_empty()
    );
    assert_eq!(running.network.0.metrics.probes_answered.get(), 2);
}

#[tokio::test]
async fn an_order_for_nobody_is_answered_and_not_sent() {
    let running = start(trusting(), None).await;
    let mut a = running.agent("a").await;
    until("a", || running.network.0.metrics.agents.get() == 1).await;
    // Known from a report of old, but its agent has not come.
    let b = running
        .network
        .0
        .ledger
        .lock()
        .instance("b", "uid-b", "boot", Duration::ZERO);
    let asked = running.network.order_probe("a", vec![b], DEADLINE);
    let answered = timeout(DEADLINE, asked).await;
    assert_eq!(answered, Ok(true));
    drop(running);
    while let Ok(told) = a.hear().await {
        assert!(!matches!(told, Told::Probe(_)), "{told:?}");
    }
}

#[tokio::test]
async fn a_transfer_is_asked_for_once() {
    let running = start(trusting(), None).await;
    let (mut a, _b) = (running.agent("a").await, running.agent("b").await);
    until("both", || running.network.0.metrics.agents.get() == 2).await;
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
    let transfer = running.network.throughput("a", "b", 1000, DEADLINE);
    let ((), found) = tokio::join!(answer, transfer);
    assert_eq!(found, Ok(8));
    let again = running.network.throughput("a", "b", 1000, DEADLINE).await;
    assert!(again.unwrap_err().contains("another transfer"));
}
