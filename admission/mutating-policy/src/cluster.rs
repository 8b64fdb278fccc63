//! Defines the view of a cluster that mutation policies need, such as Namespaces, parameters and
//! schemas.

use std::sync::Arc;

use serde_json::Value;
use tautline_core::selector::Selector;
use tautline_structured_merge::{Schema, Schemas};

use crate::model::ParamKind;
use crate::request::{Kind, Request};
use tautline_cel::{AccessCheck, Decision, EvaluationError};

/// The scope of a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceScope {
    /// Each object is in a namespace.
    Namespaced,
    /// The objects are not in namespaces.
    Cluster,
}

/// The cluster as policies see it. Methods return cached state, except `authorize`.
pub trait ClusterView {
    /// Returns the Namespace of this name; `None` if it does not exist.
    fn namespace(&self, name: &str) -> Option<Arc<Value>>;

    /// Returns the scope of a parameter kind; `None` if the kind is unknown.
    fn resource_scope(&self, kind: &ParamKind) -> Option<ResourceScope>;

    /// Returns the parameters that the query selects, in any order.
    fn params(&self, kind: &ParamKind, query: ParamQuery<'_>) -> Vec<Arc<Value>>;

    /// Returns the schema of a kind; by default the bundled one.
    fn schema(&self, kind: &Kind) -> Option<Schema> {
        Schemas::bundled().kind(&kind.group, &kind.version, &kind.kind)
    }

    /// Sets the defaults that the API server sets after each mutation. The method is idempotent.
    fn set_defaults(&self, kind: &Kind, object: &mut Value) {
        crate::defaults::set(kind, object);
    }

    /// Returns the object as the API server's own admission plugins change it after a policy
    /// changed it; `None` if they do not. The default is `None`, because the API server runs its
    /// plugins itself.
    fn admit(&self, _request: &Request, _object: &Value) -> Result<Option<Value>, Refusal> {
        Ok(None)
    }

    /// Answers `authorizer.….check(verb)` for the user. The default implementation always fails.
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
    /// The namespace of the parameters; `None` for a cluster-scoped kind.
    pub namespace: Option<&'a str>,
    /// The name or labels of the parameters.
    pub selector: ParamSelector<'a>,
}

/// The criterion by which a `paramRef` selects parameters.
#[derive(Clone, Copy, Debug)]
pub enum ParamSelector<'a> {
    /// Selects the parameter of this name.
    Name(&'a str),
    /// Selects all parameters whose labels match.
    Labels(&'a Selector),
}

/// The refusal of an object by the API server's own admission plugins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub(crate) String);
