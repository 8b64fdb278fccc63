//! The client: measures all servers in interleaved rounds, and prints each line's median.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::json;
use tautline_bench::{Role, Times, node_name};
use tautline_tests::loopback::{exchange, post_request};
use tokio::net::TcpStream;

use crate::process::{self, Core, cpu};

const ROUNDS: usize = 9;
const WARM_UP: usize = 200;
const CYCLES: usize = 1000;

/// A line of the table: requests to a server, and the durations of each round.
struct Line<'a> {
    server: &'a Role,
    pod: &'static str,
    /// The pod's name, and its label `app`. Offers select all but `plain`, and the store has the
    /// pod `streamed` alone.
    app: &'static str,
    /// Verbs of one cycle, in sequence.
    verbs: &'static [&'static str],
    nodes: usize,
    rounds: Vec<Round>,
}

/// Durations of a cycle in one round.
struct Round {
    p50: Duration,
    p99: Duration,
    /// CPU time of the server.
    cpu: Duration,
}

pub async fn run() -> Result<()> {
    let providers = [Role::start(&["provider"])?, Role::start(&["provider"])?];
    let ports: Vec<String> = providers.iter().map(|p| p.port.to_string()).collect();
    let reading = Role::start(&["reading"])?;
    let echoing = Role::start(&["echoing"])?;
    let calling = Role::start(&["calling", &ports[0], &ports[1]])?;
    let extender = Role::start(&["extender", &ports[0], &ports[1]])?;
    process::pin_to(Core::First)?;
    let mut lines = Vec::new();
    for nodes in [500, 5000] {
        let mut line = |server, pod, app, verbs| {
            lines.push(Line {
                server,
                pod,
                app,
                verbs,
                nodes,
                rounds: Vec::new(),
            })
        };
        let both: &[&str] = &["filter", "prioritize"];
        line(
            &reading,
            "(baseline: answers nothing)",
            "plain",
            &["filter"],
        );
        line(
            &echoing,
            "(baseline: returns all names)",
            "plain",
            &["filter"],
        );
        line(&extender, "ungoverned", "plain", &["filter"]);
        line(&calling, "(baseline: calls two providers)", "plain", both);
        line(&extender, "governed, 2 rules", "governed", both);
        line(&extender, "governed, 2 rules", "governed", &["filter"]);
        line(&extender, "governed, 2 rules", "governed", &["prioritize"]);
        for (pod, app) in [
            ("governed, costs of 2 rules on streams", "streamed"),
            ("the same, not shown by the watch yet", "unseen"),
        ] {
            line(&extender, pod, app, &["filter"]);
        }
    }
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        for line in &mut lines {
            line.rounds.push(measure(line).await?);
        }
    }
    print(&lines);
    let memory = Command::new(std::env::current_exe()?)
        .arg("memory")
        .output()?;
    println!("\n{}", String::from_utf8_lossy(&memory.stdout).trim());
    Ok(())
}

/// Prints medians of the rounds, and the range of the CPU time.
fn print(lines: &[Line<'_>]) {
    println!("| nodes | pod | verbs | p50, us | p99, us | server CPU, us | range |");
    println!("|---|---|---|---|---|---|---|");
    for line in lines {
        let sorted = |of: fn(&Round) -> Duration| {
            let mut all: Vec<u128> = line.rounds.iter().map(|r| of(r).as_micros()).collect();
            all.sort_unstable();
            all
        };
        let (p50, p99, cpu) = (sorted(|r| r.p50), sorted(|r| r.p99), sorted(|r| r.cpu));
        println!(
            "| {} | {} | {} | {} | {} | {} | {}-{} |",
            line.nodes,
            line.pod,
            line.verbs.join(" + "),
            p50[ROUNDS / 2],
            p99[ROUNDS / 2],
            cpu[ROUNDS / 2],
            cpu[0],
            cpu[ROUNDS - 1],
        );
    }
}

async fn measure(line: &Line<'_>) -> Result<Round> {
    let requests: Vec<Vec<u8>> = line.verbs.iter().map(|verb| request(line, verb)).collect();
    let mut stream = TcpStream::connect(("127.0.0.1", line.server.port)).await?;
    stream.set_nodelay(true)?;
    let (mut before, mut times) = (Duration::ZERO, Vec::with_capacity(CYCLES));
    for cycle in 0..WARM_UP + CYCLES {
        if cycle == WARM_UP {
            before = cpu(line.server.id())?;
            times.clear();
        }
        let start = Instant::now();
        for request in &requests {
            let (answer, body) = exchange(&mut stream, request).await?;
            let body = &answer[body..];
            let text = || String::from_utf8_lossy(body);
            ensure!(!body.starts_with(br#"{"error""#), "answered {}", text());
        }
        times.push(start.elapsed());
    }
    let cpu = (cpu(line.server.id())? - before) / CYCLES as u32;
    let times = Times::new(times);
    Ok(Round {
        p50: times.quantile(0.5),
        p99: times.quantile(0.99),
        cpu,
    })
}

fn request(line: &Line<'_>, verb: &str) -> Vec<u8> {
    // Prioritize gets the nodes that filter returned: at most the shortlist.
    let names = match verb {
        "prioritize" => 64,
        _ => line.nodes,
    };
    let pod = json!({
        "metadata": {"name": line.app, "namespace": "default", "uid": line.app,
                     "resourceVersion": crate::servers::POD_VERSION.to_string(),
                     "labels": {"app": line.app, "pod-template-hash": "5d4f8c7b9"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1",
                                 "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
    });
    let names = json!((0..names).map(node_name).collect::<Vec<_>>());
    // kube-scheduler writes the fields in this order, which serde_json's map would not.
    let body = format!(r#"{{"Pod":{pod},"Nodes":null,"NodeNames":{names}}}"#);
    post_request("bench", &format!("/{verb}"), body.as_bytes())
}
