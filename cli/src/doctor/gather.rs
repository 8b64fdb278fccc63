//! Reads an installation. A part that cannot be read becomes a finding, not an error.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    future::Future,
    time::Duration,
};

use anyhow::{Result, anyhow};
use futures::{StreamExt, stream};
use hyper::Request;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        authorization::v1::SubjectAccessReview,
        core::v1::{Namespace, Pod, Secret},
        discovery::v1::EndpointSlice,
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde::de::DeserializeOwned;
use tautline_core::providers::{RULE_LABEL_PREFIXES, UNDERLAY_LABEL};

use super::{
    checks::filter_requests,
    cluster::{Cluster, FilterRequests, WebhookConfiguration},
    finding::{Finding, not_checked},
    rights::{self, Right},
    workload::{Role, Workload},
};
use crate::{cluster_fault, fetch, replicas};

/// The maximum number of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// The deadline of a pod's metrics. A pod that does not answer does not mean a silent API server.
const DEADLINE: Duration = Duration::from_secs(2);
/// The maximum number of the extender's pods whose metrics are read.
const MAX_METRICS_PODS: usize = 8;
/// The number of namespaces with offers up to which pods are read by namespace.
const MAX_NAMESPACES: usize = 256;

/// Reads parts of a cluster concurrently into its fields.
macro_rules! read {
    ($cluster:ident, $($field:ident: $part:expr),+ $(,)?) => {
        let ($($field),+) = tokio::join!($($part),+);
        $($cluster.$field = $field;)+
    };
}

/// Reads the state of the installation in `namespace`, and the API server's version.
///
/// # Errors
/// The API server cannot be reached, or refuses these credentials.
pub(crate) async fn gather(client: Client, namespace: &str) -> Result<(Cluster, String)> {
    let version = client.apiserver_version().await.map_err(unreachable)?;
    let reader = Reader {
        client,
        namespace,
        unread: RefCell::default(),
    };
    let mut cluster = reader.read().await;
    cluster.kubernetes.clone_from(&version.git_version);
    Ok((cluster, version.git_version))
}

fn unreachable(error: kube::Error) -> anyhow::Error {
    anyhow!(
        "the API server cannot be asked: {}",
        cluster_fault::explain(&error)
    )
}

trait Kind: Resource<DynamicType = ()> + DeserializeOwned {}

impl<K: Resource<DynamicType = ()> + DeserializeOwned> Kind for K {}

struct Reader<'a> {
    client: Client,
    namespace: &'a str,
    unread: RefCell<Vec<Finding>>,
}

