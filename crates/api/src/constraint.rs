//! The kinds of `constraint.ciena.com/v1alpha1`, compatible with ciena/turnbuckle.

// Printer columns are equal-looking attributes.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, Unexpected},
};
use serde_json::Value;

pub use tautline_core::{
    Compliance, Reference,
    model::{Prefer, ProviderUnavailable, TargetKind, ViolationPolicy},
};

/// A named set of rules.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "constraint.ciena.com",
    version = "v1alpha1",
    kind = "ConstraintPolicy",
    plural = "constraintpolicies",
    shortname = "cp",
    namespaced,
    derive = "PartialEq",
    status = "ConstraintPolicyStatus",
    doc = "A named set of rules that offers apply to workloads.",
    printcolumn(name = "Rules", type_ = "string", json_path = ".spec.rules[*].name"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
pub struct ConstraintPolicySpec {
    /// The rules, at least one. If several rules have one name, the first counts.
    #[schemars(length(min = 1, max = 64))]
    pub rules: Vec<PolicyRule>,
}

/// A policy has no status yet. Turnbuckle has the subresource.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct ConstraintPolicyStatus {}

/// A rule: a quantity, the requested value, and the limit.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
pub struct PolicyRule {
    /// The rule's name, for example "latency". The rule's provider is the Service with the
    /// label constraint.ciena.com/constraint-NAME: enabled. At most 52 characters, so that the
    /// label fits.
    #[schemars(
        length(min = 1, max = 52),
        regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    )]
    pub name: String,
    /// The requested value, in the provider's syntax: a string, a number or a boolean.
    #[serde(default, skip_serializing_if = "RuleValue::is_empty")]
    pub request: RuleValue,
    /// The worst acceptable value, in the provider's syntax.
    #[serde(default, skip_serializing_if = "RuleValue::is_empty")]
    pub limit: RuleValue,
    /// The rule's weight among the offer's rules when nodes are scored (default 1). A rule
    /// with weight 0 only filters nodes. A field of Tautline, not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: Option<i64>,
    /// The nodes that the rule prefers: WithinRequest (default) or Nearest. A field of Tautline,
    /// not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<Prefer>,
}

/// The text of a value as its author wrote it: `20ms`, `true`, `2048`.
#[derive(Serialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(transparent)]
pub struct RuleValue(pub String);

impl RuleValue {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for RuleValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = |found| {
            Err(de::Error::invalid_type(
                found,
                &"a string, a number or a boolean",
            ))
        };
        Ok(Self(match Value::deserialize(deserializer)? {
            Value::Null => String::new(),
            Value::String(text) => text,
            Value::Bool(value) => value.to_string(),
            Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                // A whole number is written without a fraction.
                Some(fraction) => fraction.to_string(),
                None => number.to_string(),
            },
            Value::Array(_) => return wrong(Unexpected::Seq),
            Value::Object(_) => return wrong(Unexpected::Map),
        }))
    }
}

impl JsonSchema for RuleValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RuleValue".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // No schema type allows `true`, `2048` and `5ms`.
        json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
    }
}

