use std::sync::Arc;

use serde_json::Value;
use tautline_core::selector::Selector;
use tautline_structured_merge::{Schema, Schemas};

use crate::model::ParamKind;
use crate::request::{Kind, Request};
use tautline_cel::{AccessCheck, Decision, EvaluationError};

/// Whether the objects of a kind are in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceScope {
    /// Each object is in a namespace.
    Namespaced,
    /// No object is in a namespace.
    Cluster,
}

/// The cluster as policies see it. Methods return cached state, except `authorize`.
pub trait ClusterView {
    /// The Namespace of this name; `None` if it does not exist.
    fn namespace(&self, name: &str) -> Option<Arc<Value>>;

    /// The scope of a parameter kind; `None` if the kind is unknown.
    fn resource_scope(&self, kind: &ParamKind) -> Option<ResourceScope>;

    /// The parameters that the query selects, in any order.
    fn params(&self, kind: &ParamKind, query: ParamQuery<'_>) -> Vec<Arc<Value>>;

    /// The schema of a kind; by default the bundled one.
    fn schema(&self, kind: &Kind) -> Option<Schema> {
        Schemas::bundled().kind(&kind.group, &kind.version, &kind.kind)
    }

    /// Sets the defaults that the API server sets after each mutation; idempotent.
    fn set_defaults(&self, kind: &Kind, object: &mut Value) {
        crate::defaults::set(kind, object);
    }

    /// Returns the object as the API server's own admission plugins change it after a policy did;
    /// by default unchanged, because the API server runs them itself. The error is its refusal.
    fn admit(&self, _request: &Request, _object: &Value) -> Result<Option<Value>, String> {
        Ok(None)
    }

    /// Answers `authorizer.….check(verb)` for the user; by default with an error.
    fn authorize(
        &self,
        _request: &Request,
        _check: &AccessCheck,
        _verb: &str,
    ) -> Result<Decision, EvaluationError> {
        Err(EvaluationError::failed("the authorizer is off"))
    }
}

/// The parameters that a binding selects.
#[derive(Clone, Copy, Debug)]
pub struct ParamQuery<'a> {
    /// Their namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<&'a str>,
    /// Their name or labels.
    pub selector: ParamSelector<'a>,
}

/// Which parameters a `paramRef` selects.
#[derive(Clone, Copy, Debug)]
pub enum ParamSelector<'a> {
    /// The one of this name.
    Name(&'a str),
    /// All whose labels match.
    Labels(&'a Selector),
}
