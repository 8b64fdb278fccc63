use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Result, bail};
use tautline_agent_link::{Provider, Token};
use tautline_gpu_agent::{
    App, Config,
    limits::{Mode, smi::Timeslice},
};
use tautline_runtime::tasks::{self, Tasks};

use crate::{
    cluster::ClusterArgs,
    provider_args::{ClientTlsArgs, client_files},
};

#[derive(clap::Args)]
#[command(
    after_help = "It runs on each node with GPUs, privileged and with the host's process IDs. On a node without\nNVIDIA's driver it waits for one.\n\nLimits of a container's use (the node's label tautline.io/gpu-limits overrides --limits):\n  none       none\n  timeslice  time by the driver's time slices, memory not at all\n  mps        memory and processors by NVIDIA's Multi-Process Service (tautline agent mps)\n  hami-core  memory and processors by HAMi's library\n  mig        memory and processors by the card: a slice is an instance; cards with MIG off are\n             given whole only\n\nExample, on a node:\n  NODE_NAME=gpu-1 tautline agent gpu --provider https://tautline-gpu-slice.tautline-system:5309 \\\n    --provider-ca ca.crt --token-file /var/run/secrets/tautline/token --limits mps"
)]
pub(crate) struct GpuArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// A provider that hears what is used; each address of its name gets a stream. Repeat it for
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
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: String,
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
    /// Where CDI specs are, and the agent writes its own
    #[arg(long, value_name = "DIR", default_value = "/var/run/cdi")]
    cdi_dir: PathBuf,
    /// The program that reads NVML [default: tautline-nvml beside this one]
    #[arg(long, value_name = "FILE")]
    nvml_reader: Option<PathBuf>,
    /// NVML's library [default: that of the driver below --driver-root]
    #[arg(long, value_name = "FILE")]
    nvml_library: Option<PathBuf>,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, default_value = "[::]:9090")]
    admin: SocketAddr,
}

pub(super) async fn run(args: GpuArgs) -> Result<()> {
    let cluster = args.cluster.with_retries().await?;
    let app = App::build(cluster, config(args)?).await?;
    tracing::info!(admin = %app.admin_address()?, "GPU agent started");
    let readiness = app.readiness();
    let mut tasks = Tasks::default();
    app.spawn(&mut tasks);
    tasks
        .run(tasks::ready_then_shutdown_signal(readiness, "GPU agent"))
        .await
}

fn config(args: GpuArgs) -> Result<Config> {
    if args.node.is_empty() {
        bail!("--node is empty; write the node's name, or set NODE_NAME");
    }
    if args.limits == Mode::HamiCore && args.hami_core.is_none() {
        bail!("--limits hami-core needs --hami-core with the path of libvgpu.so on the host");
    }
    let over_http = args.token_over_http;
    Ok(Config {
        node: args.node,
        driver_root: args.driver_root,
        kubelet_dir: args.kubelet_dir,
        cdi_dir: args.cdi_dir,
        limits: args.limits,
        timeslice: args.timeslice,
        hami_core: args.hami_core,
        reader: args.nvml_reader,
        library: args.nvml_library,
        admin: args.admin,
        providers: args.providers,
        tls: client_files(args.tls),
        token: args.token_file.map(|file| Token { file, over_http }),
    })
}