/// The workloads that the policies apply to, and the action on a violation.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "constraint.ciena.com",
    version = "v1alpha1",
    kind = "ConstraintPolicyOffer",
    plural = "constraintpolicyoffers",
    shortname = "cpo",
    namespaced,
    derive = "PartialEq",
    status = "ConstraintPolicyOfferStatus",
    validation = Rule::new("self.metadata.name.size() <= 63").message(
        "the name must be 63 characters or fewer: it becomes a label of the offer's bindings"
    ),
    validation = Rule::new(
        "!has(self.spec.evict) || self.spec.evict.all(e, self.spec.targets.exists(t, t.kind == 'Pod' && !has(t.cluster) && (has(t.name) ? t.name : 'default') == e))"
    ).message("spec.evict must name targets of the offer whose kind is Pod, without cluster"),
    validation = Rule::new("self.spec.targets.exists(t, !has(t.cluster))").message(
        "all targets are of other clusters; add one without cluster, for the pods that are placed"
    ),
    validation = Rule::new(
        "!has(self.spec.group) || self.spec.targets.exists(t, t.kind == 'Pod' && !has(t.peers) && !has(t.cluster))"
    ).message(
        "spec.group needs a target of kind Pod without peers and cluster, whose pods form groups; add one with a labelSelector"
    ),
    validation = Rule::new(
        "has(self.spec.group) || !self.spec.targets.exists(t, has(t.peers))"
    ).message("a target has peers: group, and the offer has no group; add spec.group"),
    doc = "Selects workloads and applies policies to them; becomes one ConstraintPolicyBinding for each tuple of selected objects.",
    printcolumn(name = "Grace", type_ = "string", json_path = ".spec.grace"),
    printcolumn(name = "Count", type_ = "integer", json_path = ".status.bindingCount"),
    printcolumn(
        name = "Compliant",
        type_ = "integer",
        json_path = ".status.compliantBindingCount"
    ),
    printcolumn(
        name = "Policies",
        type_ = "string",
        json_path = ".spec.policies",
        priority = 1
    ),
    printcolumn(
        name = "Period",
        type_ = "string",
        json_path = ".spec.period",
        priority = 1
    ),
    printcolumn(
        name = "ViolationPolicy",
        type_ = "string",
        json_path = ".spec.violationPolicy",
        priority = 1
    ),
    printcolumn(
        name = "Selector",
        type_ = "string",
        json_path = ".status.bindingSelector",
        priority = 1
    ),
    printcolumn(
        name = "Targets",
        type_ = "string",
        json_path = ".spec.targets[*].name",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ConstraintPolicyOfferSpec {
    /// The targets that the policies relate: a pod and its peers. Names are unique. One target
    /// may have no name; it is called default.
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(validation = Rule::new(
        "self.all(a, self.exists_one(b, (has(a.name) ? a.name : 'default') == (has(b.name) ? b.name : 'default')))"
    ).message("target names must be unique; a target without a name is called default"))]
    #[x_kube(validation = Rule::new(
        "self.filter(t, has(t.peers)).size() <= 1"
    ).message("only one target may have peers, and it has all pods of the group; remove the others"))]
    pub targets: Vec<OfferTarget>,
    /// Names of policies in the offer's namespace.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub policies: Vec<String>,
    /// How often a binding is evaluated (default 1m). A duration: 10m, 1h30m, 500us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub period: Option<String>,
    /// The time that a binding may be out of range before it is in violation (default 0s).
    /// A duration: 10m, 1h30m, 500us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub grace: Option<String>,
    /// The action on a violation: Ignore (default), Mediate or Evict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violation_policy: Option<ViolationPolicy>,
    /// The names of the targets whose pods may be evicted (default: the first target of kind Pod
    /// without cluster, which the offer is about; the others are its peers). A field of Tautline,
    /// not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Vec<String>",
        length(min = 1, max = 8),
        inner(length(min = 1, max = 63))
    )]
    pub evict: Option<Vec<String>>,
    /// Pods that end together may be evicted, all of them at once: those of a Job, a JobSet, a
    /// LeaderWorkerSet's group, a RayCluster, or of a controller that Tautline does not know
    /// (default false: such pods are not evicted). A field of Tautline, not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict_groups: Option<bool>,
    /// The pods of the first target of kind Pod without cluster form groups, each of which is
    /// placed together or not at all (default: pods are placed one by one). A field of Tautline,
    /// not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OfferGroup")]
    pub group: Option<OfferGroup>,
    /// The effect of a rule without a working provider on placement: Ignore or Reject. The
    /// default is the extender's flag; if that is unset, Reject for a rule with a limit and Ignore
    /// for others. A field of Tautline, not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_unavailable: Option<ProviderUnavailable>,
}

impl ConstraintPolicyOfferSpec {
    /// Returns the names of the targets whose pods may be evicted.
    pub fn evictable_targets(&self) -> Vec<&str> {
        match &self.evict {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => {
                let mut targets = self.local_targets();
                let first = targets.find(|(_, t)| t.kind == TargetKind::Pod);
                first.map(|(_, t)| t.role()).into_iter().collect()
            }
        }
    }

    /// Returns the targets without a cluster, each with its position in `targets`. They have the
    /// order of [`Offer::targets`](tautline_core::model::Offer::targets).
    pub fn local_targets(&self) -> impl Iterator<Item = (usize, &OfferTarget)> {
        let targets = self.targets.iter().enumerate();
        targets.filter(|(_, target)| target.cluster.is_none())
    }
}

