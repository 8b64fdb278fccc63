use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::{ClusterView, ParamQuery, ParamSelector, ResourceScope};
use crate::matching::labels;
use crate::model::ParamKind;

/// Given Namespaces and parameters, for `tautline check`, tests and benchmarks.
#[derive(Clone, Debug, Default)]
pub struct StaticCluster(Vec<Arc<Value>>);

impl FromIterator<Value> for StaticCluster {
    fn from_iter<I: IntoIterator<Item = Value>>(objects: I) -> Self {
        Self(objects.into_iter().map(Arc::new).collect())
    }
}

impl ClusterView for StaticCluster {
    /// An unknown Namespace has only the label that every Namespace has.
    fn namespace(&self, name: &str) -> Option<Arc<Value>> {
        let is = |o: &&Arc<Value>| o["kind"] == "Namespace" && o["metadata"]["name"] == name;
        let found = self.0.iter().find(is).cloned();
        Some(found.unwrap_or_else(|| {
            let labels = json!({"kubernetes.io/metadata.name": name});
            json!({"metadata": {"name": name, "labels": labels}}).into()
        }))
    }

    fn resource_scope(&self, kind: &ParamKind) -> Option<ResourceScope> {
        let cluster_wide = self
            .of_kind(kind)
            .any(|o| o["metadata"].get("namespace").is_none());
        Some(if cluster_wide {
            ResourceScope::Cluster
        } else {
            ResourceScope::Namespaced
        })
    }

    fn params(&self, kind: &ParamKind, query: ParamQuery<'_>) -> Vec<Arc<Value>> {
        let found = self.of_kind(kind).filter(|object| {
            let meta = &object["metadata"];
            meta["namespace"].as_str() == query.namespace
                && match query.selector {
                    ParamSelector::Name(name) => meta["name"] == name,
                    ParamSelector::Labels(selector) => selector.matches(&labels(object)),
                }
        });
        found.cloned().collect()
    }
}

impl StaticCluster {
    fn of_kind(&self, kind: &ParamKind) -> impl Iterator<Item = &Arc<Value>> {
        let is = |o: &&Arc<Value>| o["apiVersion"] == *kind.api_version && o["kind"] == *kind.kind;
        self.0.iter().filter(is)
    }
}
