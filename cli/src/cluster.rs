use anyhow::{Context, Result};
use clap::Args;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use tautline_runtime::cluster::Cluster;

use crate::api_timeout::TimeoutLayer;

/// The cluster: by default the pod's own, else the kubeconfig's current context.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig file [default: the pod's own account, else $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl ClusterArgs {
    /// For tools: requests that a busy API server refuses are retried, with a notice when it
    /// does not answer.
    pub(crate) async fn client(&self) -> Result<Client> {
        let config = self.config().await?;
        let patience = TimeoutLayer::new(&config.cluster_url.to_string());
        Ok(ClientBuilder::try_from(config)?
            .with_layer(&patience)
            .build())
    }

    /// For servers with deadlines and retries of their own: 429 is also the answer of a
    /// disruption budget, and must arrive at once.
    pub(crate) async fn without_retries(&self) -> Result<Cluster> {
        let mut config = self.config().await?;
        config.default_retry = false;
        Ok(Cluster::new(config)?)
    }

    pub(crate) async fn with_retries(&self) -> Result<Cluster> {
        Ok(Cluster::new(self.config().await?)?)
    }

    /// The name of the context, or the API server's address.
    pub(crate) async fn title(&self) -> Result<String> {
        let context = match (&self.context, &self.kubeconfig) {
            (Some(context), _) => Some(context.clone()),
            (None, Some(path)) => Kubeconfig::read_from(path)?.current_context,
            (None, None) => Kubeconfig::read()
                .ok()
                .and_then(|file| file.current_context),
        };
        match context {
            Some(context) => Ok(context),
            None => Ok(self.config().await?.cluster_url.to_string()),
        }
    }

    async fn config(&self) -> Result<Config> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        Ok(match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path)
                    .with_context(|| format!("kubeconfig {}", path.display()))?;
                Config::from_custom_kubeconfig(file, &options).await?
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options)
                .await
                .context("no usable kubeconfig")?,
            None => Config::infer()
                .await
                .context("no cluster: neither a pod's account nor a kubeconfig was found")?,
        })
    }
}
