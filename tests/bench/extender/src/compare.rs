//! The client: measures all servers in interleaved rounds, and prints each line's median.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    process::{self, Core, Role},
    servers,
};

const ROUNDS: usize = 9;
const WARM_UP: usize = 200;
const CYCLES: usize = 1000;

/// A line of the table: requests to a server, and the durations of each round.
struct Line<'a> {
    server: &'a Role,
    pod: &'static str,
    /// The pod's label `app`; offers select `governed` and `cached`.
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
        let cached = "governed, answers of 2 rules cached";
        line(&extender, cached, "cached", &["filter"]);
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
            before = line.server.cpu()?;
            times.clear();
        }
        let start = Instant::now();
        for request in &requests {
            exchange(&mut stream, request).await?;
        }
        times.push(start.elapsed());
    }
    let cpu = (line.server.cpu()? - before) / CYCLES as u32;
    times.sort();
    Ok(Round {
        p50: times[CYCLES / 2],
        p99: times[CYCLES * 99 / 100],
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
        "metadata": {"name": "web-0", "namespace": "default", "uid": "u-1",
                     "labels": {"app": line.app, "pod-template-hash": "5d4f8c7b9"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1",
                                 "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
    });
    let names = json!((0..names).map(servers::node).collect::<Vec<_>>());
    // kube-scheduler writes the fields in this order, which serde_json's map would not.
    let body = format!(r#"{{"Pod":{pod},"Nodes":null,"NodeNames":{names}}}"#);
    format!(
        "POST /{verb} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<()> {
    stream.write_all(request).await?;
    let mut answer = Vec::with_capacity(64 << 10);
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            bail!("the server closed the connection");
        }
        let Some(head) = answer.windows(4).position(|w| w == b"\r\n\r\n") else {
            continue;
        };
        let text = std::str::from_utf8(&answer[..head])?.to_ascii_lowercase();
        if !text.starts_with("http/1.1 200") {
            bail!("answered {text}");
        }
        let length = text
            .lines()
            .find_map(|l| l.strip_prefix("content-length: "));
        let length: usize = length.context("no content-length")?.trim().parse()?;
        while answer.len() < head + 4 + length {
            if stream.read_buf(&mut answer).await? == 0 {
                bail!("the answer is incomplete");
            }
        }
        let body = &answer[head + 4..];
        if body.starts_with(br#"{"error""#) {
            bail!("answered {}", String::from_utf8_lossy(body));
        }
        return Ok(());
    }
}
