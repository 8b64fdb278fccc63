//! Writes an HTML report: one page, a chart for each workload, and the curves.

mod chart;
mod page;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use tautline_gpu_placement::policy::PolicyName;

use crate::{
    batch::RunResult,
    curve::{Curve, MAX_LOAD_PERCENT},
    error::Error,
    published::PublishedCurves,
};

struct ChartLine {
    policy: PolicyName,
    published: bool,
    curve: Curve,
}

struct WorkloadReport<'a> {
    workload: &'a str,
    seeds: Vec<u64>,
    outcomes: Vec<&'a RunResult>,
    lines: Vec<ChartLine>,
}

/// Writes `index.html`, the charts `WORKLOAD.svg`, and `curves.csv`; returns the path of the page.
pub fn write(
    dir: &Path,
    outcomes: &[RunResult],
    published: &PublishedCurves,
    notes: &[String],
) -> Result<PathBuf, Error> {
    let parts = parts(outcomes, published);
    let put = |name: &str, text: String| {
        let file = dir.join(name);
        let written = fs::create_dir_all(dir).and_then(|()| fs::write(&file, text));
        written.map_err(|source| Error::Write { file, source })
    };
    for part in &parts {
        put(&format!("{}.svg", part.workload), chart::draw(part))?;
    }
    put("curves.csv", curves(&parts))?;
    put("index.html", page::page(&parts, published, notes))?;
    Ok(dir.join("index.html"))
}

fn parts<'a>(outcomes: &'a [RunResult], published: &PublishedCurves) -> Vec<WorkloadReport<'a>> {
    let mut parts: Vec<WorkloadReport<'a>> = Vec::new();
    for outcome in outcomes {
        let workload = outcome.figures.workload.as_str();
        if parts.last().is_none_or(|p| p.workload != workload) {
            parts.push(WorkloadReport {
                workload,
                seeds: Vec::new(),
                outcomes: Vec::new(),
                lines: Vec::new(),
            });
        }
        if let Some(part) = parts.last_mut() {
            part.outcomes.push(outcome);
            if !part.seeds.contains(&outcome.figures.seed) {
                part.seeds.push(outcome.figures.seed);
            }
        }
    }
    for part in &mut parts {
        let mut policies: Vec<PolicyName> = Vec::new();
        for outcome in &part.outcomes {
            if !policies.contains(&outcome.policy) {
                policies.push(outcome.policy);
            }
        }
        for policy in policies {
            let of = |o: &&&RunResult| o.policy == policy;
            let ours: Vec<_> = part
                .outcomes
                .iter()
                .filter(of)
                .map(|o| &o.allocation)
                .collect();
            let theirs = part
                .seeds
                .iter()
                .map(|s| published.curve(part.workload, policy, *s));
            let theirs: Option<Vec<&Curve>> = theirs.collect();
            let mut line = |published, curves: &[&Curve]| {
                part.lines.push(ChartLine {
                    policy,
                    published,
                    curve: mean(curves),
                });
            };
            line(false, &ours);
            if let Some(theirs) = theirs {
                line(true, &theirs);
            }
        }
    }
    parts
}

fn mean(curves: &[&Curve]) -> Curve {
    let column = |c: usize| {
        let all: Option<Vec<f64>> = curves.iter().map(|curve| curve[c]).collect();
        let all = all.filter(|a| !a.is_empty())?;
        Some(all.iter().sum::<f64>() / all.len() as f64)
    };
    (0..=MAX_LOAD_PERCENT).map(column).collect()
}

fn curves(parts: &[WorkloadReport<'_>]) -> String {
    let mut out = "workload,seed,policy".to_owned();
    for load in 0..=MAX_LOAD_PERCENT {
        _ = write!(out, ",{load}");
    }
    out.push('\n');
    for outcome in parts.iter().flat_map(|p| &p.outcomes) {
        let figures = &outcome.figures;
        _ = write!(
            out,
            "{},{},{}",
            figures.workload, figures.seed, figures.policy
        );
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
