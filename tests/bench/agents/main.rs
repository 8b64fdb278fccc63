//! Puts the load of a cluster of agents on the provider, and prints the memory and CPU that it
//! takes.
//!
//! ```text
//! cargo run --release -p tautline-bench --bin tautline-bench-agents -- serve 5000 127.0.0.1:5309 &
//! cargo run --release -p tautline-bench --bin tautline-bench-agents -- agents 5000 127.0.0.1:5309 60
//! ```

#![allow(clippy::unwrap_used)]

use std::{
    env, fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tautline_core::{index::Object, model};
use tautline_latency::{
    AGENTS_WITHIN, AgentAuth, DEFAULT_TARGETS, EchoKeys, Latency, Measuring, Network, ZONE,
};
use tautline_proto::latency::{
    FromAgent, Hello, Pair, Report, State, Target, agents_client::AgentsClient, from_agent,
    to_agent,
};
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks};
use tautline_sdk::{Config, Server};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

#[tokio::main]
async fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["serve", nodes, at] => serve(nodes.parse().unwrap(), at.parse().unwrap()).await,
        ["agents", nodes, at, seconds] => {
            let seconds = Duration::from_secs(seconds.parse().unwrap());
            agents(nodes.parse().unwrap(), at.parse().unwrap(), seconds).await;
        }
        _ => eprintln!("serve NODES ADDRESS | agents NODES ADDRESS SECONDS"),
    }
}

fn name(i: usize) -> String {
    format!("node-{i:05}")
}

async fn serve(nodes: usize, listen: SocketAddr) {
    let store = ClusterStore::default();
    let all = (0..nodes).map(|i| {
        let zone = format!("zone-{}", i % 9);
        Object::Node(model::Node {
            name: name(i).into(),
            uid: format!("00000000-0000-0000-0000-{i:012}").into(),
            labels: [(ZONE, zone.as_str())].into_iter().collect(),
            ..model::Node::default()
        })
    });
    store.reset(tautline_core::index::Kind::Node, all.collect());
    let config = Config {
        listen,
        connections: 8192,
        ..Config::default()
    };
    let (mut server, mut tasks) = (Server::bind(config).await.unwrap(), Tasks::default());
    let network = Network::new(store, false);
    let measuring = Measuring {
        network: network.clone(),
        auth: AgentAuth {
            trust_all: true,
            ..AgentAuth::default()
        },
        keys: EchoKeys::random().unwrap(),
        targets: DEFAULT_TARGETS,
        agents_within: AGENTS_WITHIN,
    };
    measuring.serve(&mut server, &mut tasks);
    let provider = Latency::with_network(network.clone());
    server.spawn(Arc::new(provider), &mut tasks).unwrap();
    println!("at first: {}", usage());
    let watch = async move {
        for i in 1.. {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let began = Instant::now();
            let row = network.row(&name(0));
            let readings = began.elapsed();
            let known = (1..nodes)
                .filter(|i| row.estimate(&name(*i)).is_some())
                .count();
            let took = began.elapsed();
            println!(
                "{:>4} s: {}; row {readings:?}, with {known} estimates {took:?}",
                i * 10,
                usage()
            );
        }
    };
    tokio::spawn(watch);
    tasks
        .run(tautline_runtime::tasks::shutdown_signal())
        .await
        .unwrap();
}

fn usage() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = status
        .lines()
        .filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS"));
    let memory: Vec<String> = memory
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat
        .split(' ')
        .skip(13)
        .take(2)
        .filter_map(|t| t.parse::<u64>().ok());
    format!(
        "{}, {} ms of processor",
        memory.join(", "),
        ticks.sum::<u64>() * 10
    )
}

#[derive(Default)]
struct Counts {
    connected: AtomicU64,
    frames: AtomicU64,
    pairs: AtomicU64,
    targets: AtomicU64,
}

