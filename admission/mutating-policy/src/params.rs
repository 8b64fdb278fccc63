//! Collects the parameters of a binding, as k8s.io/apiserver 0.36.3 does
//! (pkg/admission/plugin/policy/generic, CollectParams).

use std::sync::Arc;

use serde_json::Value;

use crate::cluster::{ClusterView, ParamQuery, ParamSelector, ResourceScope};
use crate::model::{ParamKind, ParamRef, ParamTarget};

/// The fault of a binding whose parameters cannot be collected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misconfiguration(String);

/// Returns the `params` of a binding's invocations, one for each invocation. If the policy or the
/// binding has no parameters, there is one invocation with `None`.
pub(crate) fn collect(
    kind: Option<&ParamKind>,
    reference: Option<&ParamRef>,
    namespace: &str,
    cluster: &dyn ClusterView,
) -> Result<Vec<Option<Arc<Value>>>, Misconfiguration> {
    let (Some(kind), Some(reference)) = (kind, reference) else {
        return Ok(vec![None]);
    };
    let named = reference.namespace.as_deref();
    let namespace = match cluster.resource_scope(kind) {
        None => {
            return Err(Misconfiguration(format!(
                "paramKind {} {} is unknown",
                kind.api_version, kind.kind
            )));
        }
        Some(ResourceScope::Cluster) if named.is_some() => {
            let message = "paramRef.namespace must not be provided for a cluster-scoped paramKind";
            return Err(Misconfiguration(message.to_owned()));
        }
        Some(ResourceScope::Cluster) => None,
        Some(ResourceScope::Namespaced) => Some(named.unwrap_or(namespace)),
    };
    if namespace == Some("") {
        let message = "cannot use namespaced paramRef in policy binding that matches \
                       cluster-scoped resources; set paramRef.namespace";
        return Err(Misconfiguration(message.to_owned()));
    }
    let by = match &reference.target {
        ParamTarget::Name(name) => ParamSelector::Name(name),
        ParamTarget::Selected(selector) => ParamSelector::Labels(selector),
    };
    let mut found = cluster.params(
        kind,
        ParamQuery {
            namespace,
            selector: by,
        },
    );
    if found.is_empty() && reference.deny_if_missing {
        let message = "no params found for policy binding with `Deny` parameterNotFoundAction";
        return Err(Misconfiguration(message.to_owned()));
    }
    found.sort_by_cached_key(|param| name(param));
    Ok(found.into_iter().map(Some).collect())
}

pub(crate) fn name(param: &Value) -> String {
    let text = |field: &str| param["metadata"][field].as_str();
    let name = text("name").unwrap_or_default();
    match text("namespace") {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