/// The rule by which pods form groups, each of which is placed together or not at all.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfferGroup {
    /// The key of a label: pods with the same value are a group. By default pods of one JobSet, Job,
    /// LeaderWorkerSet group, RayCluster or other controller are a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub by: Option<String>,
    /// The number of pods that must be placed together (default: the number that their controller
    /// states, for example the parallelism of a Job).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 512), extend("format" = "int32"))]
    pub minimum: Option<u32>,
}

/// The objects that a target selects by their relation to a pod.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TargetPeers {
    /// The other pods of the pod's own group.
    Group,
}

fn duration_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 64,
        "nullable": true,
        "x-kubernetes-validations": [{
            // Kubernetes' CEL reads Go durations, but not their unit-less zero.
            "rule": "self == '0' || (self.matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h)') && duration(self) >= duration('0s'))",
            "message": "must be a duration that is not negative: 10m, 1h30m, 500us",
        }],
    })
}

/// A target: the role of a kind of object in the constraint, and a selector.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.peers) || self.kind == 'Pod'").message(
    "peers are pods of a group; write kind: Pod"
))]
#[x_kube(validation = Rule::new("!has(self.peers) || !has(self.labelSelector)").message(
    "peers: group selects the pods of the group; remove labelSelector"
))]
#[x_kube(validation = Rule::new("!has(self.cluster) || self.kind == 'Pod'").message(
    "only pods of other clusters are selected; write kind: Pod, or remove cluster"
))]
#[x_kube(validation = Rule::new("!has(self.cluster) || !has(self.peers)").message(
    "peers: group selects pods of this cluster; remove cluster"
))]
#[x_kube(validation = Rule::new(
    "!has(self.cluster) || !has(self.apiVersion) || self.apiVersion in ['', 'v1']"
).message("the apiVersion of pods is v1; write it, or remove the field"))]
pub struct OfferTarget {
    /// The target's role in the constraint, for example "source" (default: default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
    /// The API version of the selected objects. Optional for Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 253),
        regex(
            pattern = r"^(([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z]([-a-z0-9]*[a-z0-9])?)?$"
        )
    )]
    pub api_version: Option<String>,
    /// The kind of the selected objects.
    pub kind: TargetKind,
    /// A field of Turnbuckle, which Tautline stores and does not use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub mode: Option<String>,
    /// Selects objects in the offer's namespace. An empty or missing selector selects all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// The value group, instead of a selector: the target selects the other pods of a pod's own
    /// group. The offer needs `group`. A field of Tautline, not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TargetPeers")]
    pub peers: Option<TargetPeers>,
    /// The other cluster whose pods the target selects, as the label tautline.io/cluster of a Secret
    /// with its kubeconfig names it (default: this cluster). The pods are in the namespace of the
    /// same name there, and are never evicted. A field of Tautline, not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "String",
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub cluster: Option<String>,
}

impl OfferTarget {
    /// Returns the target's name, or its default.
    pub fn role(&self) -> &str {
        self.name.as_deref().unwrap_or("default")
    }
}

/// The status of an offer.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConstraintPolicyOfferStatus {
    /// The `metadata.generation` that this status is about. A field of Tautline, not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of the offer's bindings.
    #[serde(default)]
    pub binding_count: i64,
    /// The number of bindings that are Compliant.
    #[serde(default)]
    pub compliant_binding_count: i64,
    /// The label selector of the offer's bindings.
    #[serde(default)]
    pub binding_selector: String,
    /// The last eviction for the offer. A field of Tautline, not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_eviction: Option<LastEviction>,
    /// The findings of the controller and of the admission webhooks, which have types of their
    /// own. A field of Tautline, not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
}

/// An eviction. It is recorded before the API call, so that the next leader knows of it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastEviction {
    /// The pod's name, in the offer's namespace.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// The node that the pod was on.
    pub node: String,
    /// The binding that was violated.
    pub binding: String,
    /// The time of the eviction.
    pub time: Time,
    /// The pods that were evicted with it, as "8 pods of JobSet train".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The time of the first of a row of evictions, each less than ten cool-downs after the one
    /// before. A pod created since then is a replacement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The time of the offer's next eviction at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_time: Option<Time>,
}

