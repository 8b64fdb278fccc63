//! Provides mutation policies with the live cluster: watched Namespaces and parameters, cached
//! schemas, and access checks by the API server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use serde_json::Value;
use tautline_cel::{AccessCheck, Decision, EvaluationError};
use tautline_mutating_policy::{
    ClusterView, Kind, ParamQuery, ParamSelector, Request, ResourceScope, model::ParamKind,
};
use tautline_runtime::api_call;
use tautline_structured_merge::Schema;

use super::{
    authorizer::Authorizer,
    params::{ParamWatches, WatchedKind, watch_kind},
    schemas::SchemaCache,
};

/// The longest time to fetch a Namespace.
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Cluster {
    client: Client,
    namespaces: WatchedKind,
    pub params: ParamWatches,
    pub schemas: SchemaCache,
    authorizer: Option<Authorizer>,
}

impl Cluster {
    pub(crate) fn new(client: Client, authorizer: bool) -> Self {
        Self {
            schemas: SchemaCache::new(client.clone()),
            authorizer: authorizer.then(|| Authorizer::new(client.clone())),
            client,
            namespaces: WatchedKind::default(),
            params: ParamWatches::default(),
        }
    }

    pub(crate) async fn watch_namespaces(&self) {
        let kind = ParamKind {
            api_version: "v1".to_owned(),
            kind: "Namespace".to_owned(),
        };
        watch_kind(&self.client, &kind, &self.namespaces).await;
    }

    /// Returns the cluster as seen by a request, for which a missing Namespace or schema is
    /// fetched.
    pub(crate) async fn for_request(self: &Arc<Self>, request: &Request) -> RequestCluster {
        self.schemas.fetch_if_missing(&request.kind).await;
        let name = request.namespace.as_str();
        let mut namespace = self.namespaces.objects.get("", name);
        if namespace.is_none() && !name.is_empty() {
            let api: Api<Namespace> = Api::all(self.client.clone());
            let found = api_call::within(NAMESPACE_TIMEOUT, api.get_opt(name)).await;
            let found = found.ok().flatten();
            namespace = found
                .and_then(|n| serde_json::to_value(n).ok())
                .map(Arc::new);
        }
        RequestCluster {
            cluster: Arc::clone(self),
            namespace: namespace.map(|n| (name.to_owned(), n)),
        }
    }
}

pub(crate) struct RequestCluster {
    cluster: Arc<Cluster>,
    namespace: Option<(String, Arc<Value>)>,
}

impl ClusterView for RequestCluster {
    fn namespace(&self, name: &str) -> Option<Arc<Value>> {
        match &self.namespace {
            Some((own, namespace)) if own == name => Some(Arc::clone(namespace)),
            _ => self.cluster.namespaces.objects.get("", name),
        }
    }

    fn resource_scope(&self, kind: &ParamKind) -> Option<ResourceScope> {
        self.cluster.params.resource_scope(kind)
    }

    fn params(&self, kind: &ParamKind, query: ParamQuery<'_>) -> Vec<Arc<Value>> {
        let Some(watched) = self.cluster.params.get(kind) else {
            return Vec::new();
        };
        let namespace = query.namespace.unwrap_or_default();
        match query.selector {
            ParamSelector::Name(name) => watched.objects.get(namespace, name).into_iter().collect(),
            ParamSelector::Labels(selector) => watched.objects.selected(namespace, selector),
        }
    }

    fn schema(&self, kind: &Kind) -> Option<Schema> {
        self.cluster.schemas.kind(kind)
    }

    fn authorize(
        &self,
        request: &Request,
        check: &AccessCheck,
        verb: &str,
    ) -> Result<Decision, EvaluationError> {
        match &self.cluster.authorizer {
            Some(authorizer) => authorizer.authorize(request, check, verb),
            None => Err(EvaluationError::failed(
                "the authorizer is off; start the server with --authorizer",
            )),
        }
    }
}
