//! `cargo run --release -p tautline-bench --bin tautline-bench-admission`: the costs of admission.
//!
//! A pod under ten mutation policies and under a slice policy of a hundred rules,
//! in process; the same through the real HTTPS server, a process of its own, at 100
//! and 1,000 reviews a second over persistent connections; and every hostile policy of the
//! tests, each in a process of its own. Prints Markdown; `--docs` puts it into
//! tests/bench/README.md.

mod cluster;
mod load;
mod policies;
mod server;
#[path = "../../../admission/mutating-policy/tests/support/hostile_policies.rs"]
mod support;

use std::{
    fmt::Write as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tautline_bench::{Times, write_to_page};
use tautline_gpu_sharing::{Decision, Names, Policy, decide};
use tautline_mutating_policy::{Policies, Request, Settings, StaticCluster, Verdict};
use tautline_tests::process::peak_bytes;

const WARM_UP: usize = 500;
const TIMES: usize = 10_000;
/// Reviews a second: of a busy cluster, and the most that one core is to serve.
const RATES: [usize; 2] = [100, 1_000];
const WINDOW: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => print!("{}", measured()?),
        ["--docs"] => write_to_page("tests/bench/README.md", "admission", &measured()?)?,
        ["server", dir] => {
            provider();
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(server::run(Path::new(dir)))?;
        }
        ["hostile", name] => hostile(name)?,
        other => bail!("unknown arguments {other:?}; there is --docs"),
    }
    Ok(())
}

fn provider() {
    // Fails only if one is installed already.
    _ = rustls::crypto::ring::default_provider().install_default();
}

fn measured() -> Result<String> {
    let mut out = String::from("| in process | p50, us | p99, us |\n|---|---|---|\n");
    for (what, times) in [
        ("a pod under 10 mutation policies", mutations()?),
        ("GPU slices, 100 rules", slices()?),
    ] {
        let [p50, p99] = [0.5, 0.99].map(|q| times.quantile(q).as_micros());
        writeln!(out, "| {what} | {p50} | {p99} |")?;
    }
    writeln!(
        out,
        "\n| over HTTPS | a second | reviews | p50, ms | p99, ms | server CPU, cores | resident at start, middle, end, MB |\n|---|---|---|---|---|---|---|"
    )?;
    provider();
    let dir = tempfile::tempdir()?;
    let server = load::Server::start(dir.path())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let paths = ["/mutate-policies", "/mutate-v1-pod"];
    for (path, rate) in paths
        .into_iter()
        .flat_map(|path| RATES.map(|rate| (path, rate)))
    {
        let f = runtime.block_on(server.hold(path, rate, WINDOW))?;
        let [p50, p99] = [0.5, 0.99].map(|q| f.times.millis(q));
        let [a, b, c] = f.resident.map(|bytes| bytes as f64 / 1e6);
        writeln!(
            out,
            "| {} | {} | {} | {p50:.2} | {p99:.2} | {:.2} | {a:.1}, {b:.1}, {c:.1} |",
            f.path,
            f.rate,
            f.times.count(),
            f.cpu / f.seconds
        )?;
    }
    drop(server);
    out.push_str("\n| hostile policy | ends | ms | peak, MB |\n|---|---|---|---|\n");
    for one in support::all() {
        let ran = Command::new(std::env::current_exe()?)
            .args(["hostile", one.name])
            .output()?;
        ensure!(
            ran.status.success(),
            "{}: {}",
            one.name,
            String::from_utf8_lossy(&ran.stderr)
        );
        let figures = String::from_utf8(ran.stdout)?;
        writeln!(
            out,
            "| {} | {:?} | {} |",
            one.name,
            one.ends,
            figures.trim()
        )?;
    }
    Ok(out)
}

fn times(mut work: impl FnMut() -> Result<()>) -> Result<Times> {
    for _ in 0..WARM_UP {
        work()?;
    }
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed());
    }
    Ok(Times::new(times))
}

fn mutations() -> Result<Times> {
    let manifests = policies::manifests()?;
    let (policies, report) = Policies::load(&manifests);
    ensure!(
        report.faults.is_empty() && policies.len() == 10,
        "{:?}",
        report.faults
    );
    let world: StaticCluster = manifests
        .into_iter()
        .chain([policies::namespace()])
        .collect();
    let request = Request::create(policies::pod()).context("no pod")?;
    let settings = Settings::default();
    times(|| {
        let outcome = policies.mutate(&request, &world, &settings);
        ensure!(
            matches!(outcome.verdict, Verdict::Changed { .. }),
            "{:?}",
            outcome.verdict
        );
        Ok(())
    })
}

fn slices() -> Result<Times> {
    let policy = Policy::parse(&policies::slices())?;
    let (names, pod) = (Names::default(), policies::pod());
    times(|| {
        let decision = decide(&names, Some(&policy), "ml", &pod);
        ensure!(matches!(decision, Decision::Mutate(_)), "{decision:?}");
        Ok(())
    })
}

/// Loads a hostile policy and evaluates it once; prints milliseconds and megabytes.
fn hostile(name: &str) -> Result<()> {
    let all = support::all();
    let one = all
        .iter()
        .find(|one| one.name == name)
        .context("no such policy")?;
    let manifests = [support::innocent(), one.manifests()].concat();
    let request = Request::create(support::object()).context("no object")?;
    let peak = || peak_bytes(std::process::id());
    let (before, start) = (peak(), Instant::now());
    let (policies, _) = Policies::load(&manifests);
    let outcome = policies.mutate(&request, &StaticCluster::default(), &Settings::default());
    let (took, after) = (start.elapsed(), peak());
    let Verdict::Changed { object, .. } = &outcome.verdict else {
        bail!("{:?}", outcome.verdict);
    };
    ensure!(
        object["spec"]["mark"] == "seen",
        "the other policy did not run"
    );
    println!(
        "{:.1} | {:.1}",
        took.as_secs_f64() * 1e3,
        (after - before) as f64 / 1e6
    );
    Ok(())
}
