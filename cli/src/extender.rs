//! Implements `tautline extender`, which runs the scheduler extender that kube-scheduler calls.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use tautline_certificates::{Ca, Times};
use tautline_core::{
    answer::AnswerMode, group::MAX_MEMBERS, model::ProviderUnavailable, trust::AllocatorKeys,
};
use tautline_provider_client::{ClientConfig, config::ALLOCATOR_ANNOTATIONS};
use tautline_runtime::{cluster_store::ClusterStore, http::Limits, tls::ServerFiles};
use tautline_scheduler_extender::{App, Certificate, Config};

use crate::{
    choice_arg::{Choice, one_of},
    cluster::ClusterArgs,
    duration_arg::parse_duration,
    provider_args::ProviderArgs,
    run_until_shutdown,
    trace_args::TraceArgs,
};

#[derive(clap::Args)]
#[command(
    after_help = "deploy/scheduler/ has kube-scheduler's configuration; its httpTimeout must be above --deadline.\n\n\
    Examples:\n  \
    tautline extender --tls-secret tautline-extender-generated-tls   # a certificate by itself\n  \
    tautline extender --tls-cert tls.crt --tls-key tls.key"
)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Address for kube-scheduler
    #[arg(long, default_value = "[::]:8888")]
    listen: SocketAddr,
    /// Address of /livez, /readyz, /metrics, /status, /explain, /what-if and /history
    #[arg(long, default_value = "[::]:9090")]
    admin: SocketAddr,
    #[command(flatten)]
    tls: ServerTlsArgs,
    #[command(flatten)]
    generated: GeneratedArgs,
    /// Usable nodes that filter returns to kube-scheduler
    #[arg(long, default_value = "ties", value_parser = one_of(&ANSWERS))]
    answer: AnswerMode,
    /// Effect of a rule without a working provider, unless the offer sets it [default: reject for a
    /// rule with a limit, ignore for others]
    #[arg(long, value_parser = one_of(&PROVIDER_UNAVAILABLE))]
    provider_unavailable: Option<ProviderUnavailable>,
    #[command(flatten)]
    providers: ProviderArgs,
    /// Annotations that allocators may write on pods, of any rule or of one; KEYS may end
    /// with *; for gpu-slice keep tautline.io/gpu-*
    #[arg(long, value_delimiter = ',', value_name = "[RULE=]KEYS,...", default_values = ALLOCATOR_ANNOTATIONS)]
    allocator_annotations: Vec<AllocatorKeys>,
    #[command(flatten)]
    traces: TraceArgs,
    /// Percentage of kube-scheduler's time for calls to the providers of one untrusted
    /// namespace; beyond it they are not called (ProviderOverBudget)
    #[arg(long, default_value_t = 5, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    untrusted_share: u8,
    /// Namespaces whose pods are never governed
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "kube-system,tautline-system",
        value_name = "NS,..."
    )]
    exempt_namespaces: Vec<String>,
    /// Time for one request
    #[arg(long, default_value = "4s", value_parser = parse_duration)]
    deadline: Duration,
    /// Maximum number of concurrent requests; more are refused
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
    /// Maximum size of a request, in MiB
    #[arg(long, default_value_t = 32, value_name = "MIB")]
    max_body: usize,
    /// Memory of all concurrent requests, in MiB [default: a quarter of the memory limit, at
    /// least twice --max-body]
    #[arg(long, value_name = "MIB")]
    request_memory: Option<usize>,
    /// Memory for the records of /explain, in MiB; the oldest are dropped
    #[arg(long, default_value_t = 32, value_name = "MIB")]
    explain_memory: usize,
    /// Serve the bind verb too; allow only kube-scheduler then (--tls-client-ca,
    /// --require-client-cert)
    #[arg(long)]
    bind: bool,
    /// The longest time for which the places of a group are held until all its pods are bound; with
    /// --bind kube-scheduler's httpTimeout must be longer
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = parse_duration)]
    group_timeout: Duration,
}

/// A generated certificate.
#[derive(clap::Args, Clone, Debug)]
struct GeneratedArgs {
    /// Serve TLS with a certificate generated into this Secret, and rotated there; its ca.crt, valid
    /// for ten years, is for kube-scheduler's tlsConfig
    #[arg(long, value_name = "NAME", conflicts_with = "tls_cert")]
    tls_secret: Option<String>,
    /// More DNS names and IP addresses for the generated certificate
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,...",
        requires = "tls_secret"
    )]
    tls_name: Vec<String>,
    /// Accept only clients with client.crt and client.key of the Secret
    #[arg(long, requires = "tls_secret")]
    require_client_cert: bool,
    /// Lifetime of the generated certificate; it is replaced after two thirds of it
    #[arg(long, default_value = "2160h", value_name = "TIME", value_parser = parse_duration)]
    certificate_lifetime: Duration,
}

impl GeneratedArgs {
    fn certificate(self, namespace: &str) -> Option<Certificate> {
        let host = format!("tautline-extender.{namespace}.svc");
        let own = [format!("{host}.cluster.local"), host];
        Some(Certificate::Generated {
            namespace: namespace.to_owned(),
            secret: self.tls_secret?,
            names: own.into_iter().chain(self.tls_name).collect(),
            times: Times {
                lifetime: self.certificate_lifetime,
                ca: Ca::Copied,
            },
            client_auth: self.require_client_cert,
        })
    }
}

