//! Hostile policies are refused or stopped within limits of time and memory, and other
//! policies go on working. Each one runs in a process of its own, whose peak memory is
//! checked. `tests/bench/admission` prints the time that each takes.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

#[path = "support/hostile_policies.rs"]
mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Ends, Hostile};
use tautline_mutating_policy::{
    FaultKind, Limits, Outcome, Policies, Request, Settings, StaticCluster, Verdict,
};

/// The environment variable with the policy that a process tries.
const ONE: &str = "TAUTLINE_HOSTILE";
/// The limit of additional memory for one policy.
const PEAK_KB: u64 = 50_000;

/// The peak memory of this process.
fn peak_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Loads a hostile and an innocent policy, and evaluates both.
fn outcome(hostile: &Hostile) -> (Vec<String>, Outcome) {
    let manifests: Vec<Value> = support::innocent()
        .into_iter()
        .chain(hostile.manifests())
        .collect();
    let (policies, report) = Policies::load(&manifests);
    let faults = report.faults.iter().map(ToString::to_string).collect();
    let request = Request::create(support::object()).unwrap();
    let settings = Settings {
        limits: Limits {
            // Not reached: the limits end evaluations first.
            deadline: Some(Instant::now() + Duration::from_secs(60)),
            ..Limits::default()
        },
        ..Settings::default()
    };
    (
        faults,
        policies.mutate(&request, &StaticCluster::default(), &settings),
    )
}

fn tried(hostile: &Hostile) -> Result<(), String> {
    let (faults, outcome) = outcome(hostile);
    let ended = match outcome
        .faults
        .iter()
        .map(|fault| fault.kind)
        .collect::<Vec<_>>()
    {
        _ if !faults.is_empty() => Ends::Refused,
        kinds if kinds.contains(&FaultKind::Budget) => Ends::Stopped,
        _ => Ends::Harmless,
    };
    let Verdict::Changed { object, .. } = &outcome.verdict else {
        return Err(format!("the verdict is {:?}", outcome.verdict));
    };
    if object["spec"]["mark"] != json!("seen") {
        return Err("the policy beside it did not run".to_owned());
    }
    let spent = outcome
        .invocations
        .iter()
        .flat_map(|i| &i.steps)
        .map(|s| s.cost_units)
        .max();
    if spent.unwrap_or(0) > Limits::default().cost_units * 2 {
        return Err(format!("it spent {spent:?} units"));
    }
    if ended != hostile.ends {
        let shown: Vec<String> = outcome.faults.iter().map(ToString::to_string).collect();
        let shown: String = format!("{faults:?} {shown:?}").chars().take(600).collect();
        return Err(format!("it is {ended:?}, not {:?}: {shown}", hostile.ends));
    }
    Ok(())
}

#[test]
fn hostile_policies_are_refused_or_stopped() {
    let all = support::all();
    if let Ok(name) = std::env::var(ONE) {
        let before = peak_kb().unwrap();
        let hostile = all.iter().find(|one| one.name == name).unwrap();
        tried(hostile).unwrap();
        let taken = peak_kb().unwrap() - before;
        assert!(taken < PEAK_KB, "it took {taken} kB");
        return;
    }
    let failed: Vec<String> = all.iter().filter_map(|one| alone(one.name)).collect();
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        all.len(),
        failed.join("\n")
    );
}

/// Tries a policy in a process of its own; returns the failure.
fn alone(name: &str) -> Option<String> {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "hostile_policies_are_refused_or_stopped",
            "--nocapture",
        ])
        .env(ONE, name)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stderr);
    let why = text
        .lines()
        .find(|line| !line.is_empty() && !line.starts_with("thread "));
    let why = why.unwrap_or_default();
    (!ran.status.success()).then(|| format!("{name}: {} {why}", ran.status))
}
