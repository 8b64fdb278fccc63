//! The stream over real gRPC, with scripted agents.

mod orders;
mod real;
mod streams;
mod trust;
mod verification;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use tautline_agent_link::{AgentAuth, TokenReviewer};
use tautline_core::{index::Object, model};
use tautline_latency_protocol::echo_id;
use tautline_proto::latency::{
    FromAgent, Hello, Pair, Probed, Report, State, Targets, ToAgent, Transferred,
    agents_client::AgentsClient, from_agent::What as Says, to_agent::What as Told,
};
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks};
use tautline_sdk::{Server, TlsFiles, testkit};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Status, Streaming,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity as Pem},
};

use crate::{
    DEFAULT_TARGETS, Latency, Measuring,
    agents::{AUDIENCE, keys::EchoKeys},
    measurement::Measurement,
    network::Network,
};

/// Nobody waits longer for anything here.
const DEADLINE: Duration = Duration::from_secs(30);
const MILLI: u64 = 1_000_000;

struct Running {
    address: SocketAddr,
    network: Arc<Network>,
    keys: EchoKeys,
    store: ClusterStore,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn trusting() -> AgentAuth {
    AgentAuth {
        trust_all: true,
        ..AgentAuth::default()
    }
}

async fn start(auth: AgentAuth, tls: Option<TlsFiles>) -> Running {
    let store = ClusterStore::default();
    for name in ["a", "b", "c", "d"] {
        apply(&store, name, &format!("uid-{name}"));
    }
    let config = tautline_sdk::Config {
        tls,
        ..testkit::loopback()
    };
    let (mut server, mut tasks) = (Server::bind(config).await.unwrap(), Tasks::default());
    let network = Network::new(store.clone(), true);
    let keys = EchoKeys::random().unwrap();
    let measuring = Measuring {
        network: network.clone(),
        auth,
        keys: keys.clone(),
        targets: DEFAULT_TARGETS,
        agents_within: Duration::ZERO,
    };
    measuring.serve(&mut server, &mut tasks);
    let (address, stop) = (server.address(), tasks.stop_token());
    let provider = Latency::with_network(network.clone());
    server.spawn(Arc::new(provider), &mut tasks).unwrap();
    tokio::spawn(tasks.run(std::future::pending()));
    Running {
        address,
        network,
        keys,
        store,
        stop,
    }
}

fn apply(store: &ClusterStore, name: &str, uid: &str) {
    store.apply(Object::Node(model::Node {
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

/// An agent that sends the messages of a test.
struct Agent {
    send: mpsc::Sender<FromAgent>,
    stream: Streaming<ToAgent>,
}

impl Agent {
    async fn connect(endpoint: Endpoint, node: &str, token: Option<&str>) -> Self {
        Self::with(endpoint, hello(node), token).await
    }

    async fn with(endpoint: Endpoint, hello: Hello, token: Option<&str>) -> Self {
        let (send, messages) = mpsc::channel(64);
        let mut client = AgentsClient::new(endpoint.connect().await.unwrap());
        let mut request = Request::new(ReceiverStream::new(messages));
        if let Some(token) = token {
            let header = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", header);
        }
        let stream = client.follow(request).await.unwrap().into_inner();
        let agent = Self { send, stream };
        agent.say(Says::Hello(hello)).await;
        agent
    }

    async fn say(&self, what: Says) {
        _ = self.send.send(FromAgent { what: Some(what) }).await;
    }

    async fn report(&self, pairs: Vec<Pair>) {
        self.say(Says::Report(Report { pairs })).await;
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
    matches!(network.measurement(a, b), Measurement::Fresh(_))
}

fn named(targets: &Targets) -> Vec<&str> {
    let mut names: Vec<&str> = targets.targets.iter().map(|t| t.node.as_str()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn reports_are_stored_and_targets_are_sent() {
    let running = start(trusting(), None).await;
    let mut a = running.agent("a").await;
    let _b = running.agent("b").await;
    let targets = a.targets(|t| named(t) == ["b"]).await;
    assert_eq!(targets.echo_id, echo_id("uid-a/boot"));
    assert_eq!(
        targets.responder_keys,
        [running.keys.responder_key("uid-a/boot")]
    );
    let b = &targets.targets[0];
    assert_eq!(
        (b.instance.as_str(), b.address.as_str()),
        ("uid-b/boot", "127.0.0.1:5310")
    );
    assert_eq!(b.key, running.keys.pair_key("uid-a/boot", "uid-b/boot"));
    assert!(!b.demand);

    assert_eq!(running.network.nic_bits_per_second("a"), Some(7));
    a.report(vec![pair("b", MILLI)]).await;
    until("a reading", || fresh(&running.network, "b", "a")).await;
    until("an estimate", || {
        running.network.row("b").estimate("a").is_some()
    })
    .await;
}
