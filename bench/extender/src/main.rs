//! `cargo run --release -p tautline-bench-extender`: what one filter and one
//! prioritize cost, with 500 and 5,000 node names; ungoverned, and governed by
//! two rules whose providers are processes on loopback. Two floors are measured in
//! the same run: a server that reads the request and answers nothing, and one that asks
//! the two providers and reads no answer.
//!
//! Client, server and providers are processes of their own, so that the CPU time
//! is the server's alone. Prints a Markdown table, and what an index of 150,000
//! pods holds in memory.

mod asking;
mod noop;
mod servers;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Builder,
};

const WARM_UP: usize = 200;
const REQUESTS: usize = 1000;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["noop", port, shortlist] => noop::serve(port, shortlist, None),
        ["noop", port, shortlist, one, other] => noop::serve(port, shortlist, Some([one, other])),
        role => play(role),
    }
}

fn play(role: &[&str]) -> Result<()> {
    let mut runtime = match role {
        // As `tautline extender` and the providers run.
        ["extender", ..] | ["provide", ..] | ["asking-floor", ..] => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(played(role))
}

async fn played(role: &[&str]) -> Result<()> {
    match role {
        [] => compare().await,
        ["floor"] => servers::floor().await,
        ["asking-floor", one, other] => servers::asking_floor([one, other]).await,
        ["provide", port, admin] => asking::provide(port, admin).await,
        ["provider"] => servers::provider().await,
        ["memory"] => servers::memory(),
        ["extender", ports @ ..] => servers::extender(ports).await,
        other => bail!("unknown role {other:?}; run without arguments"),
    }
}

/// A child that prints its port and ends when its standard input closes.
struct Role {
    child: Child,
    stdin: Option<ChildStdin>,
    port: u16,
}

impl Role {
    fn start(args: &[&str]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().context("no output")?;
        let line = BufReader::new(out)
            .lines()
            .next()
            .context("the role ended early")??;
        let stdin = child.stdin.take();
        Ok(Self {
            child,
            stdin,
            port: line.trim().parse()?,
        })
    }

    /// CPU time of the process so far.
    fn cpu(&self) -> Result<Duration> {
        // Fields 14 and 15 of proc_pid_stat(5), in clock ticks of 10 ms.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after = stat.rsplit_once(')').context("no stat")?.1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        Ok(Duration::from_millis(ticks * 10))
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.stdin.take();
        _ = self.child.wait();
    }
}

async fn compare() -> Result<()> {
    let floor = Role::start(&["floor"])?;
    let providers = [Role::start(&["provider"])?, Role::start(&["provider"])?];
    let ports: Vec<String> = providers.iter().map(|p| p.port.to_string()).collect();
    let asking = Role::start(&["asking-floor", &ports[0], &ports[1]])?;
    let extender = Role::start(&["extender", &ports[0], &ports[1]])?;
    println!("| nodes | pod | verb | p50, us | p99, us | server CPU a request, us |");
    println!("|---|---|---|---|---|---|");
    for nodes in [500, 5000] {
        for (server, pod, app, verb) in [
            (&floor, "(floor: read, answer nothing)", "plain", "filter"),
            (&extender, "ungoverned", "plain", "filter"),
            (&asking, "(floor: asks two providers)", "plain", "filter"),
            (
                &asking,
                "(floor: asks two providers)",
                "plain",
                "prioritize",
            ),
            (&extender, "governed, 2 rules", "governed", "filter"),
            (&extender, "governed, 2 rules", "governed", "prioritize"),
        ] {
            let (p50, p99, cpu) = measure(server, verb, app, nodes).await?;
            let [p50, p99, cpu] = [p50, p99, cpu].map(|d| d.as_micros());
            println!("| {nodes} | {pod} | {verb} | {p50} | {p99} | {cpu} |");
            std::io::stdout().flush()?;
        }
    }
    let memory = Command::new(std::env::current_exe()?)
        .arg("memory")
        .output()?;
    println!("\n{}", String::from_utf8_lossy(&memory.stdout).trim());
    Ok(())
}

async fn measure(
    server: &Role,
    verb: &str,
    app: &str,
    nodes: usize,
) -> Result<(Duration, Duration, Duration)> {
    let names: Vec<String> = (0..nodes).map(servers::node).collect();
    let pod = json!({
        "metadata": {"name": "web-0", "namespace": "default", "uid": "u-1",
                     "labels": {"app": app, "pod-template-hash": "5d4f8c7b9"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1",
                                 "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
    });
    let request = |names: &[String]| -> Vec<u8> {
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": names}).to_string();
        format!(
            "POST /{verb} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    // Prioritize gets what filter let through: at most the shortlist.
    let sent = if verb == "prioritize" {
        &names[..64]
    } else {
        &names[..]
    };
    let request = request(sent);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).await?;
    stream.set_nodelay(true)?;
    for _ in 0..WARM_UP {
        exchange(&mut stream, &request).await?;
    }
    let (before, mut times) = (server.cpu()?, Vec::with_capacity(REQUESTS));
    for _ in 0..REQUESTS {
        let start = Instant::now();
        exchange(&mut stream, &request).await?;
        times.push(start.elapsed());
    }
    let cpu = (server.cpu()? - before) / REQUESTS as u32;
    times.sort();
    Ok((times[REQUESTS / 2], times[REQUESTS * 99 / 100], cpu))
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
                bail!("the answer broke off");
            }
        }
        let body = &answer[head + 4..];
        if body.starts_with(br#"{"error""#) {
            bail!("answered {}", String::from_utf8_lossy(body));
        }
        return Ok(());
    }
}
