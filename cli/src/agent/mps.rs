//! Implements `tautline agent mps`, which runs NVIDIA's MPS daemons on a node, one for each GPU.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result};
use tautline_gpu_agent::{
    ReaderCommand,
    limits::{
        self, DriverRoot, exec_in_root,
        mps::{self, Config, Timing},
    },
};

#[derive(clap::Args)]
#[command(
    after_help = "One daemon for each card. Containers keep their contexts while `tautline agent gpu` restarts, but\nnot while this command does: update it when a node has no GPU work.\n\nExample, on a node:\n  tautline agent mps --driver-root /host"
)]
pub(crate) struct MpsArgs {
    /// Root of the host's files
    #[arg(long, value_name = "DIR", default_value = "/")]
    driver_root: PathBuf,
    /// Only MPS may use the cards, so that no process gets around it; then a container with a whole
    /// card runs one process there
    #[arg(long)]
    exclusive: bool,
    /// Thousandths of a card that a client gets at most, whatever its own limits say
    #[arg(long, value_name = "MILLI", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=1000))]
    largest_share: u16,
    /// NVML's library [default: that of the driver below --driver-root]
    #[arg(long, value_name = "FILE")]
    nvml_library: Option<PathBuf>,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, default_value = "[::]:9090")]
    admin: SocketAddr,
}

#[derive(clap::Args)]
pub(crate) struct MpsExecArgs {
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

pub(super) async fn run(args: MpsArgs) -> Result<()> {
    let this = "the path of this executable";
    let library = args.nvml_library.as_deref();
    mps::run(Config {
        driver: DriverRoot::new(&args.driver_root).context(this)?,
        run_dir: limits::RUN_DIR.into(),
        reader: ReaderCommand::new(&args.driver_root, library).context(this)?,
        exclusive: args.exclusive,
        largest_share: args.largest_share,
        admin: args.admin,
        timing: Timing::default(),
    })
    .await
}

/// Replaces this process by the program; returns only on failure.
pub(super) fn exec(args: &MpsExecArgs) -> anyhow::Error {
    let Some((program, arguments)) = args.program.split_first() else {
        return anyhow::anyhow!("no program");
    };
    let error = exec_in_root(&args.root, program.as_ref(), arguments);
    anyhow::Error::new(error).context(format!(
        "cannot run {} in {}",
        program.display(),
        args.root.display()
    ))
}