impl Reader<'_> {
    async fn read(self) -> Cluster {
        let own = Some(self.namespace);
        let mut cluster = Cluster {
            namespace: self.namespace.to_owned(),
            now: Timestamp::now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Cluster::default()
        };
        read!(cluster,
            namespace_exists: self.namespace_exists(),
            crds: self.list(None),
            deployments: self.list(own),
            daemon_sets: self.list(own),
            pods: self.list(own),
            leases: self.list(own),
        );
        read!(cluster,
            nodes: self.list(None),
            services: self.list(None),
            policies: self.list(None),
            offers: self.list(None),
            bindings: self.list(None),
            webhooks: self.webhooks(),
        );
        read!(cluster,
            secrets: self.secrets(&cluster),
            slices: self.slices(&cluster),
            resource_slices: self.list_with_gpu_agents(&cluster),
            device_classes: self.list_with_gpu_agents(&cluster),
            workload_pods: self.workload_pods(&cluster),
            rights: self.rights(&cluster),
            filter_requests: self.filter_requests(&cluster),
        );
        cluster.unread = self.unread.into_inner();
        cluster.unread.sort_by(|a, b| a.object.cmp(&b.object));
        cluster
    }

    /// Returns what was read, or notes the error.
    fn noted<T>(&self, what: impl Into<String>, read: kube::Result<T>) -> Option<T> {
        let note = |error: &kube::Error| {
            let fix = match error {
                kube::Error::Api(status) if status.code == 403 => {
                    "use an account with the right in that message"
                }
                _ => "try again, or read the API server's log",
            };
            self.note(what.into(), &fetch::cause(error), fix);
        };
        read.inspect_err(note).ok()
    }

    fn note(&self, what: String, why: &str, fix: &str) {
        self.unread.borrow_mut().push(not_checked(what, why, fix));
    }

    async fn list<K: Kind>(&self, namespace: Option<&str>) -> Option<Vec<K>> {
        let params = ListParams::default();
        self.list_as::<K, K>(namespace, params).await
    }

    /// Lists the objects of a kind, of one namespace or all, and parses each as a `T`. A kind that
    /// the cluster does not know has no objects. An object that does not parse is noted and left
    /// out.
    async fn list_as<K: Kind, T: DeserializeOwned>(
        &self,
        namespace: Option<&str>,
        params: ListParams,
    ) -> Option<Vec<T>> {
        let (client, resource) = (self.client.clone(), ApiResource::erase::<K>(&()));
        let plural = &resource.plural;
        let (api, what) = match namespace {
            Some(namespace) => (
                Api::<DynamicObject>::namespaced_with(client, namespace, &resource),
                format!("{plural} in namespace {namespace}"),
            ),
            None => (Api::all_with(client, &resource), plural.clone()),
        };
        let objects = match fetch::pages(&api, params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Some(Vec::new()),
            read => self.noted(&what, read)?,
        };
        let parse = |object: DynamicObject| {
            let name = object.name_any();
            // The objects of a list have no kind, and the types need no kind.
            let parsed = serde_json::from_value(serde_json::to_value(object).ok()?);
            let note = |error: &serde_json::Error| {
                let why = format!("it cannot be parsed: {error}");
                let fix = "correct the field; kubectl get it with -o yaml";
                self.note(format!("{name} of {what}"), &why, fix);
            };
            parsed.inspect_err(note).ok()
        };
        Some(objects.into_iter().filter_map(parse).collect())
    }

    /// Lists the objects of a kind in several namespaces, each with its own parameters.
    async fn list_in<K: Kind>(
        &self,
        namespaces: impl Iterator<Item = (String, ListParams)>,
    ) -> Option<Vec<K>> {
        let lists = namespaces
            .map(async |(namespace, params)| self.list_as::<K, K>(Some(&namespace), params).await);
        let lists = concurrently(lists).await;
        let lists: Option<Vec<_>> = lists.into_iter().collect();
        Some(lists?.into_iter().flatten().collect())
    }

    async fn namespace_exists(&self) -> Option<bool> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = api.get_metadata_opt(self.namespace).await;
        let found = self.noted(format!("namespace {}", self.namespace), found)?;
        Some(found.is_some())
    }

    async fn webhooks(&self) -> Option<Vec<WebhookConfiguration>> {
        let (mutating, validating) = tokio::join!(
            self.configurations::<MutatingWebhookConfiguration>(),
            self.configurations::<ValidatingWebhookConfiguration>(),
        );
        Some([mutating?, validating?].concat())
    }

    async fn configurations<K>(&self) -> Option<Vec<WebhookConfiguration>>
    where
        K: Kind + k8s_openapi::Resource,
    {
        let all = self.list_as::<K, ValidatingWebhookConfiguration>(None, ListParams::default());
        let ours = all.await?.into_iter().filter(|c| {
            let part_of = c.labels().get("app.kubernetes.io/part-of");
            part_of.is_some_and(|p| p == "tautline") || c.name_any().starts_with("tautline-")
        });
        let kind = K::KIND;
        Some(
            ours.map(|spec| WebhookConfiguration { kind, spec })
                .collect(),
        )
    }

    /// Reads the Secrets of the extender's and the admission server's certificates.
    async fn secrets(&self, cluster: &Cluster) -> BTreeMap<String, Option<Secret>> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        let workloads = cluster.workloads();
        let names: BTreeSet<&str> = workloads.iter().filter_map(Workload::tls_secret).collect();
        let mut secrets = BTreeMap::new();
        for name in names {
            let what = format!("Secret {}/{name}", self.namespace);
            if let Some(secret) = self.noted(what, api.get_opt(name).await) {
                secrets.insert(name.to_owned(), secret);
            }
        }
        secrets
    }

    /// Reads the EndpointSlices of the Services that checks look at.
    async fn slices(&self, cluster: &Cluster) -> Option<Vec<EndpointSlice>> {
        let webhooks = cluster.webhooks.iter().flatten();
        let called = webhooks.flat_map(WebhookConfiguration::hooks);
        let called = called.map(|(_, s)| (s.namespace.clone(), s.name.clone()));
        let is_provider = |key: &String| {
            key == UNDERLAY_LABEL || RULE_LABEL_PREFIXES.iter().any(|p| key.starts_with(p))
        };
        let services = cluster.services.iter().flatten();
        let providers = services.filter(|s| s.labels().keys().any(is_provider));
        let providers = providers.map(|s| (s.namespace().unwrap_or_default(), s.name_any()));
        let mut wanted = BTreeMap::<String, BTreeSet<String>>::new();
        for (namespace, name) in called.chain(providers) {
            wanted.entry(namespace).or_default().insert(name);
        }
        let lists = wanted.into_iter().map(|(namespace, names)| {
            let names: Vec<String> = names.into_iter().collect();
            let selector = format!("kubernetes.io/service-name in ({})", names.join(","));
            (namespace, ListParams::default().labels(&selector))
        });
        self.list_in(lists).await
    }

    /// Lists the objects of a kind that matters only where GPU agents run.
    async fn list_with_gpu_agents<K: Kind>(&self, cluster: &Cluster) -> Option<Vec<K>> {
        let workloads = cluster.workloads();
        workloads.iter().find(|w| w.role == Role::GpuAgent)?;
        self.list(None).await
    }

    /// Reads the pods of namespaces with offers.
    async fn workload_pods(&self, cluster: &Cluster) -> Option<Vec<Pod>> {
        let offers = cluster.offers.iter().flatten();
        let namespaces: BTreeSet<String> = offers.filter_map(ResourceExt::namespace).collect();
        if namespaces.len() > MAX_NAMESPACES {
            return self.list(None).await;
        }
        let lists = namespaces.into_iter().map(|n| (n, ListParams::default()));
        self.list_in(lists).await
    }

    async fn rights(&self, cluster: &Cluster) -> Option<Vec<(Right, bool)>> {
        cluster.deployments.as_ref()?;
        let workloads = cluster.workloads();
        let of = |w| rights::needed(w, self.namespace);
        let needed: BTreeSet<Right> = workloads.iter().flat_map(of).collect();
        let mut needed = needed.into_iter();
        // An account without the right to ask gets one refusal instead of fifty.
        let first = needed.next().map(|right| self.right(right));
        let mut answers = concurrently(first).await;
        if answers.iter().all(Result::is_ok) {
            answers.extend(concurrently(needed.map(|right| self.right(right))).await);
        }
        let answers = answers.into_iter().collect::<kube::Result<BTreeSet<_>>>();
        let answers = self.noted("rights of the components' accounts", answers)?;
        Some(answers.into_iter().collect())
    }

    async fn right(&self, right: Right) -> kube::Result<(Right, bool)> {
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = right.review(self.namespace);
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok((right, answer.status.is_some_and(|s| s.allowed)))
    }

    async fn filter_requests(
        &self,
        cluster: &Cluster,
    ) -> BTreeMap<String, Result<FilterRequests, String>> {
        let workloads = cluster.workloads();
        let extenders = workloads.iter().filter(|w| w.role == Role::Extender);
        let running = extenders.flat_map(|workload| {
            let pods = workload.pods(cluster.pods.as_deref().unwrap_or_default());
            let running = pods.filter(|p| replicas::is_running(p));
            running.map(|p| (p.name_any(), replicas::admin_port(p)))
        });
        let reads = running.take(MAX_METRICS_PODS).map(async |(pod, port)| {
            let metrics = self.metrics(&pod, port).await;
            (pod, metrics.map(|text| filter_requests(&text)))
        });
        concurrently(reads).await.into_iter().collect()
    }

    /// Reads a pod's metrics through the API server's proxy, or through a forwarded port where a
    /// NetworkPolicy blocks the proxy.
    async fn metrics(&self, pod: &str, port: u16) -> Result<String, String> {
        let proxied = self.proxied_metrics(pod, port).await;
        if proxied.is_ok() {
            return proxied;
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        match replicas::forward(&pods, (pod, port), "/metrics", DEADLINE).await {
            Ok((status, body)) if status.is_success() => {
                Ok(String::from_utf8_lossy(&body).into_owned())
            }
            _ => proxied,
        }
    }

    async fn proxied_metrics(&self, pod: &str, port: u16) -> Result<String, String> {
        let namespace = self.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics");
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|e| e.to_string())?;
        match tokio::time::timeout(DEADLINE, self.client.request_text(request)).await {
            Ok(answer) => answer.map_err(|e| fetch::cause(&e)),
            Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        }
    }
}

async fn concurrently<F: Future>(calls: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let calls = stream::iter(calls).buffer_unordered(MAX_CONCURRENT_REQUESTS);
    calls.collect().await
}

#[cfg(test)]
mod tests;
