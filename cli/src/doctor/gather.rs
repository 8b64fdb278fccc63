//! Reads an installation. A part that cannot be read becomes a finding, not an error.

pub(super) mod webhooks;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
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
    cluster::{Cluster, FilterRequests, Unread, WebhookConfiguration},
    rights::{self, Right, generated_secret},
    workload::{Role, Workload},
};
use crate::{fetch, replicas};

/// Requests at the same time.
const PARALLEL: usize = 8;
/// Time for a pod's metrics: a pod that does not answer is not a silent API server.
const DEADLINE: Duration = Duration::from_secs(2);
/// Pods of the extender whose metrics are read.
const MAX_METRICS: usize = 8;
/// Namespaces of offers whose pods are read.
const MAX_NAMESPACES: usize = 256;

/// The state of the installation in `namespace`, and the API server's version.
///
/// # Errors
/// The API server cannot be reached, or refuses these credentials.
pub(crate) async fn gather(client: Client, namespace: &str) -> Result<(Cluster, String)> {
    let version = client.apiserver_version().await.map_err(unreachable)?;
    let reader = Reader {
        client,
        namespace: namespace.to_owned(),
        unread: Mutex::default(),
    };
    let cluster = reader.read().await;
    Ok((cluster, version.git_version))
}

fn unreachable(error: kube::Error) -> anyhow::Error {
    let why = fetch::cause(&error);
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => anyhow!(
            "the cluster does not take these credentials ({why}); renew those of the \
             kubeconfig's context, or choose another with --context"
        ),
        _ => anyhow!(
            "the API server does not answer: {why}; is the cluster up, and is it the one that \
             --kubeconfig and --context name?"
        ),
    }
}

struct Reader {
    client: Client,
    namespace: String,
    unread: Mutex<Vec<Unread>>,
}

impl Reader {
    async fn read(&self) -> Cluster {
        let own = &self.namespace;
        let (crds, namespace_exists, deployments, daemon_sets, pods, leases) = tokio::join!(
            self.everywhere("customresourcedefinitions"),
            self.namespace_exists(),
            self.own("deployments"),
            self.own("daemonsets"),
            self.own("pods"),
            self.own("leases"),
        );
        let (nodes, services, policies, offers, bindings, webhooks) = tokio::join!(
            self.everywhere("nodes"),
            self.everywhere("services"),
            self.everywhere("constraintpolicies"),
            self.everywhere("constraintpolicyoffers"),
            self.everywhere("constraintpolicybindings"),
            self.webhooks(),
        );
        let mut cluster = Cluster {
            namespace: own.clone(),
            now: Timestamp::now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            namespace_exists,
            crds,
            deployments,
            daemon_sets,
            pods,
            leases,
            nodes,
            services,
            policies,
            offers,
            bindings,
            webhooks,
            ..Cluster::default()
        };
        let (secrets, slices, workload_pods, rights, filter_requests) = tokio::join!(
            self.secrets(&cluster),
            self.slices(&cluster),
            self.workload_pods(&cluster),
            self.rights(&cluster),
            self.filter_requests(&cluster),
        );
        cluster.secrets = secrets;
        cluster.slices = slices;
        cluster.workload_pods = workload_pods;
        cluster.rights = rights;
        cluster.filter_requests = filter_requests;
        let mut unread = self.unread.lock().unwrap_or_else(|e| e.into_inner());
        cluster.unread = std::mem::take(&mut *unread);
        cluster.unread.sort_by(|a, b| a.what.cmp(&b.what));
        cluster
    }

    fn note(&self, what: String, error: &kube::Error) {
        let why = fetch::cause(error);
        let fix = match error {
            kube::Error::Api(status) if status.code == 403 => {
                "use an account with the right in that message"
            }
            _ => "try again, or read the API server's log",
        };
        let mut unread = self.unread.lock().unwrap_or_else(|e| e.into_inner());
        unread.push(Unread {
            what,
            why,
            fix: fix.to_owned(),
        });
    }

