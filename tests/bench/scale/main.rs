//! `cargo build --release -p tautline && MALLOC_ARENA_MAX=1 cargo run --release -p tautline-bench
//! --bin tautline-bench-scale`: the extender's costs in a large cluster. The objects are in a real
//! etcd and API server. The extender is the release binary with its own service account and
//! the one malloc arena that `deploy/base` configures. A provider that answers at once runs in
//! this process.
//!
//! Measured: the time from the start until ready, resident and peak memory, a filter of 500
//! and of all node names, the delay of a burst of pod updates, filters meanwhile, and the
//! watch after a restart of the API server; and the console: its first page, its slowest and
//! largest page, its memory.

mod console;
mod fill;
mod load;
mod objects;
mod report;

use std::{path::PathBuf, time::Instant};

use anyhow::Result;
use clap::Parser;
use tautline_bench::{
    Output,
    cluster::{self, AtOnce},
};
use tautline_tests::{control_plane::ControlPlane, servers::Server};

#[derive(Parser)]
#[command(name = "tautline-bench-scale")]
struct Args {
    /// The binary to measure [default: target/release/tautline]
    #[arg(long)]
    bin: Option<PathBuf>,
    #[command(flatten)]
    size: Size,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
pub struct Size {
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    #[arg(long, default_value_t = 150_000)]
    pods: usize,
    /// Offers, each with a policy of two rules and 50 pods
    #[arg(long, default_value_t = 1000)]
    offers: usize,
    /// Services, each with its EndpointSlice; a hundred are providers
    #[arg(long, default_value_t = 10_000)]
    services: usize,
    /// Pod updates of the burst
    #[arg(long, default_value_t = 10_000)]
    updates: usize,
    /// Duration of the burst in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let bin = cluster::release_binary(args.bin.clone())?;
    eprintln!("starting etcd and kube-apiserver (built first if need be) ...");
    let mut plane = ControlPlane::start().await?;
    cluster::deploy(&plane.client).await?;
    let provider = tautline_sdk::testkit::start(AtOnce::default()).await?;
    fill::create(&plane.client, &args.size, provider.address.port()).await?;

    eprintln!("starting the extender ...");
    let start = Instant::now();
    let server = Server::start_binary(&plane, &bin, "extender", &["extender"]).await?;
    let first_sync = start.elapsed();
    let cpu = server.process.cpu_seconds();
    let (resident, peak) = (server.process.resident_bytes(), server.process.peak_bytes());
    let few = load::filters(&server, 500, 500).await?;
    let many = load::filters(&server, args.size.nodes, 300).await?;
    eprintln!(
        "updating {} pods within {} s ...",
        args.size.updates, args.size.seconds
    );
    let burst = load::burst(&plane.client, &server, &args.size).await?;
    let resident_loaded = server.process.resident_bytes();
    eprintln!("starting the console ...");
    let console = console::measure(&plane, &bin).await?;
    eprintln!("restarting the API server ...");
    let before = load::seen(&server).await;
    let start = Instant::now();
    plane.restart_apiserver().await?;
    let restarted = start.elapsed();
    let resumed = load::resumed(&plane.client, &server, before).await?;
    let report = report::Report {
        size: &args.size,
        first_sync,
        first_sync_cpu_s: cpu,
        resident,
        peak,
        filters: vec![(500, few), (args.size.nodes, many)],
        burst,
        resident_loaded,
        api_server_back: restarted,
        resumed,
        console,
        resident_then: server.process.resident_bytes(),
        peak_then: server.process.peak_bytes(),
    };
    args.output.write("scale", &report.table(), &report.json())
}
