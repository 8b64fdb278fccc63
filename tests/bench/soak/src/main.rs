//! `cargo build --release -p tautline && cargo run --release -p tautline-bench-soak
//! -- --minutes 20`: a steady load of pods on the real control plane, a fault every
//! ten seconds, and a judge who knows by himself what the providers say and when.
//!
//! Two extenders behind one address, two replicas of gpu-slice with their Lease, the
//! scripted provider, and two providers whose costs are a function of the time of
//! day ([`clock`]), which have the rule `latency` in turn.
//!
//! Wrong is a pod on a node that no answer to it in that scheduling cycle called
//! usable, on one that the script has refused for long, with a card that its node
//! does not have or that is given away by then. Ends with code 1 if anything of that
//! happened, if a reservation stays, a process panics, a pod waits though there is
//! room, or memory grows.

mod checker;
mod clock;
mod cluster;
mod expected;
mod faults;
mod final_state;
mod kinds;
mod load;
mod memory;
mod processes;
mod report;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use clap::Parser;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use kube_runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use tautline_tests::{bench, root};

use crate::{
    checker::Checker,
    cluster::Cluster,
    expected::ExpectedAnswers,
    faults::Faults,
    load::{LoadResult, SharedChecker},
    memory::Memory,
    report::Report,
};

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(30);

#[derive(Parser)]
#[command(name = "tautline-bench-soak")]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The binary to soak [default: target/release/tautline]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// How long pods are made and faults happen
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Pods made in a second
    #[arg(long, default_value_t = 4.0)]
    rate: f64,
    /// Decides faults, their order, the pods and what providers say
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes the table into docs/benchmarks.md too
    #[arg(long)]
    docs: bool,
    /// Writes the figures there too
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// One of the soak's own providers
    #[command(hide = true)]
    Clock(clock::Args),
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let Some(Command::Clock(clock)) = args.command {
        clock::serve(clock).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let bin = bench::release_binary(args.bin.clone())?;
    ensure!(args.rate > 0.0, "--rate {}: must be above 0", args.rate);
    eprintln!("starting the control plane (built first if need be) and our processes ...");
    let cluster = Cluster::start(&bin, args.seed).await?;
    let report = soak(&cluster, &args).await?;
    report.write(args.docs, args.json.as_deref())?;
    let missed = report.missed();
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{}", cluster.state().await);
    for (name, log) in logs(&cluster).await? {
        let kept = root().join("target/soak");
        std::fs::create_dir_all(&kept)?;
        std::fs::write(kept.join(name), log)?;
    }
    eprintln!(
        "the logs are kept in target/soak; missed:\n{}",
        missed.join("\n")
    );
    Ok(ExitCode::FAILURE)
}

async fn soak(cluster: &Cluster, args: &Args) -> Result<Report> {
    let length = Duration::from_secs(60 * args.minutes);
    let dir = cluster.plane.lock().await.dir.path().to_owned();
    let truth = ExpectedAnswers::new(args.seed, &dir);
    let judge: SharedChecker = Arc::new(Mutex::new(Checker::new(truth, args.seed)));
    let (faults, client) = (Faults::new(), cluster.client.clone());
    let mut looks = Observations::default();
    let soaked = async {
        let made = loaded(cluster, args, &judge, &faults, &mut looks).await?;
        let ending = final_state::run(cluster, &judge, &faults, args.seed).await?;
        anyhow::Ok((made, ending))
    };
    let (made, mut ending) = tokio::select! {
        done = soaked => done?,
        ended = watch(client, judge.clone()) => bail!("the watch of pods has ended: {ended:?}"),
    };
    ending.stuck.extend(looks.stuck);
    let counts = std::mem::take(&mut judge.lock().counts);
    let done = faults.done.into_inner();
    Ok(Report {
        length,
        seed: args.seed,
        per_second: args.rate,
        made,
        counts,
        faults: done.into_iter().collect(),
        full: looks.full.mean(),
        ending,
        panics: panics(cluster).await?,
        memory: looks.memory.figures(),
    })
}

