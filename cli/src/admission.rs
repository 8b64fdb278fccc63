//! Implements `tautline admission`, which runs the admission webhooks or prints their
//! configurations.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tautline_admission::{
    App, Config,
    config::Certificate,
    webhooks::{self, Address},
};
use tautline_certificates::Ca;
use tautline_gpu_sharing::Names;
use tautline_runtime::tls::ServerFiles;

use crate::{
    cluster::ClusterArgs, duration_arg::parse_duration, extender::limits, output,
    provider_args::OwnArgs, run_until_shutdown,
};

/// The Service of the admission server.
const SERVICE: &str = "tautline-admission";

/// The longest time that a new CA is trusted before its certificate is served.
const MAX_OVERLAP: Duration = Duration::from_secs(300);

#[derive(clap::Args)]
#[command(
    after_help = "deploy/webhooks/ has the webhook configurations: apply the files that you want.\n\n\
    Examples:\n  tautline admission\n  \
    tautline admission --render | kubectl apply --server-side -f -\n  \
    tautline admission --tls-cert tls.crt --tls-key tls.key   # cert-manager renews, and injects its CA"
)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Address for the API server
    #[arg(long, default_value = "[::]:8443")]
    listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, default_value = "[::]:9090")]
    admin: SocketAddr,
    #[command(flatten)]
    own: OwnArgs,
    #[command(flatten)]
    certificate: CertificateArgs,
    /// Time for one review; keep it below the webhooks' timeoutSeconds
    #[arg(long, default_value = "8s", value_parser = parse_duration)]
    deadline: Duration,
    /// Maximum number of concurrent reviews; more wait
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
    /// Maximum size of a review, in MiB
    #[arg(long, default_value_t = 8, value_name = "MIB")]
    max_body: usize,
    /// Memory of all concurrent reviews, in MiB [default: a quarter of the memory limit, at
    /// least twice --max-body]
    #[arg(long, value_name = "MIB")]
    request_memory: Option<usize>,
    /// Add the resource constraint.ciena.com/governed to pods that an offer selects (deploy/scheduler/gated.yaml)
    #[arg(long)]
    governed: bool,
    /// Give pods that an offer selects this schedulerName, unless they name a scheduler: that of a
    /// second kube-scheduler, which calls the extender
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    scheduler_name: Option<String>,
    /// Namespace of the ConfigMap cast-slice-policy [default: --namespace]
    #[arg(long, value_name = "NS")]
    policy_namespace: Option<String>,
    #[command(flatten)]
    gpus: GpuNameArgs,
    /// Let mutation policies use the authorizer
    #[arg(long)]
    authorizer: bool,
    #[command(flatten)]
    render: RenderArgs,
}

/// The names of the resources of cards.
#[derive(clap::Args)]
pub(crate) struct GpuNameArgs {
    /// The resource of whole cards
    #[arg(long, value_name = "DOMAIN/NAME", default_value = "nvidia.com/gpu")]
    gpu_resource: String,
    /// The resource of shared cards that replaces it
    #[arg(
        long,
        value_name = "DOMAIN/NAME",
        default_value = "nvidia.com/gpu-shared"
    )]
    gpu_shared_resource: String,
    /// Shares of one card, where the shared resource is tautline.io/gpu-milli: a ratio of 1 is
    /// 1000/N thousandths of a card
    #[arg(long, value_name = "N")]
    gpu_shares_per_card: Option<u32>,
}

impl GpuNameArgs {
    pub(crate) fn names(&self) -> Result<Names> {
        Ok(Names::new(
            &self.gpu_resource,
            &self.gpu_shared_resource,
            self.gpu_shares_per_card,
        )?)
    }
}

/// The server's certificate: from files, or generated.
#[derive(clap::Args)]
struct CertificateArgs {
    /// Serve with this certificate chain (PEM) instead of a generated one; reloads when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// More DNS names and IP addresses for the certificate
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    tls_name: Vec<String>,
    /// Lifetime of a generated certificate; it is replaced after two thirds of it
    #[arg(long, default_value = "2160h", value_parser = parse_duration)]
    certificate_lifetime: Duration,
}

/// Printing the webhook configurations instead of serving.
#[derive(clap::Args)]
struct RenderArgs {
    /// Print the webhook configurations and do nothing else
    #[arg(long)]
    render: bool,
    /// Write one file for each webhook configuration into this folder instead of printing them
    #[arg(long, value_name = "DIR", requires = "render")]
    dir: Option<PathBuf>,
    /// URL for the API server instead of the Service
    #[arg(long, value_name = "https://HOST:PORT", requires = "render")]
    url: Option<String>,
}

/// Returns the certificate of the files, or the generated one of `defaults` with the flags.
fn certificate(args: CertificateArgs, defaults: Certificate) -> Certificate {
    if let Some((cert, key)) = args.tls_cert.zip(args.tls_key) {
        return Certificate::Files(ServerFiles {
            cert,
            key,
            client_ca: None,
            alpn: Vec::new(),
        });
    }
    let mut certificate = defaults;
    if let Certificate::Own { names, times, .. } = &mut certificate {
        names.extend(args.tls_name);
        times.lifetime = args.certificate_lifetime;
        times.ca = Ca::Published {
            overlap: MAX_OVERLAP.min(args.certificate_lifetime / 4),
        };
    }
    certificate
}

fn config(args: Args) -> Result<Config> {
    let defaults = Config::new(&args.own.namespace, SERVICE);
    let certificate = certificate(args.certificate, defaults.certificate.clone());
    let limits = limits(args.request_memory, args.max_body)?;
    Ok(Config {
        limits,
        listen: args.listen,
        admin: args.admin,
        certificate,
        deadline: args.deadline,
        concurrency: args.concurrency.max(1),
        max_body_bytes: args.max_body << 20,
        governed: args.governed,
        scheduler_name: args.scheduler_name,
        trusted: args.own.trusted(),
        authorizer: args.authorizer,
        policy_namespace: args.policy_namespace.unwrap_or(args.own.namespace),
        gpus: args
            .gpus
            .names()
            .context("--gpu-resource and --gpu-shared-resource")?,
        ..defaults
    })
}

fn render(address: &Address, dir: Option<&Path>) -> Result<()> {
    let head = "# Generated by `tautline admission --render --dir deploy/webhooks`; do not edit.\n";
    for (name, documents) in webhooks::files(address) {
        let texts: Vec<String> = documents
            .iter()
            .map(serde_saphyr::to_string)
            .collect::<Result<_, _>>()?;
        let text = texts.join("---\n");
        match dir {
            None => output::write(&format!("---\n{text}"))?,
            Some(dir) => output::write_file(dir, name, &format!("{head}{text}"))?,
        }
    }
    Ok(())
}

pub(crate) async fn run(args: Args) -> Result<()> {
    if args.render.render {
        let address = match args.render.url {
            Some(url) if !url.starts_with("https://") => {
                bail!("--url {url:?}: the API server calls https:// only")
            }
            Some(url) => Address::Url(url),
            None => Address::Service {
                namespace: args.own.namespace,
                name: SERVICE.to_owned(),
            },
        };
        return render(&address, args.render.dir.as_deref());
    }
    let cluster = args.cluster.without_retries().await?;
    let app = App::build(config(args)?, cluster).await?;
    tracing::info!(address = %app.address()?, admin = %app.admin_address()?, "admission starting");
    run_until_shutdown("admission", app.readiness(), |tasks| app.spawn(tasks)).await
}