/// An offer applied to one tuple of objects.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "constraint.ciena.com",
    version = "v1alpha1",
    kind = "ConstraintPolicyBinding",
    plural = "constraintpolicybindings",
    shortname = "cpb",
    namespaced,
    derive = "PartialEq",
    status = "ConstraintPolicyBindingStatus",
    doc = "An offer applied to one tuple of objects, with its compliance.",
    printcolumn(name = "Offer", type_ = "string", json_path = ".spec.offer"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.compliance"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.firstReason"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "LastChange",
        type_ = "date",
        json_path = ".status.lastComplianceChangeTimestamp",
        priority = 1
    ),
    printcolumn(
        name = "LastMitigation",
        type_ = "date",
        json_path = ".status.lastMitigatedTimestamp",
        priority = 1
    ),
    printcolumn(
        name = "Targets",
        type_ = "string",
        json_path = ".spec.targets",
        priority = 1
    )
)]
pub struct ConstraintPolicyBindingSpec {
    /// The offer's name.
    pub offer: String,
    /// The objects, by target name.
    pub targets: BTreeMap<String, Reference>,
}

/// The status of a binding.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConstraintPolicyBindingStatus {
    /// The worst compliance of the policies.
    #[serde(default)]
    pub compliance: Compliance,
    /// The reason of the first policy with the worst compliance.
    #[serde(default)]
    pub first_reason: String,
    /// The compliance of each policy.
    #[serde(default)]
    pub details: Vec<PolicyDetail>,
    /// The time of the last change of compliance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_compliance_change_timestamp: Option<Time>,
    /// The time of the last request to the underlay to mitigate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_mitigated_timestamp: Option<Time>,
    /// Conditions. A field of Tautline, not of Turnbuckle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The condition of a binding for being in range. It is True if the binding is in range, or worse
/// than requested and within the limit; False if it has been out of range since the last
/// transition, during the grace time or after it; Unknown otherwise.
pub const COMPLIANT: &str = "Compliant";
/// The reason of [`COMPLIANT`] while the rules cannot be evaluated, if the binding was worse than
/// requested and within the limit before.
pub const WAS_WITHIN_LIMIT: &str = "WasWithinLimit";

impl ConstraintPolicyBinding {
    /// Returns the compliance; Pending before the first evaluation.
    pub fn compliance(&self) -> Compliance {
        let status = self.status.as_ref();
        status.map_or(Compliance::Pending, |s| s.compliance)
    }
}

/// The compliance of a policy of a binding.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDetail {
    /// The policy's name.
    pub policy: String,
    /// The worst compliance of its rules.
    pub compliance: Compliance,
    /// The reason of the first rule with the worst compliance.
    #[serde(default)]
    pub reason: String,
    /// The compliance of each rule.
    #[serde(default)]
    pub rule_details: Vec<RuleDetail>,
}

/// The compliance of a rule of a policy.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct RuleDetail {
    /// The rule's name.
    pub rule: String,
    /// The provider's evaluation.
    pub compliance: Compliance,
    /// The provider's reason.
    #[serde(default)]
    pub reason: String,
    /// The provider's Service, as namespace/name. A field of Tautline, not of Turnbuckle.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
}

#[cfg(test)]
mod tests {
    use kube::Resource;
    use tautline_core::names::{API_VERSION, GROUP};

    use super::*;

    #[test]
    fn kinds_have_the_shared_api_version() {
        assert_eq!(ConstraintPolicy::group(&()), GROUP);
        assert_eq!(ConstraintPolicy::api_version(&()), API_VERSION);
        assert_eq!(ConstraintPolicyOffer::api_version(&()), API_VERSION);
        assert_eq!(ConstraintPolicyBinding::api_version(&()), API_VERSION);
    }

    #[test]
    fn rule_values_of_any_scalar_become_text() {
        let rule = |request: &str| -> Result<PolicyRule, _> {
            serde_json::from_str(&format!(r#"{{"name":"r","request":{request}}}"#))
        };
        for (json, text) in [
            ("true", "true"),
            ("2048", "2048"),
            ("2.0", "2"),
            ("\"5ms\"", "5ms"),
            ("0.5", "0.5"),
            ("null", ""),
        ] {
            assert_eq!(rule(json).unwrap().request.0, text);
        }
        let error = rule("[1]").unwrap_err().to_string();
        assert!(
            error.contains("expected a string, a number or a boolean"),
            "{error}"
        );
    }
}
