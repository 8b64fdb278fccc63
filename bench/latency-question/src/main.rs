//! What one EndpointCost over 5,000 nodes and three peers costs the provider of
//! `latency`, `jitter` and `bandwidth`, without probes. Prints a Markdown table.
//!
//! ```text
//! cargo run --release -p tautline-bench-latency-question
//! ```
//!
//! With an address it also serves agents there, waits for them, and asks what they
//! measured and what is predicted:
//!
//! ```text
//! cargo run --release -p tautline-bench-latency-question -- 127.0.0.1:5309 &
//! cargo run --release -p tautline-latency --example feed -- agents 5000 127.0.0.1:5309 120
//! ```

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tautline_core::{index::Object, model};
use tautline_latency::{
    BandwidthTable, Identity, Keys, Latency, Measuring, Network, Settings, Table, ZONE,
};
use tautline_proto::ruleprovider::{
    EndpointCostRequest, PolicyRule, rule_provider_client::RuleProviderClient,
};
use tautline_runtime::{feed::Feed, tasks::Tasks};
use tautline_sdk::{Config, CostQuestion, Peer, Reference, Rule, RuleProvider, Server};
use tonic::transport::Channel;

const NODES: usize = 5_000;
const ZONES: usize = 50;
const ROUNDS: usize = 200;
const PEERS: [usize; 3] = [7, 1_234, 4_321];
/// With 5 ms for the answer nothing is probed.
const NO_TIME: &str = "6m";

fn name(i: usize) -> String {
    format!("node-{i:05}")
}

fn node(i: usize) -> Object {
    Object::Node(model::Node {
        name: name(i).into(),
        // As the example's agents have them.
        uid: format!("00000000-0000-0000-0000-{i:012}").into(),
        // About what a node of a cloud has.
        labels: (0..20)
            .map(|l| (format!("example.com/label-{l}"), format!("value-{l}")))
            .chain([(ZONE.to_owned(), format!("zone-{}", i % ZONES))])
            .collect(),
        ..model::Node::default()
    })
}

fn question(rule: &str, request: &str, limit: &str) -> CostQuestion {
    let peers = PEERS.map(name);
    CostQuestion {
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
        // No time is left: nothing is probed.
        deadline: Some(Instant::now()),
        ..CostQuestion::default()
    }
}

fn zone_rows(value: impl Fn(usize, usize) -> String) -> String {
    let pairs = (0..ZONES).flat_map(|a| (a..ZONES).map(move |b| (a, b)));
    let rows = pairs.map(|(a, b)| format!("zone-{a},zone-{b},{}\n", value(a, b)));
    rows.collect()
}

async fn time(provider: &Latency, what: &str, ask: CostQuestion) -> Result<()> {
    let mut times = Vec::with_capacity(ROUNDS);
    let mut usable = 0;
    for _ in 0..ROUNDS {
        let ask = ask.clone();
        let start = Instant::now();
        let answer = provider.endpoint_cost(ask).await?;
        times.push(start.elapsed());
        usable = answer.nodes.iter().filter(|n| n.cost >= 0).count();
    }
    print(what, times, usable);
    Ok(())
}

/// As the extender asks.
async fn client(at: SocketAddr) -> Result<RuleProviderClient<Channel>> {
    let channel = Channel::from_shared(format!("http://{at}"))?
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20);
    Ok(RuleProviderClient::new(channel.connect().await?).max_decoding_message_size(16 << 20))
}

