//! Implements `tautline agent gpu`, which gives containers their GPU slices on a node and reports
//! their use.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use tautline_gpu_agent::{
    App, Config, Delivery,
    limits::{Mode, smi::Timeslice},
};

use super::ReportingArgs;
use crate::{
    cluster::ClusterArgs, duration_arg::parse_duration, provider_args::client_files,
    run_until_shutdown,
};

#[derive(clap::Args)]
#[command(
    after_help = "It runs on each node with GPUs, privileged and with the host's process IDs. On a node without\nNVIDIA's driver it waits for one.\n\nLimits of a container's use (the node's label tautline.io/gpu-limits overrides --limits):\n  none       none\n  timeslice  time by the driver's time slices, memory not at all\n  mps        memory and processors by NVIDIA's Multi-Process Service (tautline agent mps)\n  hami-core  memory and processors by HAMi's library\n  mig        memory and processors by the card: a slice is an instance; cards with MIG off are\n             given whole only\n\nExample, on a node:\n  NODE_NAME=gpu-1 tautline agent gpu --provider https://tautline-gpu-slice.tautline-system:5309 \\\n    --provider-ca ca.crt --token-file /var/run/secrets/tautline/token --limits mps"
)]
pub(crate) struct GpuArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    reporting: ReportingArgs,
    /// How containers get GPUs: device-plugin, or dra from Kubernetes 1.36 on
    #[arg(long, value_name = "WAY", default_value_t)]
    delivery: Delivery,
    /// Evict the pods of a GPU that has had a fault for so long, with --delivery dra [default: never]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    evict_after: Option<Duration>,
    /// How containers are limited to their slices: none, timeslice, mps, hami-core or mig
    #[arg(long, value_name = "MODE", default_value_t)]
    limits: Mode,
    /// Length of time slices with --limits timeslice: default, short, medium or long
    #[arg(long, value_name = "LENGTH")]
    timeslice: Option<Timeslice>,
    /// HAMi-core's libvgpu.so on the host, for --limits hami-core
    #[arg(long, value_name = "FILE")]
    hami_core: Option<PathBuf>,
    /// Root of the host's files
    #[arg(long, value_name = "DIR", default_value = "/")]
    driver_root: PathBuf,
    /// The kubelet's directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: PathBuf,
    /// NVML's library [default: that of the driver below --driver-root]
    #[arg(long, value_name = "FILE")]
    nvml_library: Option<PathBuf>,
}

pub(super) async fn run(args: GpuArgs) -> Result<()> {
    let cluster = args.cluster.with_retries().await?;
    let app = App::build(cluster, config(args)?).await?;
    tracing::info!(admin = %app.admin_address()?, "GPU agent started");
    run_until_shutdown("GPU agent", app.readiness(), |tasks| {
        app.spawn(tasks);
        Ok(())
    })
    .await
}

fn config(args: GpuArgs) -> Result<Config> {
    if args.limits == Mode::HamiCore && args.hami_core.is_none() {
        bail!("--limits hami-core needs --hami-core with the path of libvgpu.so on the host");
    }
    Ok(Config {
        token: args.reporting.token(),
        node: args.reporting.node,
        driver_root: args.driver_root,
        kubelet_dir: args.kubelet_dir,
        delivery: args.delivery,
        evict_after: args.evict_after,
        limits: args.limits,
        timeslice: args.timeslice,
        hami_core: args.hami_core,
        library: args.nvml_library,
        admin: args.reporting.admin,
        providers: args.reporting.providers,
        tls: client_files(args.reporting.tls),
    })
}
