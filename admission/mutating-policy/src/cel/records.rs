//! The fields of `request` and `namespaceObject` (Kubernetes 1.36's
//! admission/plugin/cel/compile.go: BuildRequestType, BuildNamespaceType).

use super::types::Type;

/// The type of a record's field; none if the record has no such field.
pub(super) fn field(record: &str, field: &str) -> Option<Type> {
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
        ("JSONPatch", "op" | "path" | "from") => Type::String,
        ("JSONPatch", "value") => Type::Dyn,
        _ => return None,
    })
}

/// The type a name stands for: `int` in `type(1) == int`.
pub(super) fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "type" => Type::Type(Type::Dyn.into()),
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        _ => return None,
    })
}
