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
use tautline_certificates::{Ca, Times};
use tautline_gpu_sharing::Names;
use tautline_runtime::{
    tasks::{self, Tasks},
    tls::ServerFiles,
};

use crate::{
    cluster::ClusterArgs, duration_arg::parse_duration, extender::limits, output,
    provider_args::TrustArgs,
};

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
    /// Tautline's own namespace, with the Service and the Secret of the certificates
    #[arg(
        long,
        value_name = "NS",
        default_value = "tautline-system",
        env = "POD_NAMESPACE"
    )]
    namespace: String,
    #[command(flatten)]
    trust: TrustArgs,
    /// The Service of the admission server
    #[arg(long, value_name = "NAME", default_value = "tautline-admission")]
    service: String,
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
    /// Let mutation policies use the authorizer
    #[arg(long)]
    authorizer: bool,
    #[command(flatten)]
    render: RenderArgs,
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
    /// The Secret for generated certificates
    #[arg(long, value_name = "NAME", default_value = "tautline-admission-tls")]
    secret: String,
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
    webhook_url: Option<String>,
}

fn config(args: Args) -> Result<Config> {
    let defaults = Config::new(&args.namespace, &args.service);
    let certificate = match (args.certificate, defaults.certificate.clone()) {
        (
            CertificateArgs {
                tls_cert: Some(cert),
                tls_key: Some(key),
                ..
            },
            _,
        ) => Certificate::Files(ServerFiles {
            cert,
            key,
            client_ca: None,
            alpn: Vec::new(),
        }),
        (own, Certificate::Own { mut names, .. }) => {
            names.extend(own.tls_name);
            Certificate::Own {
                secret: own.secret,
                names,
                times: Times {
                    lifetime: own.certificate_lifetime,
                    ca: Ca::Published {
                        overlap: MAX_OVERLAP.min(own.certificate_lifetime / 4),
                    },
                },
            }
        }
        (_, files) => files,
    };
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
        trusted: args.trust.trusted_namespaces(&args.namespace),
        authorizer: args.authorizer,
        policy_namespace: args.policy_namespace.unwrap_or(args.namespace),
        gpus: Names::new(
            &args.gpu_resource,
            &args.gpu_shared_resource,
            args.gpu_shares_per_card,
        )
        .context("--gpu-resource and --gpu-shared-resource")?,
        ..defaults
    })
}

fn render(address: &Address, dir: Option<&Path>) -> Result<()> {
    if let Some(dir) = dir {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    let head = "# Generated by `tautline admission --render --dir deploy/webhooks`; do not edit.\n";
    for (name, documents) in webhooks::files(address) {
        let texts: Vec<String> = documents
            .iter()
            .map(serde_saphyr::to_string)
            .collect::<Result<_, _>>()?;
        let text = texts.join("---\n");
        match dir {
            None => output::write(&format!("---\n{text}"))?,
            Some(dir) => {
                let path = dir.join(name);
                std::fs::write(&path, format!("{head}{text}"))
                    .with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}

pub(crate) async fn run(args: Args) -> Result<()> {
    if args.render.render {
        let address = match args.render.webhook_url {
            Some(url) if !url.starts_with("https://") => {
                bail!("--webhook-url {url:?}: the API server calls https:// only")
            }
            Some(url) => Address::Url(url),
            None => Address::Service {
                namespace: args.namespace,
                name: args.service,
            },
        };
        return render(&address, args.render.dir.as_deref());
    }
    let cluster = args.cluster.without_retries().await?;
    let app = App::build(config(args)?, cluster).await?;
    tracing::info!(address = %app.address()?, admin = %app.admin_address()?, "admission starting");
    let readiness = app.readiness();
    let mut tasks = Tasks::default();
    app.spawn(&mut tasks)?;
    tasks
        .run(tasks::ready_then_shutdown_signal(readiness, "admission"))
        .await
}
