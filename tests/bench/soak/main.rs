//! `cargo build --release -p tautline && cargo run --release -p tautline-bench --bin
//! tautline-bench-soak -- --minutes 20`: a steady load of pods on the real control plane, a fault every
//! ten seconds, and a checker that computes the providers' answers itself.
//!
//! Two extenders behind one address, two replicas of gpu-slice with their Lease, the
//! scripted provider, and two providers whose costs are a function of the time of
//! day ([`clock`]), which have the rule `latency` in turn.
//!
//! A placement is wrong on a node that no answer of that scheduling cycle called usable, on a
//! node that the script has refused for long, or with a card that its node does not have or
//! that another pod holds. The exit code is 1 after a wrong placement, a leaked reservation, a
//! panic, a pod that waits though a node has room, or growing memory.

mod checker;
mod clock;
mod cluster;
mod expected;
mod faults;
mod final_state;
mod kinds;
mod liar;
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
use tautline_bench::{Output, Times, cluster::release_binary};
use tautline_tests::root;

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

/// Loads a whole installation while faults strike it, and checks each placement and what leaks.
#[derive(Parser)]
#[command(name = "tautline-bench-soak")]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The binary to soak [default: target/release/tautline]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Duration of the load and the faults
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Pods created per second
    #[arg(long, default_value_t = 4.0)]
    rate: f64,
    /// Seed of the faults, their order, the pods and the providers' answers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
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
    let bin = release_binary(args.bin.clone())?;
    ensure!(args.rate > 0.0, "--rate {}: must be above 0", args.rate);
    eprintln!("starting the control plane (built first if need be) and our processes ...");
    let cluster = Cluster::start(&bin, args.seed).await?;
    let report = soak(&cluster, &args).await?;
    args.output.write("soak", &report.table(), &report.json())?;
    let missed = report.missed();
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{}", cluster.state().await);
    for (name, log) in logs(&cluster).await? {
        let dir = root().join("target/soak");
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(name), log)?;
    }
    eprintln!(
        "the logs are in target/soak; missed:\n{}",
        missed.join("\n")
    );
    Ok(ExitCode::FAILURE)
}

async fn soak(cluster: &Cluster, args: &Args) -> Result<Report> {
    let length = Duration::from_secs(60 * args.minutes);
    let dir = cluster.plane.lock().await.dir.path().to_owned();
    let expected = ExpectedAnswers::new(args.seed, &dir);
    let checker: SharedChecker = Arc::new(Mutex::new(Checker::new(expected, args.seed)));
    let (faults, client) = (Faults::new(), cluster.client.clone());
    let mut observations = Observations::default();
    let soaked = async {
        let made = loaded(cluster, args, &checker, &faults, &mut observations).await?;
        let ending = final_state::run(cluster, &checker, &faults, args.seed).await?;
        anyhow::Ok((made, ending))
    };
    let (made, mut ending) = tokio::select! {
        done = soaked => done?,
        ended = watch(client, checker.clone()) => bail!("the watch of pods has ended: {ended:?}"),
    };
    ending.stuck.extend(observations.stuck);
    let mut counts = std::mem::take(&mut checker.lock().counts);
    let waits = Times::new(std::mem::take(&mut counts.waits));
    let done = faults.done.into_inner();
    Ok(Report {
        length,
        seed: args.seed,
        per_second: args.rate,
        made,
        counts,
        waits,
        faults: done.into_iter().collect(),
        full: observations.full.mean(),
        ending,
        panics: panics(cluster).await?,
        memory: observations.memory.figures(),
    })
}

/// The load, with faults and observations.
async fn loaded(
    cluster: &Cluster,
    args: &Args,
    checker: &SharedChecker,
    faults: &Faults,
    observations: &mut Observations,
) -> Result<LoadResult> {
    let length = Duration::from_secs(60 * args.minutes);
    let (client, seed) = (cluster.client.clone(), args.seed);
    let all = async {
        let load = load::run(client.clone(), checker.clone(), args.rate, seed, length);
        let (made, done) = tokio::join!(load, faults.run(cluster, seed, length));
        done.map(|()| made)
    };
    tokio::select! {
        made = all => made,
        () = observations.run(cluster, checker, faults, seed) => bail!("the observations have ended"),
        () = load::reap(client.clone(), checker.clone(), false) => bail!("the deletion of pods has ended"),
        () = load::tables(client.clone(), checker.clone(), seed) => bail!("the changes of the table have ended"),
    }
}

/// Passes all pod events to the checker, while it is polled.
async fn watch(client: Client, checker: SharedChecker) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff());
    loop {
        // It restarts by itself after an error.
        match events.try_next().await {
            Ok(Some(event)) => checker.lock().event(event),
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

/// Observations during the load.
#[derive(Default)]
struct Observations {
    memory: Memory,
    full: Utilization,
    stuck: Vec<String>,
}

impl Observations {
    async fn run(
        &mut self,
        cluster: &Cluster,
        checker: &SharedChecker,
        faults: &Faults,
        seed: u64,
    ) {
        let start = Instant::now();
        let (mut tick, mut reported) = (tokio::time::interval(memory::EVERY), start);
        let mut reported_wrong = 0;
        loop {
            tick.tick().await;
            self.memory.sample(cluster);
            let (cpus, cards) = checker.lock().utilization();
            self.full.cpus += cpus;
            self.full.cards += cards;
            self.full.times += 1;
            for pod in final_state::stuck(checker, faults, seed, final_state::STUCK) {
                let name = pod.split(' ').next().unwrap_or_default();
                if !self.stuck.iter().any(|s| s.starts_with(name)) {
                    eprintln!("stuck: {pod}");
                    self.stuck.push(pod);
                }
            }
            if reported.elapsed() >= PROGRESS {
                reported = Instant::now();
                progress(checker, start.elapsed(), (cpus, cards), &mut reported_wrong);
            }
        }
    }
}

/// Prints a line of progress, and wrong placements after the first `reported`.
fn progress(
    checker: &SharedChecker,
    elapsed: Duration,
    (cpus, cards): (usize, usize),
    reported: &mut usize,
) {
    let checker = checker.lock();
    let scheduled: usize = checker.counts.scheduled.values().sum();
    let pending = checker.pending(Duration::ZERO).count();
    let oldest = checker.pending(Duration::ZERO).map(|p| p.since.elapsed());
    eprintln!(
        "{elapsed:4.0?}: {scheduled} scheduled, {pending} wait (longest {:.0?}), {cpus} % of CPU and {cards} % of cards in use, {} in flight, {} wrong",
        oldest.max().unwrap_or_default(),
        checker.counts.in_flight,
        checker.counts.wrong.len(),
    );
    for wrong in checker.counts.wrong.iter().skip(*reported) {
        eprintln!("wrong: {wrong}");
    }
    *reported = checker.counts.wrong.len();
}

/// All logs, by file name.
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
