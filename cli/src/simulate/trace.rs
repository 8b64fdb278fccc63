//! Runs `tautline simulate` on a recorded trace: prepares the experiment, shows its progress, and
//! prints the figures or writes the report.

use std::{num::NonZeroUsize, path::Path, thread, time::Duration};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use tautline_gpu_simulator::{Experiment, Figures, PublishedCurves, Trace, report};

use super::{Args, tables};
use crate::output;

pub(super) fn run(dir: &Path, args: &Args) -> Result<()> {
    let trace = Trace::open(dir)?;
    let workloads = match args.workload.as_slice() {
        [all] if all == "all" => trace.workloads()?,
        some => some.to_vec(),
    };
    let published = PublishedCurves::read(dir)?;
    let seeds = args.seeds_or(std::iter::once(42));
    let experiment = Experiment::prepare(
        trace,
        &workloads,
        &seeds,
        args.policy.clone(),
        args.ties,
        args.churn,
    )?;
    let notes = notes(&experiment);
    let bar = progress_bar(experiment.arrivals());
    let tell = |arrivals| bar.inc(arrivals);
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let outcomes = experiment.run(cores, &tell);
    bar.finish_and_clear();
    for note in &notes {
        note!("{note}");
    }
    if let Some(dir) = &args.dir {
        let page = report::write(dir, &outcomes, &published, &notes)?;
        note!("the report is {}", page.display());
    }
    let figures: Vec<&Figures> = outcomes.iter().map(|o| &o.figures).collect();
    output::print(args.output, &figures, |_| {
        tables::runs(&outcomes, &published)
    })
}

fn notes(experiment: &Experiment) -> Vec<String> {
    let drawn = experiment.drawn();
    if drawn.is_empty() {
        return Vec::new();
    }
    let list: Vec<String> = drawn
        .iter()
        .map(|(w, seed)| format!("{w} {seed}"))
        .collect();
    vec![format!(
        "the trace has no arrivals for {}: they were drawn from the pods of the workload, until \
         130 % of all GPU was asked for",
        list.join(", ")
    )]
}

/// Makes a progress bar on standard error, which is hidden if that is not a terminal.
fn progress_bar(arrivals: u64) -> ProgressBar {
    let bar = ProgressBar::new(arrivals);
    let style =
        ProgressStyle::with_template("{wide_bar} {percent}% of {human_len} arrivals, {eta} left");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
