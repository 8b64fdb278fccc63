//! Simulates a cluster by a fixed set of objects, for the evaluation of mutation policies without
//! an API server.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::built_in;
use crate::cluster::{ClusterView, ParamQuery, ParamSelector, Refusal, ResourceScope};
use crate::matching::labels;
use crate::model::ParamKind;
use crate::objects::Objects;
use crate::request::Request;

/// A cluster that consists of given objects, such as Namespaces and parameters, for `tautline
/// check`, tests and benchmarks.
#[derive(Clone, Debug, Default)]
pub struct StaticCluster {
    objects: Objects,
    admits: bool,
}

impl FromIterator<Value> for StaticCluster {
    fn from_iter<I: IntoIterator<Item = Value>>(objects: I) -> Self {
        Self {
            objects: Objects(objects.into_iter().map(Arc::new).collect()),
            admits: false,
        }
    }
}

impl ClusterView for StaticCluster {
    /// Returns the Namespace of this name. An unknown Namespace has only the label that every
    /// Namespace has.
    fn namespace(&self, name: &str) -> Option<Arc<Value>> {
        let is = |o: &&Arc<Value>| o["kind"] == "Namespace" && o["metadata"]["name"] == name;
        let found = self.objects.0.iter().find(is).cloned();
        Some(found.unwrap_or_else(|| {
            let labels = json!({"kubernetes.io/metadata.name": name});
            json!({"metadata": {"name": name, "labels": labels}}).into()
        }))
    }

    fn resource_scope(&self, kind: &ParamKind) -> Option<ResourceScope> {
        let cluster_wide = self
            .objects
            .of_kind(&kind.api_version, &kind.kind)
            .any(|o| o["metadata"].get("namespace").is_none());
        Some(if cluster_wide {
            ResourceScope::Cluster
        } else {
            ResourceScope::Namespaced
        })
    }

    fn params(&self, kind: &ParamKind, query: ParamQuery<'_>) -> Vec<Arc<Value>> {
        let found = self
            .objects
            .of_kind(&kind.api_version, &kind.kind)
            .filter(|object| {
                let meta = &object["metadata"];
                meta["namespace"].as_str() == query.namespace
                    && match query.selector {
                        ParamSelector::Name(name) => meta["name"] == name,
                        ParamSelector::Labels(selector) => selector.matches(&labels(object)),
                    }
            });
        found.cloned().collect()
    }

    fn admit(&self, request: &Request, object: &Value) -> Result<Option<Value>, Refusal> {
        if !self.admits {
            return Ok(None);
        }
        let mut admitted = object.clone();
        built_in::admit(request, &mut admitted, &self.objects)?;
        Ok((admitted != *object).then_some(admitted))
    }
}

impl StaticCluster {
    /// Enables the API server's own admission plugins, which run again between the passes of a
    /// request, as in the API server.
    #[must_use]
    pub fn with_built_in_admission(self) -> Self {
        Self {
            admits: true,
            ..self
        }
    }

    /// Admits an object that no API server has admitted, as the API server's own plugins do.
    /// Returns notes on the changes that are left out because an object is not given.
    ///
    /// # Errors
    /// Fails with the API server's refusal.
    pub fn admit_new(&self, request: &Request, object: &mut Value) -> Result<Vec<String>, Refusal> {
        built_in::admit(request, object, &self.objects)
    }

    /// Completes a new pod, whose defaults are set, with what decides on its node, as the API
    /// server's own plugins do: requests of LimitRanges, the priority, and the overhead and nodes of
    /// the RuntimeClass. What is not given has no effect, and an own priority stays.
    ///
    /// # Errors
    /// Fails with the API server's refusal, also of a pod that violates a LimitRange.
    pub fn complete_pod(&self, namespace: &str, pod: &mut Value) -> Result<(), Refusal> {
        built_in::complete_pod(pod, namespace, &self.objects)
    }

    /// Checks a pod by the LimitRanges of its namespace, as the API server does after all changes.
    ///
    /// # Errors
    /// Fails with the API server's refusal.
    pub fn check_pod(&self, namespace: &str, pod: &Value) -> Result<(), Refusal> {
        built_in::check_pod(pod, namespace, &self.objects)
    }
}
