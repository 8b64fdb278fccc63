//! The cost to `latency`, `jitter` and `bandwidth`, from a table and as measured.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tautline_bench::Times;
use tautline_core::{
    Index, Snapshot, constraints::PodIdentity, index::Object, model, nodes::NodeSet,
    planning::RuleOutcome, selector::Selector,
};
use tautline_latency::{
    AGENTS_WITHIN, AgentAuth, BandwidthTable, DEFAULT_TARGETS, EchoKeys, Latency, Measuring,
    Network, Table, ZONE,
};
use tautline_provider_client::{ClientConfig, Metrics, PlanningQuestion, ProviderClient};
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks};
use tautline_sdk::{
    Config, CostAnswer, CostRequest, Evaluation, EvaluationRequest, Peer, ProviderError, Reference,
    Rule, RuleProvider, Server,
};

const NODES: usize = 5_000;
const ZONES: usize = 50;
const ROUNDS: usize = 200;
const PEERS: [usize; 3] = [7, 1_234, 4_321];
/// The goal for an answer; slower calls are counted.
const BOUND: Duration = Duration::from_millis(5);

fn name(i: usize) -> String {
    format!("node-{i:05}")
}

fn node(i: usize) -> Object {
    Object::Node(model::Node {
        name: name(i).into(),
        // As in the example's agents.
        uid: format!("00000000-0000-0000-0000-{i:012}").into(),
        // About as many as a cloud node has.
        labels: (0..20)
            .map(|l| (format!("example.com/label-{l}"), format!("value-{l}")))
            .chain([(ZONE.to_owned(), format!("zone-{}", i % ZONES))])
            .collect(),
        ..model::Node::default()
    })
}

fn question(rule: &str, request: &str, limit: &str) -> CostRequest {
    let peers = PEERS.map(name);
    CostRequest {
        source: Reference::pod("shop", "asks"),
        rule: Rule {
            name: rule.into(),
            request: request.into(),
            limit: limit.into(),
        },
        peer_nodes: peers.to_vec(),
        peers: peers
            .map(|node| Peer {
                node: Some(node),
                ..Peer::default()
            })
            .to_vec(),
        eligible_nodes: (0..NODES).map(name).collect(),
        // Without time left, nothing is probed.
        deadline: Some(Instant::now()),
        ..CostRequest::default()
    }
}

fn zone_rows(value: impl Fn(usize, usize) -> String) -> String {
    let pairs = (0..ZONES).flat_map(|a| (a..ZONES).map(move |b| (a, b)));
    let rows = pairs.map(|(a, b)| format!("zone-{a},zone-{b},{}\n", value(a, b)));
    rows.collect()
}

async fn time(provider: &Latency, what: &str, request: CostRequest) -> Result<()> {
    let mut times = Vec::with_capacity(ROUNDS);
    let mut usable = 0;
    for _ in 0..ROUNDS {
        let request = request.clone();
        let start = Instant::now();
        let answer = provider.endpoint_cost(request).await?;
        times.push(start.elapsed());
        usable = answer.nodes().iter().filter(|n| n.cost >= 0).count();
    }
    print(what, times, usable);
    Ok(())
}

/// A provider that never probes, even if its callers would wait.
#[derive(Clone)]
struct Unprobed(Latency);

impl RuleProvider for Unprobed {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let deadline = Some(Instant::now());
        self.0
            .endpoint_cost(CostRequest {
                deadline,
                ..request
            })
            .await
    }

    async fn evaluate(&self, request: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        self.0.evaluate(request).await
    }
}

/// The extender's cluster: the provider at this address, and an offer that binds a pod to three
/// peers by this rule.
fn cluster(at: SocketAddr, rule: Rule) -> Snapshot {
    let namespace: Arc<str> = "shop".into();
    let mut index = Index::default();
    index.apply(Object::Service(model::Service {
        namespace: namespace.clone(),
        name: "latency".into(),
        rules: vec![rule.name.as_str().into()],
        has_selector: true,
        ..model::Service::default()
    }));
    index.apply(Object::EndpointSlice(model::EndpointSlice {
        namespace: namespace.clone(),
        name: "latency-0".into(),
        service: "latency".into(),
        ports: vec![model::ServicePort {
            name: "ruleprovider".into(),
            port: at.port(),
        }],
        ready: vec![at.ip().to_string()],
        ..model::EndpointSlice::default()
    }));
    index.apply(Object::Policy(model::Policy {
        namespace: namespace.clone(),
        name: "near".into(),
        rules: vec![model::Rule {
            name: rule.name.as_str().into(),
            request: rule.request,
            limit: rule.limit,
            weight: 1,
            ..model::Rule::default()
        }],
    }));
    let target = |app: &str| model::Target {
        name: app.into(),
        kind: model::TargetKind::Pod,
        api_version: "v1".into(),
        selector: Selector {
            match_labels: vec![("app".to_owned(), app.to_owned())],
            ..Selector::default()
        },
    };
    index.apply(Object::Offer(model::Offer {
        namespace: namespace.clone(),
        name: "clients".into(),
        targets: vec![target("client"), target("server")],
        policies: vec!["near".into()],
        ..model::Offer::default()
    }));
    for (i, node) in PEERS.into_iter().enumerate() {
        index.apply(Object::Pod(model::Pod {
            namespace: namespace.clone(),
            name: format!("server-{i}").as_str().into(),
            labels: [("app", "server")].into_iter().collect(),
            node: Some(name(node).as_str().into()),
            ..model::Pod::default()
        }));
    }
    index.snapshot()
}

