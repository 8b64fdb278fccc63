//! Writes an HTML report: one page, a chart for each workload, and the curves.

mod chart;
mod page;

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use tautline_gpu_placement::policy::PolicyName;

use crate::{
    batch::RunResult,
    contender::Contender,
    curve::{Curve, MAX_LOAD_PERCENT},
    files::{self, Error, Table},
};

/// Published curves of allocation, by workload, policy and seed.
#[derive(Clone, Debug, Default)]
pub struct PublishedCurves(HashMap<(String, PolicyName, u64), Curve>);

impl PublishedCurves {
    /// Reads `expected/analysis_allo_discrete.csv` in the trace's folder; empty without this file.
    pub fn read(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("expected/analysis_allo_discrete.csv");
        if !files::exists(&path) {
            return Ok(Self::default());
        }
        let mut all = HashMap::new();
        let table = Table::read(&path)?;
        for row in table.rows() {
            let policy = match row.text("sc_policy")? {
                "04-GpuPacking" => PolicyName::Packing,
                "05-BestFit" => PolicyName::BestFit,
                "06-FGD" => PolicyName::Fgd,
                _ => continue,
            };
            let workload = row.text("workload")?;
            let workload = workload.strip_prefix("openb_pod_list_").unwrap_or(workload);
            let seed = row.number("seed", "a seed", 0, i64::MAX)?;
            let column = |c: usize| row.optional(&c.to_string()).parse().ok();
            let curve = (0..=MAX_LOAD_PERCENT).map(column).collect();
            all.insert((workload.to_owned(), policy, seed as u64), curve);
        }
        Ok(Self(all))
    }

    /// The curve of a workload, policy and seed; `None`: it is not published.
    pub fn curve(&self, workload: &str, policy: Contender, seed: u64) -> Option<&Curve> {
        let Contender::Policy(policy) = policy else {
            return None;
        };
        self.0.get(&(workload.to_owned(), policy, seed))
    }
}

/// The means over seeds of a policy's curves.
struct ChartLine {
    policy: Contender,
    curve: Curve,
    /// The published curve; `None` unless it is published for all seeds.
    published: Option<Curve>,
}

struct WorkloadReport<'a> {
    workload: &'a str,
    seeds: Vec<u64>,
    outcomes: &'a [RunResult],
    lines: Vec<ChartLine>,
}

/// Writes `index.html`, the charts `WORKLOAD.svg`, and `curves.csv`; returns the path of the page.
pub fn write(
    dir: &Path,
    outcomes: &[RunResult],
    published: &PublishedCurves,
    notes: &[String],
) -> Result<PathBuf, Error> {
    let of_workload = |a: &RunResult, b: &RunResult| a.figures.workload == b.figures.workload;
    let parts = outcomes.chunk_by(of_workload);
    let parts: Vec<_> = parts.map(|outcomes| part(outcomes, published)).collect();
    let put = |name: &str, text: String| {
        let file = dir.join(name);
        let written = fs::create_dir_all(dir).and_then(|()| fs::write(&file, text));
        written.map_err(|source| Error::Write { file, source })
    };
    for part in &parts {
        put(&format!("{}.svg", part.workload), chart::draw(part))?;
    }
    put("curves.csv", curves(outcomes))?;
    put("index.html", page::page(&parts, published, notes))?;
    Ok(dir.join("index.html"))
}

fn part<'a>(outcomes: &'a [RunResult], published: &PublishedCurves) -> WorkloadReport<'a> {
    let workload = outcomes[0].figures.workload.as_str();
    let seeds = unique(outcomes.iter().map(|o| o.figures.seed));
    let line = |policy| {
        let ours = outcomes.iter().filter(|o| o.policy == policy);
        let theirs = seeds.iter().map(|s| published.curve(workload, policy, *s));
        let theirs: Option<Vec<&Curve>> = theirs.collect();
        ChartLine {
            policy,
            curve: mean(&ours.map(|o| &o.allocation).collect::<Vec<_>>()),
            published: theirs.map(|curves| mean(&curves)),
        }
    };
    let policies = unique(outcomes.iter().map(|o| o.policy));
    WorkloadReport {
        workload,
        lines: policies.into_iter().map(line).collect(),
        seeds,
        outcomes,
    }
}

/// Returns the first of equal items each, in their order.
fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut unique, item| {
        if !unique.contains(&item) {
            unique.push(item);
        }
        unique
    })
}

fn mean(curves: &[&Curve]) -> Curve {
    let column = |c: usize| {
        let all: Option<Vec<f64>> = curves.iter().map(|curve| curve[c]).collect();
        let all = all.filter(|a| !a.is_empty())?;
        Some(all.iter().sum::<f64>() / all.len() as f64)
    };
    (0..=MAX_LOAD_PERCENT).map(column).collect()
}

fn curves(outcomes: &[RunResult]) -> String {
    let mut out = "workload,seed,policy".to_owned();
    for load in 0..=MAX_LOAD_PERCENT {
        _ = write!(out, ",{load}");
    }
    out.push('\n');
    for outcome in outcomes {
        let f = &outcome.figures;
        _ = write!(out, "{},{},{}", f.workload, f.seed, f.policy);
        for value in &outcome.allocation {
            match value {
                Some(value) => _ = write!(out, ",{value}"),
                None => out.push(','),
            }
        }
        out.push('\n');
    }
    out
}
