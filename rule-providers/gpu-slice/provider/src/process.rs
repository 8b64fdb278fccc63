//! Runs the process of the `gpu-slice` provider: watches the cluster, and serves the rule, the
//! allocator, the agents and the admin pages.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::{Api, Client, core::DeserializeGuard};
use parking_lot::Mutex;
use tautline_agent_link::{AgentAuth, TokenReviewer};
use tautline_runtime::{
    admin::Readiness,
    cluster::Cluster,
    cluster_store::ClusterStore,
    tasks::{self, Tasks},
    watch::{Watch, WatchMetrics, watch_list},
};
use tautline_sdk::Server;

use crate::{
    agents::AUDIENCE,
    cluster_inventory::Config,
    dra,
    provider::{GpuSlice, Metrics},
    replicas::{self, Replicas},
};

const GROUP_VERSION: &str = "resource.k8s.io/v1";

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
    watch_devices(client, &provider, &server.readiness, &mut tasks).await?;

    let metrics = Metrics::registered("", &mut server.registry);
    tasks.spawn_until_stop("reservations", provider.clone().maintain(metrics));

    let (sampled, readiness) = (provider.clone(), server.readiness.clone());
    tasks.spawn_until_stop("history", async move {
        readiness.wait().await;
        sampled.sample_given_cards().await;
    });

    let tokens = config.agent_tokens.map(|(namespace, name)| {
        let account = (namespace.as_str(), name.as_str());
        Arc::new(TokenReviewer::new(client.clone(), AUDIENCE, account))
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

    let inner = Arc::new(provider);
    let replicas = match config.replicas {
        None => Replicas::alone(inner, &mut server),
        Some(config) => Replicas::of_lease(inner, config, client.clone(), &mut server, &mut tasks)?,
    };
    tracing::info!(address = %server.address(), "rule provider listening");
    server.spawn_with_allocator(Arc::clone(&replicas), replicas, &mut tasks)?;
    tasks.run(tasks::shutdown_signal()).await
}

/// Watches the objects of DRA, if the cluster has their API (Kubernetes 1.34).
async fn watch_devices(
    client: &Client,
    provider: &GpuSlice,
    readiness: &Readiness,
    tasks: &mut Tasks,
) -> Result<()> {
    match client.list_api_group_resources(GROUP_VERSION).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {
            tracing::info!(
                "the cluster has no {GROUP_VERSION}: devices of DRA drivers are not counted"
            );
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    let watched = provider.clone();
    let api: Api<DeserializeGuard<ResourceSlice>> = Api::all(client.clone());
    watch_list(api, None, readiness, tasks, move |list| {
        watched.set_slices(dra::usable(list.iter().map(|o| &**o), dra::resource_slice));
    });
    let watched = provider.clone();
    let api: Api<DeserializeGuard<ResourceClaim>> = Api::all(client.clone());
    let last = Mutex::new(Vec::new());
    watch_list(api, None, readiness, tasks, move |list| {
        let mut last = last.lock();
        let (changed, gone) = dra::changed_claims(&last, &list);
        watched.change_claims(changed, &gone);
        *last = list;
    });
    let watched = provider.clone();
    let api: Api<DeserializeGuard<DeviceClass>> = Api::all(client.clone());
    watch_list(api, None, readiness, tasks, move |list| {
        watched.set_classes(list.iter().map(|class| dra::device_class(class)).collect());
    });
    Ok(())
}