/// The same with the extender's client: from the request to the costs by node.
async fn time_served(at: SocketAddr, what: &str, request: CostRequest) -> Result<()> {
    let config = ClientConfig {
        // Slow calls count too.
        deadline: Duration::from_secs(10),
        ..ClientConfig::single_tenant()
    };
    let providers = ProviderClient::new(config, Metrics::default())?;
    let snapshot = cluster(at, request.rule);
    let nodes = request.eligible_nodes.iter().map(String::as_str).collect();
    let nodes: Arc<NodeSet> = Arc::new(nodes);
    let mut times = Vec::with_capacity(ROUNDS);
    let mut usable = 0;
    for round in 0..=ROUNDS {
        let question = PlanningQuestion {
            subject: PodIdentity {
                namespace: "shop".to_owned(),
                name: "asks".to_owned(),
                labels: [("app", "client")].into_iter().collect(),
                ..PodIdentity::default()
            },
            nodes: Arc::clone(&nodes),
            ..PlanningQuestion::default()
        };
        let done = providers.plan_pod(&snapshot, question).await;
        let rule = done.rules.first().context("no rule was called")?;
        let RuleOutcome::Costs(costs) = &rule.outcome else {
            bail!("{what}: {}", rule.error.as_deref().unwrap_or_default());
        };
        usable = (0..NODES).filter(|n| costs.get(*n) >= Some(0)).count();
        // The first one connects.
        if round > 0 {
            times.push(rule.took);
        }
    }
    print(&format!("{what}, by gRPC"), times, usable);
    Ok(())
}

fn print(what: &str, times: Vec<Duration>, usable: usize) {
    let over = times.iter().filter(|t| **t > BOUND).count();
    let times = Times::new(times);
    let [best, median, worst] = [0.0, 0.5, 1.0].map(|q| format!("{:.2} ms", times.millis(q)));
    let count = times.count();
    println!("| {what} | {best} | {median} | {worst} | {over} of {count} | {usable} |");
}

/// Serves agents and requests at the address until the agents have measured.
async fn measured(store: ClusterStore, listen: SocketAddr) -> Result<()> {
    let config = Config {
        listen,
        connections: 8192,
        ..Config::default()
    };
    let (mut server, mut tasks) = (Server::bind(config).await?, Tasks::default());
    let network = Network::new(store, false);
    let measuring = Measuring {
        network: network.clone(),
        auth: AgentAuth {
            trust_all: true,
            ..AgentAuth::default()
        },
        keys: EchoKeys::random()?,
        targets: DEFAULT_TARGETS,
        agents_within: AGENTS_WITHIN,
    };
    measuring.serve(&mut server, &mut tasks);
    let provider = Latency::with_network(network.clone());
    server.spawn(Arc::new(Unprobed(provider.clone())), &mut tasks)?;
    // Every target is reported once in 30 s; a fit runs every 10 s.
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let row = network.row(&name(PEERS[0]));
        let known = |i: &usize| row.estimate(&name(*i)).is_some();
        if (0..NODES).filter(known).count() >= NODES - 1 {
            break;
        }
        anyhow::ensure!(Instant::now() < deadline, "the agents have not measured");
    }
    tokio::time::sleep(Duration::from_secs(40)).await;
    for (what, limit) in [("no limit", ""), ("a limit", "1ms")] {
        let what = format!("latency, measured and predicted, {what}");
        time(&provider, &what, question("latency", "500us", limit)).await?;
        time_served(listen, &what, question("latency", "500us", limit)).await?;
    }
    time(
        &provider,
        "jitter, some measured",
        question("jitter", "", "1ms"),
    )
    .await?;
    tasks.run(std::future::ready(())).await
}

pub async fn run(listen: Option<SocketAddr>) -> Result<()> {
    let store = ClusterStore::default();
    for i in 0..NODES {
        store.apply(node(i));
    }
    let provider = Latency::new(store.clone());
    let mut table = Table::default();
    table.add(&zone_rows(|a, b| format!("{}us", 100 + 37 * a.abs_diff(b))))?;
    provider.set_table(table);
    let mut caps = BandwidthTable::default();
    caps.add(&zone_rows(|a, b| format!("{}M", 100 + a + b)))?;
    provider.set_bandwidth_table(caps);

    println!(
        "| question | best | median | worst | over 5 ms | usable |\n|---|---|---|---|---|---|"
    );
    let request = question("latency", "500us", "1ms");
    time(&provider, "latency, zones in a table", request.clone()).await?;
    let config = Config {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        ..Config::default()
    };
    let (server, mut tasks) = (Server::bind(config).await?, Tasks::default());
    let at = server.address();
    server.spawn(Arc::new(Unprobed(provider.clone())), &mut tasks)?;
    time_served(at, "latency, zones in a table", request).await?;
    let request = question("bandwidth", "50M", "10M");
    time(&provider, "bandwidth, zones in a table", request).await?;
    time(
        &provider,
        "jitter, nothing measured",
        question("jitter", "", "1ms"),
    )
    .await?;
    match listen {
        Some(listen) => measured(store, listen).await,
        None => Ok(()),
    }
}
