//! The namespace of objects that do not name one.

use serde_json::{Value, json};

use super::Document;

/// Common cluster-scoped kinds.
const CLUSTER_WIDE: [&str; 14] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "DeviceClass",
    "IngressClass",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "ResourceSlice",
    "RuntimeClass",
    "StorageClass",
    "ValidatingWebhookConfiguration",
];

/// Returns whether the objects of a kind have no namespace.
pub fn is_cluster_wide(kind: &str) -> bool {
    CLUSTER_WIDE.contains(&kind)
}

/// Gives an object without a namespace this one, as `kubectl --namespace` does.
pub fn set_namespace(document: &mut Document, namespace: &str) {
    let object = &mut document.value;
    if is_cluster_wide(object["kind"].as_str().unwrap_or_default()) {
        return;
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let present = metadata.get("namespace").and_then(Value::as_str);
    if present.unwrap_or_default().is_empty() {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
}
