//! The kinds of `constraint.ciena.com/v1alpha1`, compatible with ciena/turnbuckle.

// Printer columns are equal-looking attributes.
#![allow(clippy::duplicated_attributes)]

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

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
    /// The rules, at least one; of several of one name the first counts.
    #[schemars(length(min = 1, max = 64))]
    pub rules: Vec<PolicyRule>,
}

/// Nothing is reported on a policy yet; the subresource is Turnbuckle's.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct ConstraintPolicyStatus {}

/// One rule: what is measured, what is wanted and what is still acceptable.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
pub struct PolicyRule {
    /// What is measured ("latency"); the provider of the rule is the Service
    /// labelled constraint.ciena.com/constraint-NAME: enabled. Up to 52
    /// characters, so that the label fits.
    #[schemars(
        length(min = 1, max = 52),
        regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    )]
    pub name: String,
    /// What is wanted, in the provider's own terms: a string, a number or a boolean.
    #[serde(default, skip_serializing_if = "RuleValue::is_empty")]
    pub request: RuleValue,
    /// The worst that is acceptable, likewise.
    #[serde(default, skip_serializing_if = "RuleValue::is_empty")]
    pub limit: RuleValue,
    /// How much the rule counts beside the offer's others when nodes are scored
    /// (Tautline's own; default 1). 0: it only keeps nodes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: Option<i64>,
}

/// A value as its author wrote it (`20ms`, `true`, `2048`), kept as text.
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
        struct Scalar;
        impl de::Visitor<'_> for Scalar {
            type Value = RuleValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or a boolean")
            }
            fn visit_str<E>(self, v: &str) -> Result<RuleValue, E> {
                Ok(RuleValue(v.to_owned()))
            }
            fn visit_bool<E>(self, v: bool) -> Result<RuleValue, E> {
                Ok(RuleValue(v.to_string()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<RuleValue, E> {
                Ok(RuleValue(v.to_string()))
            }
            fn visit_u64<E>(self, v: u64) -> Result<RuleValue, E> {
                Ok(RuleValue(v.to_string()))
            }
            fn visit_f64<E>(self, v: f64) -> Result<RuleValue, E> {
                Ok(RuleValue(v.to_string()))
            }
            fn visit_unit<E>(self) -> Result<RuleValue, E> {
                Ok(RuleValue::default())
            }
        }
        deserializer.deserialize_any(Scalar)
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

/// Which workloads policies apply to, and what happens when they are not kept.
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
    /// What the policies relate: a pod and its peers. Names are unique; one
    /// target may go without a name and is then called default.
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(validation = Rule::new(
        "self.all(a, self.exists_one(b, (has(a.name) ? a.name : 'default') == (has(b.name) ? b.name : 'default')))"
    ).message("target names must be unique; a target without a name is called default"))]
    pub targets: Vec<OfferTarget>,
    /// Names of policies in the offer's namespace.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub policies: Vec<String>,
    /// How often a binding is evaluated (default 1m). A duration: 10m, 1h30m, 500us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub period: Option<String>,
    /// For how long a binding may be out of range before that is a violation
    /// (default 0s). A duration: 10m, 1h30m, 500us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub grace: Option<String>,
    /// What is done about a violation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violation_policy: Option<ViolationPolicy>,
    /// What a rule without a working provider means when a pod is placed
    /// (Tautline's own; by default as the extender is configured: Ignore).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_unavailable: Option<ProviderUnavailable>,
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

/// One side of the constraint.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfferTarget {
    /// The role in the constraint ("source"); default: default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
    /// The API version of the selected objects; for a Pod it may be left out.
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
    /// As in Turnbuckle; it is kept and has no meaning of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub mode: Option<String>,
    /// Which objects, in the offer's namespace: labels and expressions. Without
    /// it none is selected; an empty one selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// What a target can be.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum TargetKind {
    /// Pods, by their labels.
    Pod,
    /// A cluster of a federation.
    Cluster,
    /// The endpoints of a Service, by the EndpointSlices' labels.
    Endpoint,
    /// A service of Network Service Mesh.
    NetworkService,
}

/// What is done about a violation.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum ViolationPolicy {
    /// It is reported.
    #[default]
    Ignore,
    /// The underlay is asked to mend it.
    Mediate,
    /// A pod of the binding is evicted if another node would keep to the rules.
    Evict,
}

/// What a rule without a working provider means when a pod is placed.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum ProviderUnavailable {
    /// The rule does not count.
    #[default]
    Ignore,
    /// No node is usable until the provider answers.
    Reject,
}

/// How an offer stands.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConstraintPolicyOfferStatus {
    /// How many bindings the offer has.
    #[serde(default)]
    pub binding_count: i64,
    /// How many of them are Compliant.
    #[serde(default)]
    pub compliant_binding_count: i64,
    /// The label selector of the offer's bindings.
    #[serde(default)]
    pub binding_selector: String,
    /// The last pod that was evicted for the offer (Tautline's own).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_eviction: Option<LastEviction>,
    /// Tautline's own: what the controller and the admission webhooks find, each
    /// under types of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
}

/// An eviction, noted before it is asked for, so that whoever leads next knows.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastEviction {
    /// The pod's name, in the offer's namespace.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// The node that it was on.
    pub node: String,
    /// The binding that was violated.
    pub binding: String,
    /// When.
    pub time: Time,
}

/// An offer made concrete for one tuple of objects, with its compliance.
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
    doc = "An offer made concrete for one tuple of objects, and whether they keep to its policies.",
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
    pub targets: BTreeMap<String, ObjectReference>,
}

/// A reference to one object.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Empty: this cluster.
    pub cluster: String,
    /// Empty: not namespaced.
    pub namespace: String,
    /// "v1", "apps/v1".
    pub api_version: String,
    /// "Pod".
    pub kind: String,
    /// The object's name.
    pub name: String,
}

/// How well a rule, a policy or a binding is kept.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum Compliance {
    /// Not known yet.
    #[default]
    Pending,
    /// Within what was requested.
    Compliant,
    /// Worse than requested, within the limit or the grace.
    Limit,
    /// Beyond the limit.
    Violation,
    /// It cannot be told.
    Error,
}

/// How a binding stands.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConstraintPolicyBindingStatus {
    /// As bad as the worst policy.
    #[serde(default)]
    pub compliance: Compliance,
    /// The reason of the first of the worst.
    #[serde(default)]
    pub first_reason: String,
    /// Policy by policy.
    #[serde(default)]
    pub details: Vec<PolicyDetail>,
    /// When `compliance` changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_compliance_change_timestamp: Option<Time>,
    /// When the underlay was asked to mitigate last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_mitigated_timestamp: Option<Time>,
    /// Tautline's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How a policy of a binding stands.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDetail {
    /// The policy's name.
    pub policy: String,
    /// As bad as its worst rule.
    pub compliance: Compliance,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Rule by rule.
    #[serde(default)]
    pub rule_details: Vec<RuleDetail>,
}

/// How a rule of a policy stands.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct RuleDetail {
    /// The rule's name.
    pub rule: String,
    /// What its provider said.
    pub compliance: Compliance,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Who said it, as namespace/name of its Service (Tautline's own).
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
