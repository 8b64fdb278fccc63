use std::{fmt::Write, process::ExitCode};

use anyhow::Result;
use tautline_gpu_slice::{
    Config, Inspection,
    report::{
        Class, Counted, Fragmentation, Given, IDLE_BUSY_MILLI, IDLE_MEMORY_PERCENT, Product, format,
    },
};

use super::source::{SourceArgs, UseArgs};
use crate::{
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
    uses: UseArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let source = args.source.read(false).await?;
    let inspection = Inspection::new(source.snapshot, Config::default());
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
        let header = [
            "REQUEST",
            "MODE",
            "SHARE",
            "PODS",
            "STILL FIT",
            "CANNOT USE",
            "RUNS IN",
            "NOT IN",
        ];
        let rows = report.classes.iter().map(|c| class_row(c, report));
        out += &table(&header, rows);
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
    let header = [
        "PRODUCT",
        "MODE",
        "NODES",
        "CARDS",
        "IDLE",
        "FRAGMENTED",
        "PART",
    ];
    out += &table(&header, report.products.iter().map(product_row));
    out += "\n";
    if let Some(given) = &report.given {
        out += &given_text(given);
    }
    out + &counted_text(&report.counted)
}

fn class_row(class: &Class, report: &Fragmentation) -> Vec<String> {
    vec![
        class.text.clone(),
        class.lane.clone(),
        format::percent(class.share, 1.0),
        class.pods.len().to_string(),
        class.still_fit.to_string(),
        format!("{}m of {}m", class.unusable_milli, report.idle_milli),
        format!("{} of {}", class.nodes.runs, report.nodes_with_cards),
        class.nodes.others(),
    ]
}

fn product_row(product: &Product) -> Vec<String> {
    let part = |lost: i64| format::percent(lost as f64, product.idle_milli as f64);
    vec![
        product.product.clone(),
        product.lane.clone(),
        product.nodes.to_string(),
        product.cards.to_string(),
        format::milli(product.idle_milli),
        product
            .fragmented_milli
            .map(format::milli)
            .unwrap_or_default(),
        product.fragmented_milli.map(part).unwrap_or_default(),
    ]
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
            "Not counted, because only the number of their GPUs is known: {}.",
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
