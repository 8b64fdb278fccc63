//! The commands of `tautline`. Each validates its arguments into a configuration and runs the
//! code of another crate.

#![warn(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod output;

mod admission;
#[cfg(target_os = "linux")]
mod agent;
mod api_timeout;
mod bindings;
mod check;
mod choice_arg;
mod cluster;
mod cluster_fault;
mod completion;
mod conformance;
mod controller;
mod crds;
mod demo;
mod describe;
mod dispatch;
mod doctor;
mod duration_arg;
mod events;
mod explain;
mod export;
mod extender;
mod fetch;
mod get;
mod gpu;
mod http;
mod identity;
mod kubeconfig;
mod latency;
mod local;
mod manifests;
mod plan;
mod pod_name;
mod policy_test;
mod program_name;
mod provider;
mod provider_args;
#[cfg(target_os = "linux")]
mod reference;
mod render;
mod replica_args;
mod replicas;
mod scope;
mod simulate;
mod table;
mod tables;
mod trace_args;
mod ui;
mod version;
mod watch;

use std::process::ExitCode;

use anyhow::Context;
use choice_arg::{Choice, one_of};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tautline_api::display::age;
use tautline_runtime::{
    admin::Readiness,
    limits,
    tasks::{self, Tasks},
    telemetry::{self, LogFormat},
};
use tokio::runtime::{Builder, Runtime};

/// The exit code of a negative result: a pod has no node, or an object does not exist.
const EXIT_NO: u8 = 1;
/// The exit code of an error in the input, the environment or the command line.
const EXIT_ERROR: u8 = 2;

#[derive(Parser)]
#[command(
    name = "tautline",
    version,
    about = "Constraint policy for Kubernetes: places pods where their constraints are met",
    after_help = "Example, with this binary alone:\n  tautline demo\n  \
                  tautline plan -f examples/edge-inference\n\n\
                  Example, of a live cluster:\n  tautline get bindings -A\n\n\
                  Exit codes: 0 success, 1 negative result (a pod has no node, \
                  an object does not exist), 2 error.",
    propagate_version = true
)]
struct Cli {
    /// Log filter: a level (info), or target=level
    #[arg(help_heading = "Logging", long, global = true, env = "TAUTLINE_LOG")]
    log: Option<String>,
    /// Format of log lines
    #[arg(help_heading = "Logging", long, global = true, default_value = "text", value_parser = one_of(&LOG_FORMATS))]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

const LOG_FORMATS: [Choice<LogFormat>; 2] =
    [("text", "", LogFormat::Text), ("json", "", LogFormat::Json)];

#[derive(Subcommand)]
enum Command {
    /// Show a whole decision on a bundled example: an edge inference service
    Demo(demo::Args),
    /// Show where pods would go, and why: from manifests or for a live cluster
    Plan(plan::Args),
    /// Test policies in CI: cases in YAML, each with a pod and the node, reason or score expected
    Test(policy_test::Args),
    /// List policies, offers or bindings of a cluster; the worst bindings first
    #[command(subcommand)]
    Get(get::Command),
    /// Show a binding or an offer in detail
    #[command(subcommand)]
    Describe(describe::Command),
    /// Follow the compliance of bindings as it changes
    Watch(watch::Args),
    /// Show GPUs: the pods on each card, what is left, and which requests it fits
    #[command(subcommand)]
    Gpu(gpu::Command),
    /// Show the network as the latency provider sees it: zones, nodes, or one pair
    #[command(subcommand)]
    Latency(latency::Command),
    /// Open a web console of a cluster or of manifests, read-only, on this machine
    Ui(ui::Args),
    /// Check an installation: what is wrong, and the fix
    Doctor(doctor::Args),
    /// Show the versions of this program, the API server and Tautline's servers
    Version(version::Args),
    /// Explain why a pod is on its node, or pending, from a running extender's records
    Explain(explain::Args),
    /// Write what the limits of an offer mean now, for other programs
    #[command(subcommand)]
    Export(export::Command),
    /// Compare placement policies on a trace, or show what else fits on your nodes
    Simulate(simulate::Args),
    /// Show what admission would do to manifests, and why; no cluster is needed
    #[command(subcommand)]
    Check(check::Command),
    /// Judge a rule provider by the contract: what is wrong, and the fix
    Conformance(Box<conformance::Args>),
    /// Print the custom resource definitions
    Crds(crds::Args),
    /// Print a shell's completion script
    Completion(completion::Args),
    /// Write manual pages
    Man(completion::ManArgs),
    /// Write the reference of commands, kinds and metrics as Markdown
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Reference(reference::Args),
    /// Run the scheduler extender
    Extender(extender::Args),
    /// Run the controller: bindings, their evaluation, violations
    Controller(controller::Args),
    /// Run the dispatcher: nominates worker clusters for the workloads of Kueue's MultiKueue
    Dispatch(dispatch::Args),
    /// Run the admission webhooks: own resources, GPU slices, mutation policies, models
    Admission(admission::Args),
    /// Run a rule provider
    #[command(subcommand)]
    Provider(provider::Command),
    /// Run a node's agent
    #[cfg(target_os = "linux")]
    #[command(subcommand)]
    Agent(agent::Command),
}

impl Cli {
    fn log_filter(&self) -> &str {
        match (&self.log, &self.command) {
            (Some(filter), _) => filter,
            // These commands print every error themselves, and a log line would break the table of
            // `watch`.
            (
                None,
                Command::Demo(_)
                | Command::Plan(_)
                | Command::Explain(_)
                | Command::Export(_)
                | Command::Get(_)
                | Command::Describe(_)
                | Command::Doctor(_)
                | Command::Version(_)
                | Command::Watch(_)
                | Command::Gpu(_)
                | Command::Latency(_)
                | Command::Simulate(_)
                | Command::Ui(_)
                | Command::Check(_)
                | Command::Conformance(_)
                | Command::Test(_),
            ) => "off",
            (None, _) => "warn,tautline=info",
        }
    }
}

impl Command {
    /// Makes the runtime, with one thread for servers with cheap answers: kube-scheduler sends one
    /// request at a time, and threads that wake each other cost a third of an answer's CPU time.
    /// The other commands use several threads: the provider of latency also serves thousands of
    /// agents, and its agent measures time while it reports.
    fn runtime(&self) -> std::io::Result<Runtime> {
        let is_cheap = match self {
            Command::Extender(_) => true,
            Command::Provider(provider) => !matches!(provider, provider::Command::Latency(_)),
            #[cfg(target_os = "linux")]
            Command::Agent(agent) => !matches!(agent, agent::Command::Latency(_)),
            _ => false,
        };
        let mut builder = if is_cheap {
            Builder::new_current_thread()
        } else {
            Builder::new_multi_thread()
        };
        builder.enable_all().build()
    }
}

fn parse() -> Cli {
    let unnamed = program_name::without_empty_env(Cli::command());
    let mut command = program_name::apply_to(unnamed, program_name::current());
    let matches = command.get_matches_mut();
    Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.format(&mut command).exit())
}