    async fn everywhere<K>(&self, plural: &str) -> Option<Vec<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let api = Api::all_with(self.client.clone(), &ApiResource::erase::<K>(&()));
        self.list(&api, plural.to_owned(), ListParams::default())
            .await
    }

    async fn own<K>(&self, plural: &str) -> Option<Vec<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.within(&self.namespace, plural, ListParams::default())
            .await
    }

    async fn within<K>(&self, namespace: &str, plural: &str, params: ListParams) -> Option<Vec<K>>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let resource = ApiResource::erase::<K>(&());
        let api = Api::namespaced_with(self.client.clone(), namespace, &resource);
        self.list(&api, format!("{plural} in namespace {namespace}"), params)
            .await
    }

    /// A kind that the cluster does not know has no objects. An object that does not parse is
    /// noted and left out.
    async fn list<K: DeserializeOwned>(
        &self,
        api: &Api<DynamicObject>,
        what: String,
        params: ListParams,
    ) -> Option<Vec<K>> {
        let objects = match fetch::pages(api, params).await {
            Ok(objects) => objects,
            Err(kube::Error::Api(status)) if status.code == 404 => return Some(Vec::new()),
            Err(error) => {
                self.note(what, &error);
                return None;
            }
        };
        let parse = |object: DynamicObject| {
            let name = object.name_any();
            // Lists carry no kind for each object, and the types need none.
            let value = serde_json::to_value(object).ok()?;
            let parsed = serde_json::from_value::<K>(value);
            if let Err(error) = &parsed {
                let mut unread = self.unread.lock().unwrap_or_else(|e| e.into_inner());
                unread.push(Unread {
                    what: format!("{name} of {what}"),
                    why: format!("it cannot be parsed: {error}"),
                    fix: "correct the field; kubectl get it with -o yaml".to_owned(),
                });
            }
            parsed.ok()
        };
        Some(objects.into_iter().filter_map(parse).collect())
    }

    async fn namespace_exists(&self) -> Option<bool> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        match api.get_metadata_opt(&self.namespace).await {
            Ok(found) => Some(found.is_some()),
            Err(error) => {
                self.note(format!("namespace {}", self.namespace), &error);
                None
            }
        }
    }

    async fn webhooks(&self) -> Option<Vec<WebhookConfiguration>> {
        let (mutating_list, validating_list) = tokio::join!(
            self.everywhere::<MutatingWebhookConfiguration>("mutatingwebhookconfigurations"),
            self.everywhere::<ValidatingWebhookConfiguration>("validatingwebhookconfigurations"),
        );
        let (mutating_list, validating_list) = (mutating_list?, validating_list?);
        let ours = mutating_list
            .iter()
            .filter(|c| webhooks::is_ours(*c))
            .map(webhooks::mutating);
        let others = validating_list
            .iter()
            .filter(|c| webhooks::is_ours(*c))
            .map(webhooks::validating);
        Some(ours.chain(others).collect())
    }

    /// The Secrets of the extender's and the admission server's certificates.
    async fn secrets(&self, cluster: &Cluster) -> BTreeMap<String, Option<Secret>> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut secrets = BTreeMap::new();
        for name in secret_names(&cluster.workloads()) {
            match api.get_opt(&name).await {
                Ok(secret) => _ = secrets.insert(name, secret),
                Err(error) => {
                    self.note(format!("Secret {}/{name}", self.namespace), &error);
                }
            }
        }
        secrets
    }

    /// The EndpointSlices of the Services that checks look at.
    async fn slices(&self, cluster: &Cluster) -> Option<Vec<EndpointSlice>> {
        let mut wanted = BTreeMap::<String, BTreeSet<String>>::new();
        let hooks = cluster.webhooks.iter().flatten().flat_map(|c| &c.hooks);
        for (namespace, name, _) in hooks.filter_map(|h| h.service.as_ref()) {
            wanted
                .entry(namespace.clone())
                .or_default()
                .insert(name.clone());
        }
        for service in cluster.services.iter().flatten() {
            let mut labels = service.labels().keys();
            let is_provider = labels.any(|key| {
                key == UNDERLAY_LABEL || RULE_LABEL_PREFIXES.iter().any(|p| key.starts_with(p))
            });
            if is_provider {
                let namespace = service.namespace().unwrap_or_default();
                wanted
                    .entry(namespace)
                    .or_default()
                    .insert(service.name_any());
            }
        }
        let lists = stream::iter(wanted).map(async |(namespace, names)| {
            let names: Vec<String> = names.into_iter().collect();
            let selector = format!("kubernetes.io/service-name in ({})", names.join(","));
            let params = ListParams::default().labels(&selector);
            self.within::<EndpointSlice>(&namespace, "endpointslices", params)
                .await
        });
        all_or_none(lists.buffer_unordered(PARALLEL).collect().await)
    }

    /// The pods of namespaces with offers.
    async fn workload_pods(&self, cluster: &Cluster) -> Option<Vec<Pod>> {
        let offers = cluster.offers.iter().flatten();
        let namespaces: BTreeSet<String> = offers.filter_map(ResourceExt::namespace).collect();
        if namespaces.len() > MAX_NAMESPACES {
            return self.everywhere("pods").await;
        }
        let lists = stream::iter(namespaces).map(async |namespace| {
            self.within::<Pod>(&namespace, "pods", ListParams::default())
                .await
        });
        all_or_none(lists.buffer_unordered(PARALLEL).collect().await)
    }

    async fn rights(&self, cluster: &Cluster) -> Option<Vec<(Right, bool)>> {
        cluster.deployments.as_ref()?;
        let workloads = cluster.workloads();
        let needed: BTreeSet<Right> = workloads
            .iter()
            .flat_map(|w| rights::needed(w, &self.namespace))
            .collect();
        let mut needed = needed.into_iter();
        let mut answers = Vec::new();
        // An account that may not ask gets one refusal, not fifty.
        if let Some(first) = needed.next() {
            answers.push(self.right(first).await);
        }
        if answers.iter().all(Result::is_ok) {
            let others = stream::iter(needed).map(|right| self.right(right));
            answers.extend(others.buffer_unordered(PARALLEL).collect::<Vec<_>>().await);
        }
        match answers.into_iter().collect::<kube::Result<Vec<_>>>() {
            Ok(mut answers) => {
                answers.sort();
                Some(answers)
            }
            Err(error) => {
                self.note("rights of the components' accounts".to_owned(), &error);
                None
            }
        }
    }

    async fn right(&self, right: Right) -> kube::Result<(Right, bool)> {
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = right.review(&self.namespace);
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok((right, answer.status.is_some_and(|s| s.allowed)))
    }

    async fn filter_requests(
        &self,
        cluster: &Cluster,
    ) -> BTreeMap<String, Result<FilterRequests, String>> {
        let workloads = cluster.workloads();
        let pods = cluster.pods.as_deref().unwrap_or_default();
        let of = workloads.iter().filter(|w| w.role == Role::Extender);
        let mut running = Vec::new();
        for workload in of {
            let ready = workload.pods(pods).filter(|p| is_running(p));
            running.extend(ready.map(|p| (p.name_any(), workload.admin_port())));
        }
        let reads = stream::iter(running.into_iter().take(MAX_METRICS)).map(async |(pod, port)| {
            let count = self
                .metrics(&pod, port)
                .await
                .map(|text| filter_requests(&text));
            (pod, count)
        });
        reads.buffer_unordered(PARALLEL).collect().await
    }

    /// By the API server's proxy, or where a NetworkPolicy is in its way by a forwarded port.
    async fn metrics(&self, pod: &str, port: i32) -> Result<String, String> {
        let proxied = self.proxied_metrics(pod, port).await;
        let (Err(error), Ok(port)) = (&proxied, u16::try_from(port)) else {
            return proxied;
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        match replicas::forward(&pods, (pod, port), "/metrics", DEADLINE).await {
            Ok((status, body)) if status.is_success() => {
                Ok(String::from_utf8_lossy(&body).into_owned())
            }
            _ => Err(error.clone()),
        }
    }

    async fn proxied_metrics(&self, pod: &str, port: i32) -> Result<String, String> {
        let path = format!(
            "/api/v1/namespaces/{}/pods/{pod}:{port}/proxy/metrics",
            self.namespace
        );
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|e| e.to_string())?;
        match tokio::time::timeout(DEADLINE, self.client.request_text(request)).await {
            Ok(answer) => answer.map_err(|e| fetch::cause(&e)),
            Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        }
    }
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running")
}

fn all_or_none<T>(lists: Vec<Option<Vec<T>>>) -> Option<Vec<T>> {
    let lists: Option<Vec<Vec<T>>> = lists.into_iter().collect();
    Some(lists?.into_iter().flatten().collect())
}

fn secret_names(workloads: &[Workload<'_>]) -> BTreeSet<String> {
    let name = |workload: &Workload<'_>| match (workload.role, workload.flag("--tls-cert")) {
        (Role::Extender | Role::Admission, Some(path)) => workload
            .secret_of(path)
            .map(|(secret, _)| secret.to_owned()),
        (Role::Extender | Role::Admission, None) => generated_secret(workload).map(str::to_owned),
        _ => None,
    };
    workloads.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests;
