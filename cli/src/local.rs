//! Scheduling on loopback without a cluster: the real extender and the real providers, over
//! HTTP and gRPC, with the objects of manifests. This module plays kube-scheduler's part.

use std::{net::Ipv4Addr, sync::Arc};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde::Serialize;
use serde_json::Value;
use tautline_api::{convert, manifest::Item};
use tautline_core::{
    index::Object,
    model::{Service, ServicePort},
    node_filter::NodeFilter,
    providers::ExternalNames,
    trust::TrustedNamespaces,
};
use tautline_gpu_slice::{Config as GpuConfig, GpuSlice};
use tautline_latency::{
    BANDWIDTH_TABLE_LABEL, Bandwidth, Latency, RoundTrip, TABLE_LABEL, tables_of,
};
use tautline_runtime::{cluster_store::ClusterStore, manifest_files, tasks::Tasks};
use tautline_scheduler_extender::{App, Config, explain::Record};
use tautline_scripted::Scripted;
use tautline_sdk::{RuleProvider, Server, testkit};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::http::Http;

/// Names the built-in provider that replaces a Service of the manifests.
pub const BUILTIN_ANNOTATION: &str = "tautline.io/builtin";

/// Places the pods of manifests with the real extender and providers on loopback.
pub struct LocalScheduler {
    store: ClusterStore,
    http: Http,
    extender: String,
    admin: String,
    /// Pods without a node, in the order of the manifests.
    pub pending: Vec<Pod>,
    stop: CancellationToken,
    servers: JoinHandle<Result<()>>,
}

/// The result for one pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Its node; absent: it stays pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// kube-scheduler's message, if it stays pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Nodes that Kubernetes' own rules exclude, before any provider is called.
    pub misfits: Vec<UnschedulableNode>,
    /// The extender's record; absent if no offer governs the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<Record>,
}

/// A node that Kubernetes' own rules exclude.
#[derive(Debug, Serialize)]
pub struct UnschedulableNode {
    /// The node's name.
    pub node: String,
    /// The first rule that excludes it, in kube-scheduler's words.
    pub reason: String,
}

impl LocalScheduler {
    /// Starts the extender and the built-in providers on free ports. Providers of
    /// `trusted` namespaces count for all others.
    ///
    /// # Errors
    /// An object that cannot be used, by its name.
    pub async fn start(items: Vec<Item>, trusted: TrustedNamespaces) -> Result<Self> {
        let (store, mut tasks) = (ClusterStore::default(), Tasks::default());
        let scripted = Scripted::trusting(trusted.clone());
        let latency = Latency::new(store.clone()).with_trusted(trusted.clone());
        scripted.set_costs(collect(&items, |i| match i {
            Item::CostProvider(s) => Some(s),
            _ => None,
        }));
        scripted.set_compliances(collect(&items, |i| match i {
            Item::RuleProvider(s) => Some(s),
            _ => None,
        }));
        let rtts = labelled_config_maps(&items, TABLE_LABEL);
        latency.set_table(tables_of::<RoundTrip>(trusted.clone(), rtts));
        let bandwidths = labelled_config_maps(&items, BANDWIDTH_TABLE_LABEL);
        latency.set_bandwidth_table(tables_of::<Bandwidth>(trusted.clone(), bandwidths));
        let ports = Ports {
            gpu_slice: provider(
                GpuSlice::new(store.clone(), GpuConfig::default()),
                &mut tasks,
            )
            .await?,
            latency: provider(latency, &mut tasks).await?,
            scripted: provider(scripted, &mut tasks).await?,
        };

        let mut pending = Vec::new();
        for item in &items {
            let object = manifest_files::object(item).map_err(anyhow::Error::msg)?;
            match (item, object) {
                (Item::Service(api), Some(Object::Service(service))) => {
                    let service = ports.redirect_to_builtin(api, service, &items);
                    store.apply(Object::Service(service));
                }
                (Item::Pod(api), Some(Object::Pod(pod))) => {
                    let waits = pod.node.is_none() && !pod.finished;
                    if waits && pod.placement.as_ref().is_none_or(|p| !p.gated) {
                        pending.push((**api).clone());
                    }
                    store.apply(Object::Pod(pod));
                }
                (_, Some(object)) => store.apply(object),
                (_, None) => {}
            }
        }
        let loopback = (Ipv4Addr::LOCALHOST, 0).into();
        let config = Config {
            listen: loopback,
            admin: loopback,
            tracks_in_flight: false,
            providers: tautline_provider_client::ClientConfig {
                // Services are redirected to this machine.
                external_names: ExternalNames::Any,
                trusted,
                ..tautline_provider_client::ClientConfig::default()
            },
            ..Config::default()
        };
        let app = App::build(config, store.clone(), None).await?;
        let extender = format!("http://{}", app.address()?);
        let admin = format!("http://{}", app.admin_address()?);
        app.spawn(&mut tasks);
        let stop = tasks.stop_token();
        let done = tokio::spawn(tasks.run(std::future::pending()));
        Ok(Self {
            store,
            http: Http::default(),
            extender,
            admin,
            pending,
            stop,
            servers: done,
        })
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.store.snapshot().node_count()
    }

