//! Implements `tautline gpu fragmentation`, which shows the requests that cannot use the idle GPU,
//! and why.

use std::{fmt::Write, process::ExitCode};

use anyhow::Result;
use tautline_gpu_slice::{
    Config, Inspection,
    report::{
        Counted, Fragmentation, Given, IDLE_BUSY_MILLI, IDLE_MEMORY_PERCENT, Product, format,
    },
};

use super::source::{SourceArgs, UseArgs};
use crate::{
    manifests::FileNamespace,
    output::{self, Output},
    table::table,
};

/// The maximum number of names in a list.
const MAX_SHOWN_NAMES: usize = 5;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    namespace: FileNamespace,
    #[command(flatten)]
    uses: UseArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let source = args
        .source
        .read(false, args.namespace.namespace.as_deref())
        .await?;
    let config = Config::default();
    let inspection = Inspection::new(source.snapshot, config, source.devices);
    let uses = args.uses.read(&args.source, &inspection).await;
    let report = Fragmentation::new(&inspection, &uses);
    if report.nodes_with_cards == 0 {
        let nodes = inspection.snapshot().node_count();
        note!("no node has cards that are known one by one, of {nodes}");
    }
    output::print(args.output, &report, text)?;
    Ok(ExitCode::SUCCESS)
}

fn text(report: &Fragmentation) -> String {
    if report.nodes_with_cards == 0 {
        return counted_text(&report.counted);
    }
    let mut out = String::new();
    if !report.classes.is_empty() {
        out += &classes(report);
        out += "\n";
    }
    let idle = report.idle_milli;
    _ = match report.fragmented_milli {
        Some(lost) => {
            let part = format::percent(lost as f64, idle as f64);
            let what = "of the idle GPU is not expected to be usable by the next request";
            writeln!(out, "{part} {what} (FGD's measure): {lost}m of {idle}m.")
        }
        None => writeln!(
            out,
            "{idle}m of GPU are idle; without requests their use is not known."
        ),
    };
    out += &products(report);
    out += "\n";
    if let Some(given) = &report.given {
        out += &given_text(given);
    }
    out + &counted_text(&report.counted)
}

fn classes(report: &Fragmentation) -> String {
    let (idle, nodes) = (report.idle_milli, report.nodes_with_cards);
    table(
        &report.classes,
        &[
            ("REQUEST", &|class| class.text.clone()),
            ("MODE", &|class| class.lane.clone()),
            ("SHARE", &|class| format::percent(class.share, 1.0)),
            ("PODS", &|class| class.pods.len().to_string()),
            ("STILL FIT", &|class| class.still_fit.to_string()),
            ("CANNOT USE", &|class| {
                format!("{}m of {idle}m", class.unusable_milli)
            }),
            ("RUNS IN", &|class| {
                format!("{} of {nodes}", class.nodes.runs)
            }),
            ("NOT IN", &|class| class.nodes.others()),
        ],
    )
}

fn products(report: &Fragmentation) -> String {
    let part = |p: &Product| {
        let lost = p.fragmented_milli?;
        Some(format::percent(lost as f64, p.idle_milli as f64))
    };
    let lost = |p: &Product| p.fragmented_milli.map(format::milli);
    table(
        &report.products,
        &[
            ("PRODUCT", &|p| p.product.clone()),
            ("MODE", &|p| p.lane.clone()),
            ("NODES", &|p| p.nodes.to_string()),
            ("CARDS", &|p| p.cards.to_string()),
            ("IDLE", &|p| format::milli(p.idle_milli)),
            ("FRAGMENTED", &|p| lost(p).unwrap_or_default()),
            ("PART", &|p| part(p).unwrap_or_default()),
        ],
    )
}

fn counted_text(counted: &Counted) -> String {
    if counted.pods == 0 && counted.pods_not_counted.is_empty() {
        return "No pod requests GPUs, so no request is expected.\n".into();
    }
    let mut out = format!(
        "The expected requests are those of {} of the cluster; all count the same.",
        format::count(counted.pods, "pod")
    );
    if counted.pods_by_rule > 0 {
        let by = counted.pods_by_rule;
        _ = write!(out, " {by} of them wait, and a rule states their request.");
    }
    out.push('\n');
    if counted.classes_left_out > 0 {
        let what = match counted.classes_left_out {
            1 => "1 rare kind of request is".to_owned(),
            n => format!("{n} rare kinds of requests are"),
        };
        _ = writeln!(out, "{what} left out, with at most 5% of the pods.");
    }
    let left = &counted.pods_not_counted;
    if !left.is_empty() {
        _ = writeln!(
            out,
            "Not counted, because only the number of their GPUs is known or no card serves the rule: {}.",
            shown(left)
        );
    }
    out
}

fn given_text(given: &Given) -> String {
    let part = format::percent(given.idle_milli as f64, given.milli as f64);
    let mut out = format!(
        "{part} of the GPU that pods have is idle at this moment: {}m of {}m.",
        given.idle_milli, given.milli
    );
    if !given.idle_pods.is_empty() {
        let (busy, pods) = (IDLE_BUSY_MILLI / 10, shown(&given.idle_pods));
        _ = write!(
            out,
            " Used under {IDLE_MEMORY_PERCENT}% of their memory and {busy}% of the time: {pods}."
        );
    }
    out + "\n"
}

/// Returns the first names, and the number of further names.
fn shown(names: &[String]) -> String {
    let first = names[..names.len().min(MAX_SHOWN_NAMES)].join(", ");
    match names.len().saturating_sub(MAX_SHOWN_NAMES) {
        0 => first,
        n => format!("{first} and {n} more"),
    }
}

#[cfg(test)]
mod tests;
