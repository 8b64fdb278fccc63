//! `cargo build --release -p tautline && MALLOC_ARENA_MAX=1 cargo run --release -p
//! tautline-bench-scale`: what a large cluster costs the extender. A real etcd and
//! API server hold the objects; the extender is the release binary under its own
//! account, with the one heap that `deploy/base` gives it; a provider that answers
//! at once runs in this process.
//!
//! One offer more than the thousand asks for no label in particular, so the extender
//! follows all pods. With `--widen` it is made later: what the rest costs is seen first.
//!
//! Measured: the time from its start until it is ready, the memory it holds then
//! and at most, a filter of 500 and of all node names, what a burst of pod updates
//! takes to be seen, a filter meanwhile, and how the watch goes on once the API
//! server has been started anew.

mod fill;
mod load;
mod objects;
mod report;

use std::{path::PathBuf, time::Instant};

use anyhow::Result;
use clap::Parser;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
};
use tautline_tests::{bench, control_plane::ControlPlane, objects as tests, root, servers::Server};

#[derive(Parser)]
#[command(name = "tautline-bench-scale")]
struct Args {
    /// The binary to measure [default: target/release/tautline]
    #[arg(long)]
    bin: Option<PathBuf>,
    #[command(flatten)]
    size: Size,
    /// Makes the offer that has all pods followed once the extender is ready
    #[arg(long)]
    widen: bool,
    /// Writes the table into docs/benchmarks.md too
    #[arg(long)]
    docs: bool,
    /// Writes the figures there too
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Size {
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    #[arg(long, default_value_t = 150_000)]
    pods: usize,
    /// Offers, each of a policy of two rules, to 50 pods
    #[arg(long, default_value_t = 1000)]
    offers: usize,
    /// Services, each with its EndpointSlice; a hundred lead to providers
    #[arg(long, default_value_t = 10_000)]
    services: usize,
    /// Pod updates of the burst
    #[arg(long, default_value_t = 10_000)]
    updates: usize,
    /// The seconds that the burst is spread over
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

/// Calls every node equally good.
#[derive(Clone)]
struct Even;

impl RuleProvider for Even {
    async fn endpoint_cost(&self, ask: CostRequest) -> Result<CostAnswer, ProviderError> {
        let nodes = ask.eligible_nodes.into_iter();
        Ok(nodes.map(|n| (n, 1)).collect::<CostAnswer>())
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::compliant("as asked for"))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let bin = bench::release_binary(args.bin.clone())?;
    eprintln!("starting etcd and kube-apiserver (built first if need be) ...");
    let mut plane = ControlPlane::start().await?;
    let skipped = ["Deployment", "Service", "DaemonSet"];
    tests::apply_kustomization_except(&plane.client, &root().join("deploy"), &skipped).await?;
    let provider = tautline_sdk::testkit::start(Even).await?;
    fill::cluster(&plane.client, &args.size, provider.address.port()).await?;
    if !args.widen {
        fill::offer_of_any(&plane.client).await?;
    }

    eprintln!("starting the extender ...");
    let start = Instant::now();
    let server = Server::start_binary(&plane, &bin, "extender", &["extender"]).await?;
    let first_sync = start.elapsed();
    let cpu = server.process.cpu_seconds();
    let (resident, peak) = (server.process.resident_bytes(), server.process.peak_bytes());
    let widened = match args.widen {
        true => Some(load::widened(&plane.client, &server, &args.size).await?),
        false => None,
    };
    let few = load::filters(&server, 500, 500).await?;
    let many = load::filters(&server, args.size.nodes, 300).await?;
    eprintln!(
        "updating {} pods within {} s ...",
        args.size.updates, args.size.seconds
    );
    let burst = load::burst(&plane.client, &server, &args.size).await?;
    let resident_loaded = server.process.resident_bytes();
    eprintln!("starting the API server anew ...");
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
        widened,
        filters: vec![(500, few), (args.size.nodes, many)],
        burst,
        resident_loaded,
        api_server_back: restarted,
        resumed,
        resident_then: server.process.resident_bytes(),
        peak_then: server.process.peak_bytes(),
    };
    report.write(args.docs, args.json.as_deref())
}