    /// One scheduling cycle over HTTP, as kube-scheduler runs it: its own hard rules, filter,
    /// prioritize. The pod gets the best node.
    ///
    /// # Errors
    /// The extender cannot be reached, or its answer is malformed.
    pub async fn place(&self, pod: &Pod) -> Result<Placement> {
        let mut pod = pod.clone();
        let namespace = pod
            .metadata
            .namespace
            .get_or_insert_with(|| "default".into())
            .clone();
        let name = pod.metadata.name.clone().unwrap_or_default();
        pod.metadata
            .uid
            .get_or_insert_with(|| format!("{namespace}/{name}"));
        let known = convert::pod(&pod);
        let (mut names, mut misfits) = (Vec::new(), Vec::new());
        {
            let snapshot = self.store.snapshot();
            let filter = NodeFilter::new(&snapshot, &known);
            for node in snapshot.nodes() {
                match filter.reason(node) {
                    None => names.push(node.name.to_string()),
                    Some(m) => misfits.push(UnschedulableNode {
                        node: node.name.to_string(),
                        reason: m.to_string(),
                    }),
                }
            }
        }
        names.sort();
        misfits.sort_by(|a, b| a.node.cmp(&b.node));

        let request =
            |nodes: &[String]| serde_json::json!({"Pod": pod, "Nodes": null, "NodeNames": nodes});
        let answer = self.post("filter", &request(&names)).await?;
        if let Some(error) = answer["error"].as_str().filter(|e| !e.is_empty()) {
            anyhow::bail!("the extender cannot plan pod {namespace}/{name}: {error}");
        }
        let usable: Vec<String> = serde_json::from_value(answer["nodenames"].clone())
            .context("filter returned no node names")?;
        let node = match usable.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            several => {
                let scores = self.post("prioritize", &request(several)).await?;
                let score = |node: &str| {
                    let list = scores.as_array().into_iter().flatten();
                    list.filter(|s| s["host"] == node)
                        .find_map(|s| s["score"].as_i64())
                        .unwrap_or(0)
                };
                // Ties go by name: kube-scheduler's own scores are missing here.
                several
                    .iter()
                    .min_by_key(|n| (-score(n), (*n).clone()))
                    .cloned()
            }
        };
        let message = node.is_none().then(|| self.message(&misfits, &answer));
        if let Some(node) = &node {
            let mut bound = known;
            bound.node = Some(node.as_str().into());
            self.store.apply(Object::Pod(bound));
        }
        let round = self.explain(&namespace, &name).await?;
        Ok(Placement {
            namespace,
            pod: name,
            node,
            message,
            misfits,
            round,
        })
    }

    fn message(&self, misfits: &[UnschedulableNode], answer: &Value) -> String {
        let mut counts = std::collections::BTreeMap::<String, usize>::new();
        for m in misfits {
            *counts.entry(m.reason.clone()).or_default() += 1;
        }
        for key in ["failedNodes", "failedAndUnresolvableNodes"] {
            for reason in answer[key].as_object().into_iter().flat_map(|m| m.values()) {
                *counts
                    .entry(reason.as_str().unwrap_or_default().to_owned())
                    .or_default() += 1;
            }
        }
        let parts: Vec<String> = counts.iter().map(|(r, n)| format!("{n} {r}")).collect();
        format!(
            "0/{} nodes are available: {}.",
            self.node_count(),
            parts.join(", ")
        )
    }

    async fn post(&self, verb: &str, body: &Value) -> Result<Value> {
        let url = format!("{}/{verb}", self.extender);
        let answer = self.http.post(&url, serde_json::to_vec(body)?).await?;
        serde_json::from_slice(&answer).with_context(|| format!("{verb} returned no JSON"))
    }

    async fn explain(&self, namespace: &str, pod: &str) -> Result<Option<Record>> {
        let (status, body) = self
            .http
            .get(&format!("{}/explain/{namespace}/{pod}", self.admin))
            .await?;
        if !status.is_success() {
            return Ok(None);
        }
        let records: Vec<Record> = serde_json::from_slice(&body)?;
        Ok(records.into_iter().next())
    }

    /// Adds or removes the label that binds `rule` to a Service, as `kubectl label` does.
    pub fn relabel(&self, namespace: &str, service: &str, rule: &str, enabled: bool) {
        let snapshot = self.store.snapshot();
        if let Some(found) = snapshot.service(namespace, service) {
            let mut changed = (**found).clone();
            changed.rules.retain(|r| **r != *rule);
            if enabled {
                changed.rules.push(rule.into());
            }
            self.store.apply(Object::Service(changed));
        }
    }

    /// Stops the extender and the providers.
    pub async fn stop(self) {
        self.stop.cancel();
        _ = self.servers.await;
    }
}

