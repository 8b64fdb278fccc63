//! Connects commands to a cluster, by the flags `--kubeconfig` and `--context` or by the pod's own
//! account.

use anyhow::{Result, bail};
use clap::Args;
use kube::{Client, Config, client::ClientBuilder};
use tautline_runtime::cluster::Cluster;

use crate::{
    api_timeout::TimeoutLayer,
    cluster_fault::{ApiServerAddress, without_client},
    kubeconfig::{Kubeconfigs, environment_proxy},
};

/// The cluster: by default the kubeconfig's current context, else the pod's own.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig file [default: $KUBECONFIG or ~/.kube/config, else the pod's own account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl ClusterArgs {
    /// Makes a client for tools. It retries requests that a busy API server refuses, and gives a
    /// notice when the API server does not answer.
    pub(crate) async fn client(&self) -> Result<Client> {
        let config = self.config()?;
        let patience = TimeoutLayer::new(ApiServerAddress::of(&config));
        let plugin = config.auth_info.exec.clone();
        let builder = ClientBuilder::try_from(config);
        let builder = builder.map_err(|error| without_client(error, plugin.as_ref()))?;
        Ok(builder.with_layer(&patience).build())
    }

    /// Makes the connection of a server with deadlines and retries of its own: 429 is also the
    /// answer of a disruption budget, and must arrive at once.
    pub(crate) async fn without_retries(&self) -> Result<Cluster> {
        let mut config = self.config()?;
        config.default_retry = false;
        cluster(config)
    }

    pub(crate) async fn with_retries(&self) -> Result<Cluster> {
        cluster(self.config()?)
    }

    /// Returns the name of the context, or the API server's address.
    pub(crate) fn title(&self) -> Result<String> {
        let files = Kubeconfigs::read(self.kubeconfig.as_deref())?;
        match self.context.as_deref().or(files.current_context()) {
            Some(context) => Ok(context.to_owned()),
            None => Ok(self.config()?.cluster_url.to_string()),
        }
    }

    /// Returns the namespace of the context, else `default`.
    pub(crate) fn namespace(&self) -> String {
        let config = self.config().ok();
        config.map_or_else(|| "default".to_owned(), |c| c.default_namespace)
    }

    fn config(&self) -> Result<Config> {
        let files = Kubeconfigs::read(self.kubeconfig.as_deref())?;
        let context = self.context.as_deref().or(files.current_context());
        if let Some(context) = context {
            return files.config(context);
        }
        if self.kubeconfig.is_none() {
            match Config::incluster() {
                Ok(mut config) => {
                    config.proxy_url = environment_proxy(&config.cluster_url)?;
                    return Ok(config);
                }
                Err(_) if !files.missing.is_empty() => bail!(
                    "no cluster: {} named by KUBECONFIG does not exist; correct the path, or name \
                     a kubeconfig with --kubeconfig FILE",
                    files.missing_paths()
                ),
                Err(error) if files.is_empty() => bail!(
                    "no cluster: neither a kubeconfig nor a pod's account was found ({error}); name \
                     a kubeconfig with --kubeconfig FILE or KUBECONFIG"
                ),
                Err(_) => {}
            }
        }
        bail!(
            "kubeconfig {}: current-context: is not set; choose one with --context, or with \
             kubectl config use-context",
            files.paths()
        )
    }
}

fn cluster(config: Config) -> Result<Cluster> {
    let plugin = config.auth_info.exec.clone();
    Cluster::new(config).map_err(|error| without_client(error, plugin.as_ref()))
}