/// Returns the exit code of a positive or a negative result.
fn exit_code(is_positive: bool) -> ExitCode {
    if is_positive {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_NO)
    }
}

/// Runs a server until SIGTERM or SIGINT, with the tasks that `spawn` starts; logs when it is ready.
async fn run_until_shutdown(
    name: &'static str,
    readiness: Readiness,
    spawn: impl FnOnce(&mut Tasks) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut tasks = Tasks::default();
    spawn(&mut tasks)?;
    let shutdown = tasks::ready_then_shutdown_signal(readiness, name);
    tasks.run(shutdown).await
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    execute(parse()).unwrap_or_else(|error| {
        // Answers of servers are quoted in errors.
        for (i, line) in cluster_fault::text(&error).lines().enumerate() {
            let label = if i == 0 { "error: " } else { "" };
            note!("{label}{}", tautline_core::text::sanitize(line, usize::MAX));
        }
        ExitCode::from(EXIT_ERROR)
    })
}

fn execute(cli: Cli) -> anyhow::Result<ExitCode> {
    telemetry::init(cli.log_format, cli.log_filter()).map_err(anyhow::Error::msg)?;
    limits::raise_open_files();
    // One TLS implementation for every client and server of the process.
    _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = cli.command.runtime().context("no async runtime")?;
    let done = |result: anyhow::Result<()>| result.map(|()| ExitCode::SUCCESS);
    match cli.command {
        Command::Demo(args) => done(runtime.block_on(demo::run(args))),
        Command::Plan(args) => runtime.block_on(plan::run(args)),
        Command::Test(args) => runtime.block_on(policy_test::run(args)),
        Command::Get(command) => runtime.block_on(get::run(command)),
        Command::Describe(command) => runtime.block_on(describe::run(command)),
        Command::Watch(args) => runtime.block_on(watch::run(args)),
        Command::Gpu(command) => runtime.block_on(gpu::run(command)),
        Command::Latency(command) => runtime.block_on(latency::run(command)),
        Command::Ui(args) => runtime.block_on(ui::run(args)),
        Command::Doctor(args) => runtime.block_on(doctor::run(args)),
        Command::Version(args) => done(runtime.block_on(version::run(args))),
        Command::Explain(args) => runtime.block_on(explain::run(args)),
        Command::Export(command) => runtime.block_on(export::run(command)),
        Command::Simulate(args) => runtime.block_on(simulate::run(args)),
        Command::Check(command) => check::run(command),
        Command::Conformance(args) => runtime.block_on(conformance::run(*args)),
        Command::Crds(args) => done(crds::run(&args)),
        Command::Completion(args) => done(completion::run(&args)),
        Command::Man(args) => done(completion::man(&args)),
        #[cfg(target_os = "linux")]
        Command::Reference(args) => done(reference::run(&args)),
        Command::Extender(args) => done(runtime.block_on(extender::run(args))),
        Command::Controller(args) => done(runtime.block_on(controller::run(args))),
        Command::Dispatch(args) => done(runtime.block_on(dispatch::run(args))),
        Command::Admission(args) => done(runtime.block_on(admission::run(args))),
        Command::Provider(command) => done(runtime.block_on(provider::run(command))),
        #[cfg(target_os = "linux")]
        Command::Agent(command) => done(runtime.block_on(agent::run(command))),
    }
}

#[cfg(test)]
mod tests {
    pub(crate) mod fixtures;
}
