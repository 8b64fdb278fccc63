//! Implements `tautline doctor`, which finds what is wrong with an installation, and names the fix.

mod certificate;
mod checks;
mod cluster;
mod finding;
mod gather;
mod rights;
pub(crate) mod workload;

use std::process::ExitCode;

use anyhow::Result;

pub(crate) use self::checks::version_of;
use self::finding::Report;
use crate::{
    EXIT_ERROR,
    cluster::ClusterArgs,
    exit_code,
    output::{self, Output},
    scope,
};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tautline doctor\n  tautline doctor --all\n  \
                  tautline doctor -n limits -o json\n\n\
                  Exit codes: 0 no problem (warnings do not count), 1 a problem, 2 an error, \
                  or nothing could be checked."
)]
pub(crate) struct Args {
    #[command(flatten)]
    own: scope::OwnNamespace,
    /// Show the checks that passed too
    #[arg(short = 'v', long)]
    all: bool,
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let client = args.cluster.client().await?;
    let (cluster, version) = gather::gather(client, &args.own.namespace).await?;
    let findings = checks::run(&cluster);
    let report = Report::new(&cluster.namespace, &version, &cluster.version, findings);
    output::print(args.output, &report, |report| report.text(args.all))?;
    Ok(match (report.problems, report.passed) {
        (0, 0) => ExitCode::from(EXIT_ERROR),
        (problems, _) => exit_code(problems == 0),
    })
}
