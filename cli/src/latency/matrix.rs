//! Implements `tautline latency matrix`, which shows the round-trip times between zones or nodes.

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use tautline_latency::report::MatrixReport;

use super::{heat, source::SourceArgs};
use crate::{
    EXIT_NO,
    output::{self, Output},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show the nodes of this zone
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Show nodes, at most 200: these, or all without a value
    #[arg(long, value_name = "A,B,C", num_args = 0..=1, default_missing_value = "")]
    nodes: Option<String>,
    #[command(flatten)]
    source: SourceArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: MatrixOutput,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum MatrixOutput {
    /// For people
    #[default]
    Table,
    Json,
    Yaml,
    /// A picture, with the figures as tooltips
    Svg,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let fields = [
        ("by", args.nodes.is_some().then_some("node")),
        ("zone", args.zone.as_deref()),
        ("nodes", args.nodes.as_deref()),
    ];
    let Some(report) = args.source.get::<MatrixReport>("matrix", &fields).await? else {
        return Ok(ExitCode::from(EXIT_NO));
    };
    let map = |report: &_| heat::map(report, heat::Canvas::of_stdout());
    match args.output {
        MatrixOutput::Table => output::print(Output::Table, &report, map)?,
        MatrixOutput::Json => output::print(Output::Json, &report, map)?,
        MatrixOutput::Yaml => output::print(Output::Yaml, &report, map)?,
        MatrixOutput::Svg => output::write(&tautline_console::latency_picture(&report))?,
    }
    if report.is_empty() {
        note!(
            "no measurements and no tables that count for all namespaces; run `tautline agent \
             latency` on the nodes, or configure a table in a trusted namespace (with -f: \
             --provider-namespaces)"
        );
        return Ok(ExitCode::from(EXIT_NO));
    }
    Ok(ExitCode::SUCCESS)
}