const LATENCY_RULES: [&str; 3] = ["latency", "jitter", "bandwidth"];

struct Ports {
    gpu_slice: u16,
    latency: u16,
    scripted: u16,
}

impl Ports {
    /// The Service of the manifests with the address of a built-in provider: the one that its
    /// annotation names, else the one of its rule, else the scripted one if a script has its
    /// rule. A Service on loopback stays as it is; any other cannot be reached.
    fn redirect_to_builtin(
        &self,
        api: &k8s_openapi::api::core::v1::Service,
        service: Service,
        items: &[Item],
    ) -> Service {
        let loopback = |host: &String| host == "localhost" || host.starts_with("127.");
        if service.external_name.as_ref().is_some_and(loopback) {
            return service;
        }
        let annotation = api.metadata.annotations.iter().flatten();
        let named = annotation
            .into_iter()
            .find(|(k, _)| *k == BUILTIN_ANNOTATION)
            .map(|(_, v)| v.as_str());
        let has = |rule: &str| service.rules.iter().any(|r| **r == *rule);
        let scripted = items.iter().any(|item| match item {
            Item::CostProvider(s) => has(&s.spec.rule),
            Item::RuleProvider(s) => has(&s.spec.rule),
            _ => false,
        });
        let port = match named {
            Some("gpu-slice") => self.gpu_slice,
            Some("latency") => self.latency,
            Some("scripted") => self.scripted,
            _ if has("gpu-slice") => self.gpu_slice,
            _ if LATENCY_RULES.iter().any(|rule| has(rule)) => self.latency,
            _ if scripted => self.scripted,
            _ => return service,
        };
        Service {
            external_name: Some("127.0.0.1".into()),
            ports: vec![ServicePort {
                name: "ruleprovider".into(),
                port,
            }],
            tls_required: false,
            ..service
        }
    }
}

async fn provider(provider: impl RuleProvider, tasks: &mut Tasks) -> Result<u16> {
    let server = Server::bind(testkit::loopback()).await?;
    let port = server.address().port();
    server.spawn(Arc::new(provider), tasks)?;
    Ok(port)
}

fn collect<T: Clone>(items: &[Item], pick: impl Fn(&Item) -> Option<&Box<T>>) -> Vec<Arc<T>> {
    items
        .iter()
        .filter_map(|i| pick(i).map(|o| Arc::new((**o).clone())))
        .collect()
}

fn labelled_config_maps<'a>(
    items: &'a [Item],
    label: &'static str,
) -> impl Iterator<Item = &'a ConfigMap> {
    items.iter().filter_map(move |item| {
        let Item::ConfigMap(map) = item else {
            return None;
        };
        let value = map.metadata.labels.as_ref()?.get(label)?;
        (value == "enabled").then_some(&**map)
    })
}
