//! The commands of `tautline`. Each takes its arguments, validates them into a
//! configuration, and runs; what they do lives in the other crates.

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod output;

mod admission;
mod age;
mod agent;
mod api_timeout;
mod bindings;
mod check;
mod cluster;
mod controller;
mod crds;
mod demo;
mod describe;
mod events;
mod explain;
mod extender;
mod fetch;
#[cfg(test)]
mod fixtures;
mod get;
mod gpu;
mod http;
mod identity;
mod latency;
pub mod local;
mod manifests;
mod plan;
mod pod_name;
mod program_name;
mod provider;
mod provider_args;
mod render;
mod replica_args;
mod scope;
mod simulate;
mod table;
mod tables;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tautline_runtime::{
    limits,
    telemetry::{self, LogFormat},
};
use tokio::runtime::{Builder, Runtime};

/// The input was understood and the answer is no (a pod has no node, an object
/// is not there).
const EXIT_NO: u8 = 1;
/// The input, the environment or the command line is at fault.
const EXIT_ERROR: u8 = 2;

#[derive(Parser)]
#[command(
    name = "tautline",
    version,
    about = "Constraint policy for Kubernetes: pods land where a limit really holds",
    after_help = "Example, with nothing but this binary:\n  tautline demo\n  \
                  tautline plan -f examples/edge-inference\n\n\
                  Example, of a live cluster:\n  tautline get bindings -A\n\n\
                  Exit codes: 0 done, 1 the answer is no (a pod has no node, \
                  an object is not there), 2 trouble.",
    propagate_version = true
)]
struct Cli {
    /// What is logged: a level (info), or target=level
    #[arg(long, global = true, env = "TAUTLINE_LOG")]
    log: Option<String>,
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
    /// List policies, offers or bindings of a cluster; bindings the worst first
    #[command(subcommand)]
    Get(get::Command),
    /// Say all there is to know of a binding or an offer
    #[command(subcommand)]
    Describe(describe::Command),
    /// Follow the compliance of bindings as it changes
    Watch(watch::Args),
    /// Look at GPUs: who holds which card, what is left, and of what use it is
    #[command(subcommand)]
    Gpu(gpu::Command),
    /// Look at the network as the latency provider sees it: between zones, nodes, of a pair
    #[command(subcommand)]
    Latency(latency::Command),
    /// Ask a running extender why a pod is where it is, or nowhere
    Explain(explain::Args),
    /// Measure placement policies on a trace, or what more would fit on your nodes
    Simulate(simulate::Args),
    /// Say what admission would make of manifests, and why; no cluster is needed
    #[command(subcommand)]
    Check(check::Command),
    /// Print the custom resource definitions
    Crds(crds::Args),
    /// Run the scheduler extender
    Extender(extender::Args),
    /// Run the controller: bindings, their evaluation, violations
    Controller(controller::Args),
    /// Run the admission webhooks: own resources, GPU slices, mutation policies, models
    Admission(admission::Args),
    /// Run a rule provider
    #[command(subcommand)]
    Provider(provider::Command),
    /// Run a node's agent
    #[command(subcommand)]
    Agent(agent::Command),
}

impl Cli {
    fn log_filter(&self) -> &str {
        match (&self.log, &self.command) {
            (Some(filter), _) => filter,
            // They tell of every error themselves, and a log line would stand in
            // the middle of what `watch` draws.
            (
                None,
                Command::Get(_)
                | Command::Describe(_)
                | Command::Watch(_)
                | Command::Gpu(_)
                | Command::Latency(_)
                | Command::Simulate(_)
                | Command::Check(_),
            ) => "off",
            (None, _) => "warn,tautline=info",
        }
    }
}

impl Command {
    /// One thread for servers whose answers take little of a core: kube-scheduler asks
    /// one question at a time, and threads that wake each other are a third of the CPU
    /// of an answer. The others have work for several.
    fn runtime(&self) -> std::io::Result<Runtime> {
        let mut builder = match self {
            Command::Extender(_) => Builder::new_current_thread(),
            Command::Provider(provider) if provider.answers_alone() => {
                Builder::new_current_thread()
            }
            _ => Builder::new_multi_thread(),
        };
        builder.enable_all().build()
    }
}

/// The command line, under the name that this process was called by.
fn parse() -> Cli {
    let command = program_name::without_empty_env(Cli::command());
    let mut command = program_name::apply_to(command, program_name::current());
    let matches = command.get_matches_mut();
    Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.format(&mut command).exit())
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let cli = parse();
    let format = match cli.log_format {
        Format::Text => LogFormat::Text,
        Format::Json => LogFormat::Json,
    };
    if let Err(error) = telemetry::init(format, cli.log_filter()) {
        note!("error: {error}");
        return ExitCode::from(EXIT_ERROR);
    }
    limits::raise_open_files();
    // One TLS implementation for every client and server of the process.
    _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match cli.command.runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            note!("error: no async runtime: {error}");
            return ExitCode::from(EXIT_ERROR);
        }
    };
    let done = |result: anyhow::Result<()>| result.map(|()| ExitCode::SUCCESS);
    let result = match cli.command {
        Command::Demo(args) => done(runtime.block_on(demo::run(args))),
        Command::Plan(args) => runtime.block_on(plan::run(args)),
        Command::Get(command) => runtime.block_on(get::run(command)),
        Command::Describe(command) => runtime.block_on(describe::run(command)),
        Command::Watch(args) => runtime.block_on(watch::run(args)),
        Command::Gpu(command) => runtime.block_on(gpu::run(command)),
        Command::Latency(command) => runtime.block_on(latency::run(command)),
        Command::Explain(args) => runtime.block_on(explain::run(args)),
        Command::Simulate(args) => runtime.block_on(simulate::run(args)),
        Command::Check(command) => check::run(command),
        Command::Crds(args) => done(crds::run(&args)),
        Command::Extender(args) => done(runtime.block_on(extender::run(args))),
        Command::Controller(args) => done(runtime.block_on(controller::run(args))),
        Command::Admission(args) => done(runtime.block_on(admission::run(args))),
        Command::Provider(command) => done(runtime.block_on(provider::run(command))),
        Command::Agent(command) => done(runtime.block_on(agent::run(command))),
    };
    result.unwrap_or_else(|error| {
        // Answers of servers are quoted in errors.
        for (i, line) in format!("{error:#}").lines().enumerate() {
            let label = if i == 0 { "error: " } else { "" };
            note!("{label}{}", tautline_core::text::clean(line, usize::MAX));
        }
        ExitCode::from(EXIT_ERROR)
    })
}
