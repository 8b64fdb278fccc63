//! The state of the cluster that policies read.

use std::sync::Arc;

use serde_json::Value;
use tautline_core::selector::Selector;
use tautline_structured_merge::{Schema, Schemas};

use crate::model::ParamKind;
use crate::request::{Kind, Request};
use tautline_cel::{AccessCheck, Decision, EvaluationError};

/// Whether a kind is namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceScope {
    /// Namespaced.
    Namespaced,
    /// Cluster-scoped.
    Cluster,
}

/// The cluster as policies see it. Methods return cached state and do not wait for the
/// network, except [`ClusterView::authorize`].
pub trait ClusterView {
    /// The Namespace of this name.
    fn namespace(&self, name: &str) -> Option<Arc<Value>>;

    /// The scope of a parameter kind; `None` if the kind is unknown.
    fn resource_scope(&self, kind: &ParamKind) -> Option<ResourceScope>;

    /// The parameters that the query selects, in any order.
    fn params(&self, kind: &ParamKind, query: ParamQuery<'_>) -> Vec<Arc<Value>>;

    /// The schema of a kind; by default the bundled one.
    fn schema(&self, kind: &Kind) -> Option<Schema> {
        Schemas::bundled().kind(&kind.group, &kind.version, &kind.kind)
    }

    /// Sets the defaults that the API server sets after each mutation. It must be
    /// idempotent.
    fn set_defaults(&self, kind: &Kind, object: &mut Value) {
        crate::defaults::set(kind, object);
    }

    /// Answers `authorizer.….check(verb)` for the user of the request.
    ///
    /// # Errors
    /// By default always: the authorizer is off.
    fn authorize(
        &self,
        _request: &Request,
        _check: &AccessCheck,
        _verb: &str,
    ) -> Result<Decision, EvaluationError> {
        Err(EvaluationError::failed("the authorizer is off"))
    }
}

/// A query for parameters.
#[derive(Clone, Copy, Debug)]
pub struct ParamQuery<'a> {
    /// Their namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<&'a str>,
    /// By name or labels.
    pub selector: ParamSelector<'a>,
}

/// The selection of parameters.
#[derive(Clone, Copy, Debug)]
pub enum ParamSelector<'a> {
    /// The one of this name.
    Name(&'a str),
    /// All with such labels.
    Labels(&'a Selector),
}
