//! The request for which policies are evaluated: the AdmissionRequest of admission.k8s.io/v1.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// A group, version and kind, as in an AdmissionReview.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Pod`.
    pub kind: String,
}

/// A group, version and resource, as in an AdmissionReview.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
}

/// The AdmissionRequest that policies evaluate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Request {
    /// The ID of the review, which expressions cannot read.
    pub uid: String,
    /// The kind of `object` and `old_object`.
    pub kind: Kind,
    /// The resource of `object` and `old_object`.
    pub resource: Resource,
    /// The subresource, such as `status`; empty for the object itself.
    pub sub_resource: String,
    /// The kind that the client requested, if it differs from `kind`.
    pub request_kind: Option<Kind>,
    /// The resource that the client requested, if it differs from `resource`.
    pub request_resource: Option<Resource>,
    /// The subresource that the client requested; empty for the object itself.
    pub request_sub_resource: String,
    /// The object's name; empty if the name is to be generated.
    pub name: String,
    /// The object's namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// `username`, `uid`, `groups` and `extra` of the user, as JSON.
    pub user_info: Value,
    /// The new object; null for a DELETE.
    #[serde(deserialize_with = "shared")]
    pub object: Arc<Value>,
    /// The stored object, or null.
    #[serde(deserialize_with = "shared")]
    pub old_object: Arc<Value>,
    /// True if the request stores nothing.
    pub dry_run: bool,
    /// The options of the operation, such as `CreateOptions`, as JSON, or null.
    pub options: Value,
}

fn shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Value>, D::Error> {
    Value::deserialize(from).map(Arc::new)
}

/// The groups of the API server's own kinds, whose objects it decodes strictly. In objects of other
/// groups, such as custom resources, it accepts unknown fields.
const BUILT_IN_GROUPS: [&str; 20] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

impl Kind {
    pub(crate) fn is_pod(&self) -> bool {
        self.group.is_empty() && self.kind == "Pod"
    }

    pub(crate) fn is_built_in(&self) -> bool {
        BUILT_IN_GROUPS.contains(&self.group.as_str())
    }

    /// Returns `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the kind of an object by its apiVersion and kind; `None` if one is missing.
    pub fn of_object(object: &Value) -> Option<Self> {
        let text = |field: &str| object.get(field).and_then(Value::as_str);
        let version = text("apiVersion")?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text("kind")?.to_owned(),
        })
    }
}

impl Request {
    /// Returns the request that creates `object` in the namespace of its metadata; `None` without
    /// apiVersion or kind. The resource is the plural that kubectl guesses; set another one if it
    /// differs.
    pub fn create(object: Value) -> Option<Self> {
        let kind = Kind::of_object(&object)?;
        let text = |pointer: &str| {
            let value = object.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        Some(Self {
            resource: Resource {
                group: kind.group.clone(),
                version: kind.version.clone(),
                resource: plural(&kind.kind),
            },
            name: text("/metadata/name"),
            namespace: text("/metadata/namespace"),
            operation: "CREATE".to_owned(),
            kind,
            object: Arc::new(object),
            ..Self::default()
        })
    }

    pub(crate) fn is_namespace(&self) -> bool {
        let kind = &self.kind;
        kind.group.is_empty() && kind.version == "v1" && kind.kind == "Namespace"
    }

    /// Returns the value of `request` in expressions, without the objects.
    pub(crate) fn to_json(&self) -> Value {
        let mut request = json!({
            "kind": self.kind,
            "resource": self.resource,
            "requestKind": self.request_kind.as_ref().unwrap_or(&self.kind),
            "requestResource": self.request_resource.as_ref().unwrap_or(&self.resource),
            "operation": self.operation,
            "userInfo": if self.user_info.is_null() { json!({}) } else { self.user_info.clone() },
            "dryRun": self.dry_run,
            "options": self.options,
        });
        let texts = [
            ("subResource", &self.sub_resource),
            ("requestSubResource", &self.request_sub_resource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ];
        for (field, text) in texts {
            if !text.is_empty() {
                request[field] = text.as_str().into();
            }
        }
        request
    }
}

/// Returns the plural of a kind, as kubectl guesses it.
pub(crate) fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    if ["s", "x", "ch", "sh"]
        .iter()
        .any(|end| lower.ends_with(end))
    {
        return lower + "es";
    }
    match lower.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => lower + "s",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_value_has_no_objects() {
        let review = json!({
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "a", "operation": "CREATE", "userInfo": {"username": "x"},
            "object": {"kind": "Pod"}, "oldObject": null, "dryRun": true, "options": null,
        });
        let request: Request = serde_json::from_value(review).unwrap();
        assert_eq!(*request.object, json!({"kind": "Pod"}));
        assert!(request.old_object.is_null());
        let seen = request.to_json();
        assert_eq!(seen["requestKind"]["kind"], "Pod");
        assert_eq!(seen["namespace"], "a");
        assert!(seen.get("object").is_none() && seen.get("name").is_none());
    }

    #[test]
    fn plurals_are_those_of_kubectl() {
        for (kind, expected) in [
            ("Pod", "pods"),
            ("NetworkPolicy", "networkpolicies"),
            ("Ingress", "ingresses"),
        ] {
            assert_eq!(plural(kind), expected);
        }
    }
}