/// TLS of a server.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ServerTlsArgs {
    /// Serve TLS with this certificate chain (PEM); reloads when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Accept only clients with a certificate of this CA (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl ServerTlsArgs {
    pub(crate) fn is_set(&self) -> bool {
        self.tls_cert.is_some()
    }

    pub(crate) fn asks_clients(&self) -> bool {
        self.tls_client_ca.is_some()
    }

    pub(crate) fn files(self) -> Option<ServerFiles> {
        let (cert, key) = self.tls_cert.zip(self.tls_key)?;
        Some(ServerFiles {
            cert,
            key,
            client_ca: self.tls_client_ca,
            alpn: Vec::new(),
        })
    }
}

const ANSWERS: [Choice<AnswerMode>; 4] = [
    (
        "ties",
        "The nodes that tie for best; kube-scheduler's own scores choose among them",
        AnswerMode::Ties,
    ),
    (
        "decisive",
        "One of the best nodes: the least allocated",
        AnswerMode::Decisive,
    ),
    (
        "shortlist",
        "The best 64 nodes; kube-scheduler adds its own scores",
        AnswerMode::Shortlist(64),
    ),
    (
        "all",
        "All usable nodes, for the extenders after this one",
        AnswerMode::Shortlist(0),
    ),
];

const PROVIDER_UNAVAILABLE: [Choice<ProviderUnavailable>; 2] = [
    ("ignore", "", ProviderUnavailable::Ignore),
    ("reject", "", ProviderUnavailable::Reject),
];

/// Returns the limits of a port; both arguments are in MiB.
pub(crate) fn limits(request_memory: Option<usize>, max_body: usize) -> Result<Limits> {
    if request_memory.is_some_and(|mib| mib < max_body * 2) {
        bail!(
            "--request-memory must be at least twice --max-body ({max_body} MiB): one address \
             gets half of it, and the largest request has to fit"
        );
    }
    Ok(Limits {
        request_bytes: request_memory.map(|mib| mib << 20),
        ..Limits::default()
    })
}

fn config(args: Args) -> Result<Config> {
    let namespace = args.providers.own.namespace.clone();
    let cluster_secrets = args.providers.cluster_secrets.clone();
    let provider_config = args.providers.config(ClientConfig::default());
    if provider_config.deadline >= args.deadline {
        bail!("--provider-deadline must be below --deadline, or no answer could be given in time");
    }
    let files = args.tls.files().map(Certificate::Files);
    let certificate = files.or_else(|| args.generated.certificate(&namespace));
    let limits = Limits {
        // The bind of each pod of the largest group waits on a connection of its own, and one
        // address may have three quarters of the connections.
        connections: 2 * MAX_MEMBERS,
        ..limits(args.request_memory, args.max_body)?
    };
    Ok(Config {
        limits,
        listen: args.listen,
        admin: args.admin,
        certificate,
        answer: args.answer,
        exempt_namespaces: args.exempt_namespaces.into_iter().collect(),
        max_body_bytes: args.max_body << 20,
        concurrency: args.concurrency.max(1),
        deadline: args.deadline,
        explain_bytes: args.explain_memory << 20,
        bind: args.bind,
        group_timeout: args.group_timeout,
        tracks_in_flight: true,
        controller_namespace: namespace,
        cluster_secrets,
        providers: ClientConfig {
            provider_unavailable: args.provider_unavailable,
            allocator_annotations: args.allocator_annotations,
            scheduler_share_percent: Some(args.untrusted_share),
            streams: true,
            ..provider_config
        },
        ..Config::default()
    })
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let cluster = args.cluster.without_retries().await?;
    let traces = args.traces.start("tautline-extender")?;
    let config = Config {
        traces: traces.clone(),
        ..config(args)?
    };
    let app = App::build(config, ClusterStore::default(), Some(cluster)).await?;
    tracing::info!(address = %app.address()?, admin = %app.admin_address()?, "extender listening");
    let ended = run_until_shutdown("extender", app.readiness(), |tasks| {
        app.spawn(tasks);
        Ok(())
    });
    let ended = ended.await;
    traces.end().await;
    ended
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parsed(args: &[&str]) -> Result<Config> {
        let line = std::iter::once("x").chain(args.iter().copied());
        config(Line::parse_from(line).args)
    }

    fn answer(args: &[&str]) -> Result<AnswerMode> {
        Ok(parsed(args)?.answer)
    }

    #[test]
    fn other_clusters_are_off_unless_configured() {
        assert_eq!(parsed(&[]).unwrap().cluster_secrets, None);
        let secrets = parsed(&["--cluster-secrets", "ns"]).unwrap();
        assert_eq!(secrets.cluster_secrets.as_deref(), Some("ns"));
    }

    #[test]
    fn answer_is_ties_unless_configured() {
        assert_eq!(answer(&[]).unwrap(), AnswerMode::Ties);
        let decisive = answer(&["--answer", "decisive"]).unwrap();
        assert_eq!(decisive, AnswerMode::Decisive);
        let shortlist = answer(&["--answer", "shortlist"]).unwrap();
        assert_eq!(shortlist, AnswerMode::Shortlist(64));
        let all = answer(&["--answer", "all"]).unwrap();
        assert_eq!(all, AnswerMode::Shortlist(0));
    }
}
