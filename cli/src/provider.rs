//! `tautline provider`

mod claims;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use clap::Subcommand;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, core::DeserializeGuard};
use tautline_api::{CostProvider, RuleProvider as RuleScript};
use tautline_gpu::policy::Name as Policy;
use tautline_gpu_slice::{Config as GpuConfig, Gauges, GpuSlice};
use tautline_latency::{Latency, Table};
use tautline_runtime::{
    feed::Feed,
    tasks::{self, Tasks},
    tls::FileChanges,
    watch::{self, WatchMetrics},
};
use tautline_scripted::Scripted;
use tautline_sdk::{Config, RuleProvider, Server};
use tokio_util::sync::CancellationToken;

use crate::{cluster::ClusterArgs, extender::ServerTlsArgs, replica_args::ReplicaArgs};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// GPU capacity: whole cards, shares, MIG instances (rule gpu-slice)
    GpuSlice(Box<GpuSliceArgs>),
    /// Network latency from configured tables (rule latency)
    Latency(LatencyArgs),
    /// Costs and compliances from CostProvider and RuleProvider resources (any rule)
    Scripted(Args),
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Where callers connect
    #[arg(long, default_value = "[::]:5309")]
    listen: SocketAddr,
    /// Where /livez, /readyz and /metrics are
    #[arg(long, default_value = "[::]:9090")]
    admin: SocketAddr,
    #[command(flatten)]
    tls: ServerTlsArgs,
}

#[derive(clap::Args)]
#[command(
    after_help = "Policies:\n  tautline  Tautline's own\n  fgd       fragmentation gradient descent, as published\n  best-fit  the node with the least CPU and GPU left\n  packing   cards in use first, then nodes in use\n  spread    the node with most GPU left\n\nTwo replicas:\n  tautline provider gpu-slice --lease tautline-system/tautline-gpu-slice --advertise $POD_IP:5309"
)]
pub(crate) struct GpuSliceArgs {
    #[command(flatten)]
    common: Args,
    /// How nodes and cards are chosen
    #[arg(long, default_value_t, value_name = "NAME")]
    policy: Policy,
    /// Write a pod's cards to this annotation too, as indexes (0-1), for a runtime
    /// that reads it, such as alibabacloud.com/gpu-index
    #[arg(long, value_name = "ANNOTATION")]
    also_record: Option<String>,
    #[command(flatten)]
    replicas: ReplicaArgs,
}

#[derive(clap::Args)]
#[command(
    after_help = "A table is CSV, FROM,TO,RTT a line (zone-a,zone-b,12ms), of nodes or zones.\nWithout --table it comes from ConfigMaps labelled constraint.ciena.com/latency-table: enabled."
)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    common: Args,
    /// Take the table from this file
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::GpuSlice(args) => {
            let (listen, tls) = (args.common.listen, args.common.tls.is_set());
            let replicas = args.replicas.config(listen, tls)?;
            let (client, mut server, mut tasks) = prepare(args.common).await?;
            let feed = watched(&client, &mut server, &mut tasks);
            let config = GpuConfig {
                policy: args.policy,
                also_record: args.also_record,
                ..GpuConfig::default()
            };
            let provider = GpuSlice::new(feed, config);
            claims::follow(&client, &provider, &server.readiness, &mut tasks).await?;
            let gauges = Gauges::default();
            gauges.register(&mut server.registry);
            let keeping = provider.clone().keep(gauges, tasks.stop_token());
            tasks.spawn("reservations", async {
                keeping.await;
                Ok(())
            });
            tautline_gpu_slice::replicas::serve(server, provider, replicas, client, tasks).await
        }
        Command::Latency(args) => {
            let (client, mut server, mut tasks) = prepare(args.common).await?;
            let provider = Latency::new(watched(&client, &mut server, &mut tasks));
            match args.table {
                Some(path) => {
                    provider.set_table(read_table(&path)?);
                    tasks.spawn(
                        "table",
                        follow_table(provider.clone(), path, tasks.stop_token()),
                    );
                }
                None => {
                    let selector = format!("{}=enabled", tautline_latency::TABLE_LABEL);
                    let api: Api<DeserializeGuard<ConfigMap>> = Api::all(client);
                    let to = provider.clone();
                    watch::list_of(
                        api,
                        Some(&selector),
                        &server.readiness,
                        &mut tasks,
                        move |maps| {
                            to.set_table(table_of(maps.iter().map(Arc::as_ref)));
                        },
                    );
                }
            }
            serve(server, provider, tasks).await
        }
        Command::Scripted(args) => {
            let (client, server, mut tasks) = prepare(args).await?;
            let provider = Scripted::default();
            let (costs, compliances) = (provider.clone(), provider.clone());
            let api: Api<DeserializeGuard<CostProvider>> = Api::all(client.clone());
            watch::list_of(api, None, &server.readiness, &mut tasks, move |l| {
                costs.set_costs(l)
            });
            let api: Api<DeserializeGuard<RuleScript>> = Api::all(client);
            watch::list_of(api, None, &server.readiness, &mut tasks, move |l| {
                compliances.set_compliances(l);
            });
            serve(server, provider, tasks).await
        }
    }
}

fn read_table(path: &Path) -> Result<Table> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut table = Table::default();
    table
        .add(&text)
        .with_context(|| path.display().to_string())?;
    Ok(table)
}

async fn follow_table(provider: Latency, path: PathBuf, stop: CancellationToken) -> Result<()> {
    let mut changes = FileChanges::new(vec![path.clone()]);
    while changes.next(&stop).await {
        match read_table(&path) {
            Ok(table) => provider.set_table(table),
            Err(error) => tracing::warn!("{error:#}; keeping the old table"),
        }
    }
    Ok(())
}

/// The table that ConfigMaps hold together. A malformed one is left out and
/// named in the log.
pub(crate) fn table_of<'a>(maps: impl Iterator<Item = &'a ConfigMap>) -> Table {
    let mut table = Table::default();
    for map in maps {
        for (key, text) in map.data.iter().flatten() {
            if let Err(error) = table.add(text) {
                let meta = &map.metadata;
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                let name = meta.name.as_deref().unwrap_or_default();
                tracing::warn!(
                    "ConfigMap {namespace}/{name}, {key}: {error}; the rest of it is left out"
                );
            }
        }
    }
    table
}

async fn prepare(args: Args) -> Result<(Client, Server, Tasks)> {
    let client = args.cluster.client().await?;
    let config = Config {
        listen: args.listen,
        admin: Some(args.admin),
        tls: args.tls.files(),
    };
    Ok((client, Server::bind(config).await?, Tasks::default()))
}

/// Pods and nodes, which measuring providers know.
fn watched(client: &Client, server: &mut Server, tasks: &mut Tasks) -> Feed {
    let (feed, metrics) = (Feed::default(), WatchMetrics::default());
    metrics.register(&mut server.registry);
    let watch = watch::Watch {
        client,
        feed: &feed,
        metrics: &metrics,
        readiness: &server.readiness,
    };
    watch.pods(tasks);
    watch.nodes(tasks);
    feed
}

async fn serve(server: Server, provider: impl RuleProvider, mut tasks: Tasks) -> Result<()> {
    tracing::info!(address = %server.address(), "rule provider listening");
    server.spawn(Arc::new(provider), &mut tasks)?;
    tasks.run(tasks::signal()).await
}
