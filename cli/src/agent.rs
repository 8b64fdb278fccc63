mod gpu;
mod latency;
mod mps;

use anyhow::Result;
use clap::Subcommand;

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

impl Command {
    /// Returns whether one thread is enough. `latency` needs several, since it measures time while
    /// it reports.
    pub(crate) fn answers_alone(&self) -> bool {
        !matches!(self, Command::Latency(_))
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
