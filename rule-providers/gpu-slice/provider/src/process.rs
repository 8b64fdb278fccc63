use std::sync::Arc;

use anyhow::Result;
use tautline_agent_link::{AgentAuth, TokenReviewer, review};
use tautline_runtime::{
    cluster::Cluster,
    cluster_store::ClusterStore,
    tasks::{self, Tasks},
    watch::{Watch, WatchMetrics},
};
use tautline_sdk::{Server, reservations::ReservationCounts};

use crate::{
    agents::AUDIENCE,
    config::Config,
    dra_watch,
    metrics::Metrics,
    provider::GpuSlice,
    replicas::{self, ReplicaCosts, Replicas},
};

/// The configuration of [`run`].
#[derive(Debug)]
pub struct ProcessConfig {
    /// The ports and TLS of the server.
    pub server: tautline_sdk::Config,
    /// The policy, the names, and the order of nodes.
    pub provider: Config,
    /// The Lease by which replicas find each other; `None`: there is only one replica.
    pub replicas: Option<replicas::Config>,
    /// The namespace and name of the ServiceAccount whose tokens prove that a caller is an agent.
    pub agent_tokens: Option<(String, String)>,
    /// True if client certificates that name the agent's node are accepted; needs a client CA in
    /// `server`.
    pub agent_certificates: bool,
    /// True if all agents are accepted without proof.
    pub trust_agents: bool,
}

/// Runs the provider until SIGTERM or Ctrl-C.
pub async fn run(cluster: Cluster, config: ProcessConfig) -> Result<()> {
    let (mut server, mut tasks) = (Server::bind(config.server).await?, Tasks::default());
    let (store, metrics) = (ClusterStore::default(), WatchMetrics::default());
    metrics.register("", &mut server.registry);
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

    let metrics = Metrics::registered("", &mut server.registry);
    metrics.set(ReservationCounts::default(), (0, 0));
    let maintain = provider.clone().maintain(metrics, tasks.stop_token());
    tasks.spawn("reservations", async {
        maintain.await;
        Ok(())
    });

    let tokens = config.agent_tokens.map(|(namespace, name)| {
        let review = review(client.clone(), AUDIENCE);
        Arc::new(TokenReviewer::new(AUDIENCE, (&namespace, &name), review))
    });
    let auth = AgentAuth {
        trust_all: config.trust_agents,
        certificates: config.agent_certificates,
        tokens,
    };
    provider.serve_agents(auth, &mut server, tasks.stop_token());
    let pages = provider.clone();
    server.admin_pages(move |path, query| {
        std::future::ready(pages.admin_page(&format!("{path}?{query}")))
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