/// The load, with all that goes on meanwhile.
async fn loaded(
    cluster: &Cluster,
    args: &Args,
    judge: &SharedChecker,
    faults: &Faults,
    looks: &mut Observations,
) -> Result<LoadResult> {
    let length = Duration::from_secs(60 * args.minutes);
    let (client, seed) = (cluster.client.clone(), args.seed);
    let all = async {
        let load = load::run(client.clone(), judge.clone(), args.rate, seed, length);
        let (made, done) = tokio::join!(load, faults.run(cluster, seed, length));
        done.map(|()| made)
    };
    tokio::select! {
        made = all => made,
        () = looks.run(cluster, judge, faults, seed) => bail!("nobody looks any more"),
        () = load::reap(client.clone(), judge.clone(), false) => bail!("nobody deletes any more"),
        () = load::tables(client.clone(), judge.clone(), seed) => bail!("no table comes any more"),
    }
}

/// Tells the judge of all pods, as long as it is polled.
async fn watch(client: Client, judge: SharedChecker) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff());
    loop {
        // It begins again by itself after an error.
        match events.try_next().await {
            Ok(Some(event)) => judge.lock().event(event),
            Ok(None) => return Ok(()),
            Err(_) => {}
        }
    }
}

#[derive(Default)]
struct Utilization {
    cpus: usize,
    cards: usize,
    times: usize,
}

impl Utilization {
    fn mean(&self) -> (usize, usize) {
        let times = self.times.max(1);
        (self.cpus / times, self.cards / times)
    }
}

/// What is looked at all the time.
#[derive(Default)]
struct Observations {
    memory: Memory,
    full: Utilization,
    stuck: Vec<String>,
}

impl Observations {
    async fn run(&mut self, cluster: &Cluster, judge: &SharedChecker, faults: &Faults, seed: u64) {
        let start = Instant::now();
        let (mut tick, mut told) = (tokio::time::interval(memory::EVERY), start);
        let mut told_wrong = 0;
        loop {
            tick.tick().await;
            self.memory.sample(cluster);
            let (cpus, cards) = judge.lock().utilization();
            self.full.cpus += cpus;
            self.full.cards += cards;
            self.full.times += 1;
            for pod in final_state::stuck(judge, faults, seed, final_state::STUCK) {
                let name = pod.split(' ').next().unwrap_or_default();
                if !self.stuck.iter().any(|s| s.starts_with(name)) {
                    eprintln!("stuck: {pod}");
                    self.stuck.push(pod);
                }
            }
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                progress(judge, start.elapsed(), (cpus, cards), &mut told_wrong);
            }
        }
    }
}

/// Of wrong placements `told` many were told before.
fn progress(
    judge: &SharedChecker,
    elapsed: Duration,
    (cpus, cards): (usize, usize),
    told: &mut usize,
) {
    let judge = judge.lock();
    let scheduled: usize = judge.counts.scheduled.values().sum();
    let pending = judge.pending(Duration::ZERO).count();
    let oldest = judge.pending(Duration::ZERO).map(|p| p.since.elapsed());
    eprintln!(
        "{elapsed:4.0?}: {scheduled} scheduled, {pending} wait (longest {:.0?}), {cpus} % of CPU and {cards} % of cards in use, {} in flight, {} wrong",
        oldest.max().unwrap_or_default(),
        judge.counts.in_flight,
        judge.counts.wrong.len(),
    );
    for wrong in judge.counts.wrong.iter().skip(*told) {
        eprintln!("wrong: {wrong}");
    }
    *told = judge.counts.wrong.len();
}

/// What all have written, by the file's name.
async fn logs(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let dir = cluster.plane.lock().await.dir.path().to_owned();
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".log") || name.starts_with("answers-") {
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            logs.push((name.into_owned(), text));
        }
    }
    Ok(logs)
}

async fn panics(cluster: &Cluster) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (name, log) in logs(cluster).await? {
        let lines = log
            .lines()
            .filter(|l| l.contains("panicked") && !l.contains("panicked: false"));
        found.extend(lines.map(|l| format!("{name}: {l}")));
    }
    for member in &cluster.members {
        if let Some(code) = member.program.lock().await.process_mut().exit_code() {
            found.push(format!("{} ended by itself with {code}", member.name));
        }
    }
    Ok(found)
}
