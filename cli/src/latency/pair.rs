mod text;

use std::process::ExitCode;

use anyhow::Result;
use tautline_latency::report::{Basis, PairReport};

use super::source::SourceArgs;
use crate::{
    EXIT_NO,
    output::{self, Output},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The first node
    from: String,
    /// The second node
    to: String,
    #[command(flatten)]
    source: SourceArgs,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let fields = [
        ("from", Some(args.from.as_str())),
        ("to", Some(args.to.as_str())),
    ];
    let Some(report) = args.source.get::<PairReport>("pair", &fields).await? else {
        return Ok(ExitCode::from(EXIT_NO));
    };
    output::print(args.output, &report, text::text)?;
    Ok(match report.effective.basis {
        Basis::Nothing => ExitCode::from(EXIT_NO),
        _ => ExitCode::SUCCESS,
    })
}
