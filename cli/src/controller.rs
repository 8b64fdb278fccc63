//! Implements `tautline controller`, which runs the controller of bindings, compliance and
//! evictions.

use std::{net::SocketAddr, time::Duration};

use anyhow::Result;
use tautline_controller::{AnnotationMatch, App, Config};
use tautline_core::{binding_quota::BindingLimits, duration};

use crate::{
    cluster::ClusterArgs, duration_arg::parse_duration, identity::identity,
    provider_args::ProviderArgs, run_until_shutdown, trace_args::TraceArgs,
};

#[derive(clap::Args)]
#[command(
    after_help = "Run two replicas: one leads by the Lease tautline-controller, the other takes over when it ends.\n\n\
    Examples:\n  tautline controller\n  tautline controller --dry-run     # reports evictions in events and makes none"
)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Address of /livez, /readyz, /metrics, /decisions and /history
    #[arg(long, default_value = "[::]:9090")]
    admin: SocketAddr,
    /// Maximum number of bindings of one offer
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    max_bindings: usize,
    /// Maximum number of bindings of all offers of one namespace
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    max_namespace_bindings: usize,
    /// Maximum number of bindings of all offers
    #[arg(long, default_value_t = 50_000, value_name = "N")]
    max_total_bindings: usize,
    #[command(flatten)]
    providers: ProviderArgs,
    #[command(flatten)]
    traces: TraceArgs,
    /// Time between two evictions of one offer; shorter while more than three of its pods are in
    /// violation; 0s: none
    #[arg(long, default_value = "2m", value_parser = any_duration)]
    eviction_cool_down: Duration,
    /// Further annotations of pods that are not evicted, besides those of Karpenter, Cluster
    /// Autoscaler and the descheduler
    #[arg(long, value_delimiter = ',', value_name = "KEY[=VALUE],...")]
    no_evict_annotations: Vec<AnnotationMatch>,
    /// Namespaces whose pods are never evicted
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "kube-system,tautline-system",
        value_name = "NS,..."
    )]
    exempt_namespaces: Vec<String>,
    /// Evict and mediate nothing; report in events what would be done
    #[arg(long)]
    dry_run: bool,
    /// Put the resource constraint.ciena.com/governed on nodes: for gated configurations of
    /// kube-scheduler without ignoredByScheduler; needs the role of deploy/with-gate
    #[arg(long)]
    advertise_gate: bool,
    /// Write a Report of OpenReports for each offer; needs its CRDs, and the role of
    /// deploy/with-open-reports
    #[arg(long)]
    open_reports: bool,
    /// Time without renewal after which the leader is replaced
    #[arg(long, default_value = "12s", value_parser = parse_duration)]
    lease_duration: Duration,
}

fn any_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|e| e.to_string())
}

fn config(args: Args) -> Config {
    let mut config = Config::new(&args.providers.own.namespace, identity());
    config.lease.duration = args.lease_duration.max(Duration::from_secs(3));
    config.lease.renew_deadline = config.lease.duration.mul_f64(2.0 / 3.0);
    config.lease.retry = config.lease.duration.div_f64(6.0);
    Config {
        admin: args.admin,
        limits: BindingLimits {
            offer: args.max_bindings,
            namespace: args.max_namespace_bindings,
            total: args.max_total_bindings,
        },
        eviction_cool_down: args.eviction_cool_down,
        protecting_annotations: args.no_evict_annotations,
        exempt_namespaces: args.exempt_namespaces.into_iter().collect(),
        dry_run: args.dry_run,
        cluster_secrets: args.providers.cluster_secrets.clone(),
        provider_client: args.providers.config(config.provider_client.clone()),
        advertise_gate: args.advertise_gate,
        open_reports: args.open_reports,
        ..config
    }
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let cluster = args.cluster.without_retries().await?;
    let traces = args.traces.start("tautline-controller")?;
    let config = Config {
        traces: traces.clone(),
        ..config(args)
    };
    let app = App::build(config, cluster).await?;
    tracing::info!(admin = %app.admin_address()?, "controller starting");
    let ended = run_until_shutdown("controller", app.readiness(), |tasks| {
        app.spawn(tasks);
        Ok(())
    });
    let ended = ended.await;
    traces.end().await;
    ended
}