/// The same as a client of the server sees it.
async fn time_served(
    client: &mut RuleProviderClient<Channel>,
    what: &str,
    ask: CostQuestion,
) -> Result<()> {
    let ask = EndpointCostRequest {
        rule: Some(PolicyRule {
            name: ask.rule.name,
            request: ask.rule.request,
            limit: ask.rule.limit,
        }),
        peer_nodes: ask.peer_nodes,
        eligible_nodes: ask.eligible_nodes,
        ..EndpointCostRequest::default()
    };
    let mut times = Vec::with_capacity(ROUNDS);
    let (mut usable, mut late) = (0, 0);
    for _ in 0..ROUNDS {
        let mut ask = tonic::Request::new(ask.clone());
        let timeout = NO_TIME.parse().context("a header")?;
        ask.metadata_mut().insert("grpc-timeout", timeout);
        let start = Instant::now();
        let Ok(answer) = client.endpoint_cost(ask).await else {
            late += 1;
            continue;
        };
        times.push(start.elapsed());
        let answer = answer.into_inner();
        usable = answer.node_and_cost.iter().filter(|n| n.cost >= 0).count();
    }
    print(
        &format!("{what}, by gRPC ({late} over 6 ms)"),
        times,
        usable,
    );
    Ok(())
}

fn print(what: &str, mut times: Vec<Duration>, usable: usize) {
    times.sort();
    let ms = |at: usize| times.get(at).map_or(f64::NAN, Duration::as_secs_f64) * 1e3;
    let count = times.len();
    println!(
        "| {what} | {:.2} ms | {:.2} ms | {:.2} ms | {usable} |",
        ms(0),
        ms(count / 2),
        ms(count.saturating_sub(1))
    );
}

/// Serves agents and questions at the address, until the agents have measured.
async fn measured(feed: Feed, listen: SocketAddr) -> Result<()> {
    let config = Config {
        listen,
        ..Config::default()
    };
    let (mut server, mut tasks) = (Server::bind(config).await?, Tasks::default());
    let network = Network::new(feed.clone(), Settings::default());
    let measuring = Measuring {
        network: network.clone(),
        identity: Identity {
            trust: true,
            ..Identity::default()
        },
        keys: Keys::random()?,
        key_file: None,
    };
    measuring.serve(&mut server, &mut tasks);
    let provider = Latency::new(feed).measuring(network.clone());
    server.spawn(Arc::new(provider.clone()), &mut tasks)?;
    // Every target is told once in 30 s; a fit comes every 10 s.
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
    let mut client = client(listen).await?;
    for (what, limit) in [("no limit", ""), ("a limit", "1ms")] {
        let what = format!("latency, measured and predicted, {what}");
        time(&provider, &what, question("latency", "500us", limit)).await?;
        time_served(&mut client, &what, question("latency", "500us", limit)).await?;
    }
    time(
        &provider,
        "jitter, some measured",
        question("jitter", "", "1ms"),
    )
    .await
}

#[tokio::main]
async fn main() -> Result<()> {
    let feed = Feed::default();
    for i in 0..NODES {
        feed.apply(node(i));
    }
    let provider = Latency::new(feed.clone());
    let mut table = Table::default();
    table.add(&zone_rows(|a, b| format!("{}us", 100 + 37 * a.abs_diff(b))))?;
    provider.set_table(table);
    let mut caps = BandwidthTable::default();
    caps.add(&zone_rows(|a, b| format!("{}M", 100 + a + b)))?;
    provider.set_bandwidth_table(caps);

    println!("| question | best | median | worst | usable |\n|---|---|---|---|---|");
    let ask = question("latency", "500us", "1ms");
    time(&provider, "latency, zones in a table", ask.clone()).await?;
    let config = Config {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        ..Config::default()
    };
    let (server, mut tasks) = (Server::bind(config).await?, Tasks::default());
    let at = server.address();
    server.spawn(Arc::new(provider.clone()), &mut tasks)?;
    let mut client = client(at).await?;
    time_served(&mut client, "latency, zones in a table", ask).await?;
    let ask = question("bandwidth", "50M", "10M");
    time(&provider, "bandwidth, zones in a table", ask).await?;
    time(
        &provider,
        "jitter, nothing measured",
        question("jitter", "", "1ms"),
    )
    .await?;
    match std::env::args().nth(1) {
        Some(listen) => measured(feed, listen.parse()?).await,
        None => Ok(()),
    }
}
