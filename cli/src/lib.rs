//! The commands of `tautline`. Each takes its arguments, validates them into a
//! configuration, and runs; what they do lives in the other crates.

mod cluster;
mod controller;
mod crds;
mod demo;
mod explain;
mod extender;
mod http;
pub mod local;
mod output;
mod plan;
mod provider;
mod provider_args;
mod render;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tautline_runtime::telemetry::{self, LogFormat};

/// The input was understood and the answer is no (a pod has no node).
const NO: u8 = 1;
/// The input, the environment or the command line is at fault.
const TROUBLE: u8 = 2;

#[derive(Parser)]
#[command(
    name = "tautline",
    version,
    about = "Constraint policy for Kubernetes: pods land where a limit really holds",
    after_help = "Example, with nothing but this binary:\n  tautline demo\n  \
                  tautline plan -f examples/edge-inference\n\n\
                  Exit codes: 0 done, 1 the answer is no (a pod has no node), 2 trouble.",
    propagate_version = true
)]
struct Cli {
    /// What is logged: a level (info), or target=level
    #[arg(
        long,
        global = true,
        env = "TAUTLINE_LOG",
        default_value = "warn,tautline=info",
        hide_default_value = true
    )]
    log: String,
    /// How log lines look
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Show a whole decision on a bundled example: an edge inference service
    Demo(demo::Args),
    /// Say where pods would go, and why: for manifests, or for a live cluster
    Plan(plan::Args),
    /// Ask a running extender why a pod is where it is, or nowhere
    Explain(explain::Args),
    /// Print the custom resource definitions
    Crds(crds::Args),
    /// Run the scheduler extender
    Extender(extender::Args),
    /// Run the controller: bindings, their evaluation, violations
    Controller(controller::Args),
    /// Run a rule provider
    #[command(subcommand)]
    Provider(provider::Command),
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let format = match cli.log_format {
        Format::Text => LogFormat::Text,
        Format::Json => LogFormat::Json,
    };
    if let Err(error) = telemetry::init(format, &cli.log) {
        eprintln!("error: {error}");
        return ExitCode::from(TROUBLE);
    }
    // One TLS implementation for every client and server of the process.
    _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no async runtime: {error}");
            return ExitCode::from(TROUBLE);
        }
    };
    let done = |result: anyhow::Result<()>| result.map(|()| ExitCode::SUCCESS);
    let result = match cli.command {
        Command::Demo(args) => done(runtime.block_on(demo::run(args))),
        Command::Plan(args) => runtime.block_on(plan::run(args)),
        Command::Explain(args) => runtime.block_on(explain::run(args)),
        Command::Crds(args) => done(crds::run(&args)),
        Command::Extender(args) => done(runtime.block_on(extender::run(args))),
        Command::Controller(args) => done(runtime.block_on(controller::run(args))),
        Command::Provider(command) => done(runtime.block_on(provider::run(command))),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(TROUBLE)
    })
}
