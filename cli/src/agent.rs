//! Implements `tautline agent`, which runs an agent on a node: for GPUs, for latency or for
//! NVIDIA's MPS.

mod gpu;
mod latency;
mod mps;

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Result;
use clap::{Subcommand, builder::NonEmptyStringValueParser};
use tautline_agent_link::{Provider, Token};

use crate::provider_args::ClientTlsArgs;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Give containers the GPU slices that the gpu-slice rule provider assigned, and report their use
    Gpu(Box<gpu::GpuArgs>),
    /// Measure the network from this node, for the latency rule provider
    Latency(Box<latency::LatencyArgs>),
    /// Run NVIDIA's MPS daemons on this node, for slices with limits
    Mps(mps::MpsArgs),
    /// Replace this process by a program of another root directory
    #[command(hide = true)]
    MpsExec(mps::MpsExecArgs),
}

/// The arguments of an agent that reports from its node to providers.
#[derive(clap::Args)]
struct ReportingArgs {
    /// A provider that gets the reports; each address of its name gets a stream. Repeat it for
    /// several
    #[arg(long = "provider", value_name = "URL", required = true)]
    providers: Vec<Provider>,
    #[command(flatten)]
    tls: ClientTlsArgs,
    /// Show this token to providers; read again when it changes
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Show it over plain http too: only where nobody else reads the way there
    #[arg(long, requires = "token_file")]
    token_over_http: bool,
    /// This node's name
    #[arg(long, value_name = "NAME", env = "NODE_NAME", value_parser = NonEmptyStringValueParser::new())]
    node: String,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, default_value = "[::]:9090")]
    admin: SocketAddr,
}

impl ReportingArgs {
    fn token(&self) -> Option<Token> {
        let over_http = self.token_over_http;
        let file = self.token_file.clone()?;
        Some(Token { file, over_http })
    }
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Gpu(args) => gpu::run(*args).await,
        Command::Latency(args) => latency::run(*args).await,
        Command::Mps(args) => mps::run(args).await,
        Command::MpsExec(args) => Err(mps::exec(&args)),
    }
}
