mod text;

use std::process::ExitCode;

use anyhow::Result;
use tautline_gpu_slice::{Config, Inspection, report::Fragmentation};

use super::{source::SourceArgs, uses::UseArgs};
use crate::output::{self, Output};

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
    let source = args.source.read(None).await?;
    let inspection = Inspection::new(source.snapshot, Config::default());
    let uses = args.uses.read(&args.source, &inspection).await;
    let report = Fragmentation::new(&inspection, &uses);
    if report.nodes_with_cards == 0 {
        let nodes = inspection.snapshot().node_count();
        note!("no node has cards that are known one by one, of {nodes}");
    }
    output::print(args.output, &report, text::text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests;
