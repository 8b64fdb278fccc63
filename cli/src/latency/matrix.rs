use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use tautline_latency::report::MatrixReport;

use super::{heat, source::SourceArgs, svg::svg};
use crate::{
    EXIT_NO,
    output::{self, Output},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Between zones, or nodes (at most 200) [default: zone; node with --zone or --nodes]
    #[arg(long, value_parser = ["zone", "node"])]
    by: Option<String>,
    /// Only the nodes of this zone
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Only these nodes
    #[arg(long, value_name = "A,B,C")]
    nodes: Option<String>,
    /// Write an SVG file instead (-: standard output)
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let fields = [
        ("by", args.by.as_deref()),
        ("zone", args.zone.as_deref()),
        ("nodes", args.nodes.as_deref()),
    ];
    let Some(report) = args.source.get::<MatrixReport>("matrix", &fields).await? else {
        return Ok(ExitCode::from(EXIT_NO));
    };
    match &args.svg {
        Some(path) => write(path, &svg(&report))?,
        None => output::print(args.output, &report, |report| {
            heat::map(report, heat::Canvas::of_stdout())
        })?,
    }
    if report.is_empty() {
        note!(
            "no measurements and no tables; run `tautline agent latency` on the nodes, or \
             configure a table"
        );
        return Ok(ExitCode::from(EXIT_NO));
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, svg: &str) -> Result<()> {
    if path == Path::new("-") {
        return output::write(svg);
    }
    std::fs::File::create(path)
        .and_then(|mut file| file.write_all(svg.as_bytes()))
        .with_context(|| format!("{} cannot be written", path.display()))?;
    note!("wrote {}", path.display());
    Ok(())
}
