use std::sync::Arc;

use anyhow::Result;
use tautline_runtime::{
    cluster::Cluster,
    cluster_store::ClusterStore,
    tasks::{self, Tasks},
    watch::{Watch, WatchMetrics},
};
use tautline_sdk::Server;

use crate::{
    config::Config,
    dra_watch,
    metrics::Metrics,
    provider::GpuSlice,
    replicas::{self, ReplicaCosts, Replicas},
};

/// The configuration of [`run`].
#[derive(Debug)]
pub struct ProcessConfig {
    /// Ports and TLS of the server.
    pub server: tautline_sdk::Config,
    /// Policy, names and order of nodes.
    pub provider: Config,
    /// How replicas find each other; `None`: there is one.
    pub replicas: Option<replicas::Config>,
}

/// Runs until SIGTERM or Ctrl-C.
pub async fn run(cluster: Cluster, config: ProcessConfig) -> Result<()> {
    let (mut server, mut tasks) = (Server::bind(config.server).await?, Tasks::default());
    let (store, metrics) = (ClusterStore::default(), WatchMetrics::default());
    metrics.register(&mut server.registry);
    let watch = Watch {
        cluster: &cluster,
        store: &store,
        metrics: &metrics,
        readiness: &server.readiness,
    };
    watch.nodes(&mut tasks);
    let provider = GpuSlice::new(store.clone(), config.provider);
    watch.pods(&mut tasks);
    let client = cluster.client();
    dra_watch::watch(client, &provider, &server.readiness, &mut tasks).await?;

    let metrics = Metrics::default();
    metrics.register(&mut server.registry);
    let maintain = provider.clone().maintain(metrics, tasks.stop_token());
    tasks.spawn("reservations", async {
        maintain.await;
        Ok(())
    });

    let provider = Arc::new(provider);
    let inner = Arc::clone(&provider);
    let replicas = match config.replicas {
        None => Replicas::alone(inner, &mut server),
        Some(config) => Replicas::of_lease(inner, config, client.clone(), &mut server, &mut tasks)?,
    };
    tracing::info!(address = %server.address(), "rule provider listening");
    let costs = ReplicaCosts {
        provider,
        replicas: Arc::clone(&replicas),
    };
    server.spawn_with_allocator(Arc::new(costs), replicas, &mut tasks)?;
    tasks.run(tasks::shutdown_signal()).await
}
