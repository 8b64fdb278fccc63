//! Runs the extender on loopback, and makes kube-scheduler's calls to it.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tautline_provider_client::ClientConfig;
use tautline_runtime::{cluster_store::ClusterStore, tasks::Tasks};
use tautline_scheduler_extender::{App, Config, explain::Record};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::http::Http;

pub(crate) struct Extender {
    http: Http,
    url: String,
    admin: String,
    stop: CancellationToken,
    servers: JoinHandle<Result<()>>,
}

impl Extender {
    /// Starts the extender and `tasks`, which serve its providers, on free ports. A call to the
    /// extender ends at `deadline`.
    pub(crate) async fn start(
        store: &ClusterStore,
        providers: ClientConfig,
        deadline: Duration,
        mut tasks: Tasks,
    ) -> Result<Self> {
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let config = Config {
            listen: loopback,
            admin: loopback,
            tracks_in_flight: false,
            deadline,
            providers,
            ..Config::default()
        };
        let app = App::build(config, store.clone(), None).await?;
        let url = format!("http://{}", app.address()?);
        let admin = format!("http://{}", app.admin_address()?);
        app.spawn(&mut tasks);
        Ok(Self {
            http: Http::default(),
            url,
            admin,
            stop: tasks.stop_token(),
            servers: tokio::spawn(tasks.run(std::future::pending())),
        })
    }

    /// Returns the URL of the admin port, with `/explain`, `/metrics` and the rest.
    pub(crate) fn admin_url(&self) -> &str {
        &self.admin
    }

    /// Returns the usable nodes among `nodes`, and the whole answer.
    pub(crate) async fn filter(
        &self,
        pod: &Value,
        nodes: &[String],
    ) -> Result<(Vec<String>, Value)> {
        let answer = self.post("filter", pod, nodes).await?;
        if let Some(error) = answer["error"].as_str().filter(|e| !e.is_empty()) {
            let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
            let (namespace, name) = (text("namespace"), text("name"));
            bail!("the extender cannot plan pod {namespace}/{name}: {error}");
        }
        let usable = serde_json::from_value(answer["nodenames"].clone());
        Ok((usable.context("filter returned no node names")?, answer))
    }

    /// Returns the scores of nodes.
    pub(crate) async fn prioritize(
        &self,
        pod: &Value,
        nodes: &[String],
    ) -> Result<Vec<(String, i64)>> {
        let scores = self.post("prioritize", pod, nodes).await?;
        let score =
            |score: &Value| Some((score["host"].as_str()?.to_owned(), score["score"].as_i64()?));
        let scores = scores.as_array().into_iter().flatten();
        let read = |given| {
            score(given).with_context(|| format!("prioritize returned a malformed score: {given}"))
        };
        scores.map(read).collect()
    }

    async fn post(&self, verb: &str, pod: &Value, nodes: &[String]) -> Result<Value> {
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": nodes});
        let url = format!("{}/{verb}", self.url);
        let answer = self.http.post(&url, serde_json::to_vec(&body)?).await?;
        serde_json::from_slice(&answer).with_context(|| format!("{verb} returned no JSON"))
    }

    /// Returns the record of the last planning of a pod, if there is one.
    pub(crate) async fn explain(&self, namespace: &str, pod: &str) -> Result<Option<Record>> {
        let url = format!("{}/explain/{namespace}/{pod}", self.admin);
        let (status, body) = self.http.get(&url).await?;
        if !status.is_success() {
            return Ok(None);
        }
        let records: Vec<Record> = serde_json::from_slice(&body)?;
        Ok(records.into_iter().next())
    }

    /// Stops the extender and the providers.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        _ = self.servers.await;
    }
}
