//! `cargo build --release -p tautline && cargo run --release -p tautline-bench --bin
//! tautline-bench-controller`: the cost of `tautline controller` while nothing
//! changes, with 10,000 bindings evaluated every 10 seconds.
//!
//! A real etcd and API server hold the pods and the bindings. The controller is the release
//! binary under its own account. Its provider answers at once and runs in this process, so the
//! figures are only the controller's. The API server counts no other client's requests, except
//! those for its own lease. Prints a Markdown table; `--json FILE` writes the same figures.

mod measure;
mod metrics;
mod report;
mod setup;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Parser;
use tautline_bench::cluster::{self, AtOnce};
use tautline_tests::{control_plane::ControlPlane, servers::Server};

#[derive(Parser)]
#[command(name = "tautline-bench-controller")]
struct Args {
    /// The binary to measure [default: target/release/tautline]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// How many pods the one target of the offer selects
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Two targets instead: how many pods the first selects
    #[arg(long, requires = "destinations", conflicts_with = "pods")]
    sources: Option<usize>,
    /// How many pods the second selects
    #[arg(long, requires = "sources")]
    destinations: Option<usize>,
    /// How many bindings the controller makes of one offer at most: beyond them
    /// a condition of the offer is waited for, not the bindings
    #[arg(long, default_value_t = 10_000)]
    cap: usize,
    /// How long is measured
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How often each binding is evaluated, in seconds
    #[arg(long, default_value_t = 10)]
    period: u64,
    /// For how long the first evaluation of everything may take, in seconds
    #[arg(long, default_value_t = 600)]
    patience: u64,
    /// Writes the figures there too
    #[arg(long)]
    json: Option<PathBuf>,
    /// More arguments for the controller, after --
    #[arg(last = true)]
    controller: Vec<String>,
}

/// The pods that the offer selects, and the expected bindings.
struct Shape {
    /// The pods of each target.
    targets: Vec<(&'static str, usize)>,
    cap: usize,
    period: Duration,
}

impl Shape {
    fn of(args: &Args) -> Self {
        let targets = match (args.sources, args.destinations) {
            (Some(s), Some(d)) => vec![("source", s), ("destination", d)],
            _ => vec![("default", args.pods)],
        };
        Self {
            targets,
            cap: args.cap,
            period: Duration::from_secs(args.period),
        }
    }

    fn product(&self) -> usize {
        self.targets.iter().map(|(_, pods)| pods).product()
    }

    fn capped(&self) -> bool {
        self.product() > self.cap
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let bin = cluster::release_binary(args.bin.clone())?;
    let shape = Shape::of(&args);
    eprintln!("starting etcd and kube-apiserver (built first if need be) ...");
    let plane = ControlPlane::start().await?;
    let provider = AtOnce::default();
    let running = tautline_sdk::testkit::start(provider.clone()).await?;
    setup::create(&plane.client, &shape, running.address.port()).await?;

    eprintln!("starting the controller ...");
    let start = Instant::now();
    let more: Vec<&str> = args.controller.iter().map(String::as_str).collect();
    let mut server = Server::controller_of_binary(&plane, &bin, "controller", &more).await?;
    let patience = Duration::from_secs(args.patience);
    measure::settled(&plane.client, &mut server, &shape, patience).await?;
    let settled = start.elapsed();
    // The rest of the first round is not measured.
    tokio::time::sleep(shape.period).await;
    let window = Duration::from_secs(args.seconds);
    eprintln!("measuring for {window:?} ...");
    let figures = measure::window(&plane.client, &mut server, &provider, window).await?;
    let report = report::Report {
        shape: &shape,
        bindings: measure::bindings(&plane.client).await,
        settled,
        figures,
    };
    print!("{}", report.table());
    if let Some(file) = &args.json {
        std::fs::write(file, format!("{:#}\n", report.json()))?;
    }
    Ok(())
}
