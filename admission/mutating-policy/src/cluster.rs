//! What policies ask of the cluster around them.

use std::sync::Arc;

use serde_json::{Value, json};
use tautline_core::selector::Selector;
use tautline_structured_merge::{Schema, Schemas};

use crate::model::ParamKind;
use crate::request::{Kind, Request};
use tautline_cel::{AccessCheck, Decision, EvaluationError};

/// Whether objects of a kind lie in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceScope {
    /// In namespaces.
    Namespaced,
    /// Cluster-wide.
    Cluster,
}

/// The cluster as policies see it. Answers come from what is already known: none
/// of these waits on the network, but for [`World::authorize`] where it is on.
pub trait ClusterView {
    /// The Namespace of this name.
    fn namespace(&self, name: &str) -> Option<Arc<Value>>;

    /// Where objects of a parameter kind lie; none if the kind is not known (yet).
    fn resource_scope(&self, kind: &ParamKind) -> Option<ResourceScope>;

    /// The parameters that `wanted` names, in any order.
    fn params(&self, kind: &ParamKind, wanted: ParamQuery<'_>) -> Vec<Arc<Value>>;

    /// The type of a kind; the bundled one unless there is a better one.
    fn schema(&self, kind: &Kind) -> Option<Schema> {
        Schemas::bundled().kind(&kind.group, &kind.version, &kind.kind)
    }

    /// Sets the defaults that the API server sets, as it does after each mutation:
    /// of the right types, and twice is once.
    fn set_defaults(&self, kind: &Kind, object: &mut Value) {
        crate::defaults::set(kind, object);
    }

    /// Answers `authorizer.….check(verb)` for the user of the request.
    ///
    /// # Errors
    /// By default, always: questions to the authorizer are off.
    fn authorize(
        &self,
        _request: &Request,
        _check: &AccessCheck,
        _verb: &str,
    ) -> Result<Decision, EvaluationError> {
        Err(EvaluationError::failed(
            "questions to the authorizer are turned off",
        ))
    }
}

/// Which parameters are looked for.
#[derive(Clone, Copy, Debug)]
pub struct ParamQuery<'a> {
    /// Their namespace; none for a kind that is cluster-wide.
    pub namespace: Option<&'a str>,
    /// By name or labels.
    pub selector: ParamSelector<'a>,
}

/// By what parameters are looked for.
#[derive(Clone, Copy, Debug)]
pub enum ParamSelector<'a> {
    /// The one of this name.
    Name(&'a str),
    /// All with such labels.
    Labels(&'a Selector),
}

/// A world of a few objects, as for a trial on the command line, in tests and in
/// benchmarks: Namespaces and parameters are what was put in.
#[derive(Clone, Debug, Default)]
pub struct StaticCluster(Vec<Arc<Value>>);

impl FromIterator<Value> for StaticCluster {
    fn from_iter<I: IntoIterator<Item = Value>>(objects: I) -> Self {
        Self(objects.into_iter().map(Arc::new).collect())
    }
}

impl ClusterView for StaticCluster {
    /// One that was not put in has only the label that every Namespace has.
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

    fn params(&self, kind: &ParamKind, wanted: ParamQuery<'_>) -> Vec<Arc<Value>> {
        let found = self.of_kind(kind).filter(|object| {
            let meta = &object["metadata"];
            meta["namespace"].as_str() == wanted.namespace
                && match wanted.selector {
                    ParamSelector::Name(name) => meta["name"] == name,
                    ParamSelector::Labels(selector) => {
                        selector.matches(&crate::matching::labels(object))
                    }
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