async fn agents(nodes: usize, at: SocketAddr, time: Duration) {
    let counts: Arc<Counts> = Arc::default();
    let connecting = Arc::new(Semaphore::new(64));
    for i in 0..nodes {
        let (counts, connecting) = (Arc::clone(&counts), Arc::clone(&connecting));
        tokio::spawn(async move {
            if let Err(status) = agent(i, at, &counts, &connecting).await {
                eprintln!("agent {i}: {status}");
            }
            counts.connected.fetch_sub(1, Ordering::Relaxed);
        });
    }
    let began = Instant::now();
    while began.elapsed() < time {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        println!(
            "{:>4} s: {} agents, {} frames, {} pairs sent, {} lists of targets",
            began.elapsed().as_secs(),
            get(&counts.connected),
            get(&counts.frames),
            get(&counts.pairs),
            get(&counts.targets),
        );
    }
}

fn nanos(a: usize, b: usize, now: u64) -> u64 {
    let zones = (a % 9).abs_diff(b % 9) as u64;
    let noise = (a * 7919 + b * 104_729) as u64 % 1000 + now % 10;
    50_000 + zones * 400_000 + noise * 20
}

async fn agent(
    i: usize,
    at: SocketAddr,
    counts: &Counts,
    connecting: &Semaphore,
) -> Result<(), tonic::Status> {
    let mut targets: Vec<Target> = Vec::new();
    counts.connected.fetch_add(1, Ordering::Relaxed);
    let unavailable = |e: &dyn std::fmt::Display| tonic::Status::unavailable(e.to_string());
    let permit = connecting.acquire().await.map_err(|e| unavailable(&e))?;
    let mut client = AgentsClient::connect(format!("http://{at}"))
        .await
        .map_err(|e| unavailable(&e))?;
    let (send, messages) = mpsc::channel(4);
    let say = async |what| {
        let message = FromAgent { what: Some(what) };
        send.send(message).await.map_err(|e| unavailable(&e))
    };
    say(from_agent::What::Hello(Hello {
        node: name(i),
        boot_id: format!("boot-{i}"),
        address: format!("10.{}.{}.1:5310", i / 250, i % 250),
        nic_bits_per_second: 10_000_000_000,
    }))
    .await?;
    let mut stream = client
        .follow(ReceiverStream::new(messages))
        .await?
        .into_inner();
    drop(permit);
    let mut tick = tokio::time::interval(Duration::from_secs(2));
    let (mut frame, mut first) = (i, true);
    loop {
        tokio::select! {
            message = stream.message() => match message?.and_then(|m| m.what) {
                Some(to_agent::What::Targets(list)) => {
                    counts.targets.fetch_add(1, Ordering::Relaxed);
                    targets = list.targets;
                }
                Some(_) => {}
                None => return Ok(()),
            },
            _ = tick.tick() => {
                frame += 1;
                // The first frame has all pairs, later ones a fifteenth: one report every 30 s.
                let (skip, step) = if first { (0, 1) } else { (frame % 15, 15) };
                first = false;
                let reported = targets.iter().skip(skip).step_by(step);
                let pairs: Vec<Pair> = reported.map(|t| pair(i, t, frame as u64)).collect();
                counts.frames.fetch_add(1, Ordering::Relaxed);
                counts.pairs.fetch_add(pairs.len() as u64, Ordering::Relaxed);
                say(from_agent::What::Report(Report { pairs })).await?;
            }
        }
    }
}

fn pair(from: usize, target: &Target, now: u64) -> Pair {
    let to = target.node.trim_start_matches("node-").parse().unwrap_or(0);
    let nanos = nanos(from, to, now);
    Pair {
        node: target.node.clone(),
        instance: target.instance.clone(),
        state: State::Measured.into(),
        window_nanos: vec![nanos, nanos + 1000, nanos + 500],
        p50_nanos: nanos,
        p95_nanos: nanos + 30_000,
        samples: 60,
        age_millis: 100,
        refresh_millis: 32_000,
        connect: false,
        middle_half_nanos: nanos / 50,
    }
}
