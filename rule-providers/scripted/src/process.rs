use std::sync::Arc;

use anyhow::Result;
use kube::{Api, core::DeserializeGuard};
use tautline_api::{CostProvider, RuleProvider};
use tautline_core::TrustedNamespaces;
use tautline_runtime::{
    cluster::Cluster,
    tasks::{self, Tasks},
    watch::watch_list,
};
use tautline_sdk::Server;

use crate::Scripted;

/// The configuration of the process.
#[derive(Debug)]
pub struct ProcessConfig {
    /// The server's ports, TLS and limits.
    pub server: tautline_sdk::Config,
    /// The namespaces whose scripts apply to pods of all namespaces.
    pub trusted: TrustedNamespaces,
}

/// Runs the provider until SIGTERM or Ctrl-C.
pub async fn run(cluster: Cluster, config: ProcessConfig) -> Result<()> {
    let (server, mut tasks) = (Server::bind(config.server).await?, Tasks::default());
    let provider = Scripted::trusting(config.trusted);
    let client = cluster.client();
    let costs = provider.clone();
    let api: Api<DeserializeGuard<CostProvider>> = Api::all(client.clone());
    watch_list(api, None, &server.readiness, &mut tasks, move |list| {
        costs.set_costs(list);
    });
    let compliances = provider.clone();
    let api: Api<DeserializeGuard<RuleProvider>> = Api::all(client.clone());
    watch_list(api, None, &server.readiness, &mut tasks, move |list| {
        compliances.set_compliances(list);
    });
    tracing::info!(address = %server.address(), "rule provider listening");
    server.spawn(Arc::new(provider), &mut tasks)?;
    tasks.run(tasks::shutdown_signal()).await
}
