//! Runs the process of the latency provider: watches the cluster, and serves the rules, the agents
//! and the reports.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tautline_agent_link::{AgentAuth, TokenReviewer};
use tautline_core::TrustedNamespaces;
use tautline_runtime::{
    cluster::Cluster,
    cluster_store::ClusterStore,
    tasks::{self, Tasks},
    watch::{Watch, WatchMetrics},
};
use tautline_sdk::Server;

use crate::{
    agents::{AUDIENCE, keys::EchoKeys},
    measuring::Measuring,
    network::{Network, outside::AllowedAddresses},
    provider::Latency,
    report::Pages,
    rules::{bandwidth::lacking::lacking, pod_demand::PodDemand},
    tables::sources,
};

/// The source of the secret from which the keys of echoes are derived.
#[derive(Clone, Debug, Default)]
pub enum EchoKeySource {
    /// 32 random bytes, new at each start and different in each replica.
    #[default]
    Random,
    /// A Secret (namespace, name) that the replicas share; the first replica creates it.
    Secret(String, String),
}

/// The settings of [`run`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses, TLS and number of connections of the server.
    pub server: tautline_sdk::Config,
    /// The namespaces whose tables and offers count for all namespaces.
    pub trusted: TrustedNamespaces,
    /// The file with the table of round-trip times; without it tables come from ConfigMaps.
    pub table: Option<PathBuf>,
    /// The namespace and name of the ServiceAccount whose tokens prove an agent's identity.
    pub agent_tokens: Option<(String, String)>,
    /// True to accept client certificates that name the agent's node; needs a client CA in
    /// `server`.
    pub agent_certificates: bool,
    /// True to accept all agents without proof.
    pub trust_agents: bool,
    /// The source of the echo keys.
    pub echo_key: EchoKeySource,
    /// The number of nodes that each node measures, in addition to those that rules name.
    pub targets: usize,
    /// The longest wait for agents: the provider is ready once four fifths of the nodes have one,
    /// or after this time.
    pub agents_within: Duration,
    /// True if agents may measure bandwidth by sending data.
    pub allow_transfers: bool,
    /// The addresses outside the cluster to which agents may connect.
    pub outside: AllowedAddresses,
}

/// Serves the rules, agents and reports until SIGTERM or SIGINT.
pub async fn run(cluster: &Cluster, config: Config) -> Result<()> {
    let client = cluster.client();
    let mut server = Server::bind(config.server).await?;
    let mut tasks = Tasks::default();
    let keys = match config.echo_key {
        EchoKeySource::Secret(namespace, name) => {
            EchoKeys::of_secret(client, &namespace, &name).await?
        }
        EchoKeySource::Random => EchoKeys::random()?,
    };
    let pods = PodDemand::on_request();
    let store = watch(cluster, &pods, &mut server, &mut tasks);
    let network = Network::new(store, config.allow_transfers);
    network.allow_outside(config.outside);
    let tokens = config.agent_tokens.map(|(namespace, name)| {
        let account = (namespace.as_str(), name.as_str());
        Arc::new(TokenReviewer::new(client.clone(), AUDIENCE, account))
    });
    let measuring = Measuring {
        network: Arc::clone(&network),
        auth: AgentAuth {
            trust_all: config.trust_agents,
            certificates: config.agent_certificates,
            tokens,
        },
        keys,
        targets: config.targets,
        agents_within: config.agents_within,
    };
    measuring.serve(&mut server, &mut tasks);
    let mut provider = Latency::with_network(network).with_trusted(config.trusted.clone());
    provider.pods = pods;
    let lacking = lacking(client).await;
    provider
        .bandwidth
        .set_lacking(lacking.context("ConstraintPolicyBindings")?);
    provider.metrics.register("", &mut server.registry);
    let pages = Pages::new(provider.clone());
    server.admin_pages(move |path, query| pages.clone().answer(path, query));
    match config.table {
        Some(path) => sources::follow_file(&provider, path, &mut tasks)?,
        None => {
            let (trusted, readiness) = (config.trusted, &server.readiness);
            sources::follow_config_maps(client, &provider, trusted, readiness, &mut tasks);
        }
    }
    tasks.spawn_until_stop("changes", provider.clone().tell_changes());
    tracing::info!(address = %server.address(), "rule provider listening");
    server.spawn(Arc::new(provider), &mut tasks)?;
    tasks.run(tasks::shutdown_signal()).await
}

fn watch(
    cluster: &Cluster,
    pods: &PodDemand,
    server: &mut Server,
    tasks: &mut Tasks,
) -> ClusterStore {
    let (store, metrics) = (ClusterStore::default(), WatchMetrics::default());
    metrics.register("", &mut server.registry);
    let watch = Watch {
        cluster,
        store: &store,
        metrics: &metrics,
        readiness: &server.readiness,
    };
    watch.nodes(tasks);
    watch.rules(tasks);
    let requested = |not_needed| pods.clone().requested(store.clone(), not_needed);
    watch.pods_once(requested, tasks);
    store
}
