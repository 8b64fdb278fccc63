//! Declares the variables of Kubernetes' admission policies and their types (Kubernetes 1.36,
//! admission/plugin/cel/compile.go: BuildRequestType, BuildNamespaceType).

use tautline_cel::{Environment, Type};

/// Returns an environment with the variables of a policy's expressions: `object`, `oldObject`,
/// `request`, `namespaceObject`, `authorizer`, and with `params` also `params`, for a policy that
/// has a paramKind.
pub fn environment(params: bool) -> Environment {
    let environment = Environment::new()
        .with_record_fields(field)
        .declare("object", Type::Dyn)
        .declare("oldObject", Type::Dyn)
        .declare("request", Type::Record("kubernetes.AdmissionRequest"))
        .declare("namespaceObject", Type::Record("kubernetes.Namespace"))
        .declare("authorizer", Type::AUTHORIZER)
        .declare("authorizer.requestResource", Type::RESOURCE_CHECK);
    if params {
        environment.declare("params", Type::Dyn)
    } else {
        environment
    }
}

/// Returns the type of a record's field; `None` for an unknown field.
fn field(record: &str, field: &str) -> Option<Type> {
    let strings = || Type::list(Type::String);
    let table = || Type::map(Type::String, Type::String);
    Some(match (record, field) {
        ("kubernetes.AdmissionRequest", "kind" | "requestKind") => {
            Type::Record("kubernetes.GroupVersionKind")
        }
        ("kubernetes.AdmissionRequest", "resource" | "requestResource") => {
            Type::Record("kubernetes.GroupVersionResource")
        }
        (
            "kubernetes.AdmissionRequest",
            "subResource" | "requestSubResource" | "name" | "namespace" | "operation",
        ) => Type::String,
        ("kubernetes.AdmissionRequest", "userInfo") => Type::Record("kubernetes.UserInfo"),
        ("kubernetes.AdmissionRequest", "dryRun") => Type::Bool,
        ("kubernetes.AdmissionRequest", "options") => Type::Dyn,
        ("kubernetes.GroupVersionKind", "group" | "version" | "kind") => Type::String,
        ("kubernetes.GroupVersionResource", "group" | "version" | "resource") => Type::String,
        ("kubernetes.UserInfo", "username" | "uid") => Type::String,
        ("kubernetes.UserInfo", "groups") => strings(),
        ("kubernetes.UserInfo", "extra") => Type::map(Type::String, strings()),
        ("kubernetes.Namespace", "metadata") => Type::Record("kubernetes.NamespaceMetadata"),
        ("kubernetes.Namespace", "spec") => Type::Record("kubernetes.NamespaceSpec"),
        ("kubernetes.Namespace", "status") => Type::Record("kubernetes.NamespaceStatus"),
        ("kubernetes.NamespaceSpec", "finalizers") => strings(),
        ("kubernetes.NamespaceStatus", "phase") => Type::String,
        ("kubernetes.NamespaceStatus", "conditions") => {
            Type::list(Type::Record("kubernetes.NamespaceCondition"))
        }
        ("kubernetes.NamespaceCondition", "status" | "type" | "message" | "reason") => Type::String,
        ("kubernetes.NamespaceCondition", "lastTransitionTime") => Type::Timestamp,
        (
            "kubernetes.NamespaceMetadata",
            "name" | "generateName" | "namespace" | "UID" | "resourceVersion",
        ) => Type::String,
        ("kubernetes.NamespaceMetadata", "labels" | "annotations") => table(),
        ("kubernetes.NamespaceMetadata", "creationTimestamp" | "deletionTimestamp") => {
            Type::Timestamp
        }
        ("kubernetes.NamespaceMetadata", "deletionGracePeriodSeconds" | "generation") => Type::Int,
        ("kubernetes.NamespaceMetadata", "finalizers") => strings(),
        _ => return None,
    })
}
