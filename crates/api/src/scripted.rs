//! The kinds of `constraint.ciena.com/v1` of the scripted rule provider, as in Turnbuckle's mock.

// Printer columns are equal-looking attributes.
#![allow(clippy::duplicated_attributes)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::constraint::Compliance;

/// The scripted costs of one rule.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "constraint.ciena.com",
    version = "v1",
    kind = "CostProvider",
    plural = "costproviders",
    shortname = "cpr",
    namespaced,
    derive = "PartialEq",
    doc = "Costs that the scripted rule provider returns, by rule and by patterns of targets.",
    printcolumn(name = "Rule", type_ = "string", json_path = ".spec.rule"),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority"),
    printcolumn(
        name = "Target",
        type_ = "string",
        json_path = ".spec.target",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
pub struct CostProviderSpec {
    /// The name of the rule.
    pub rule: String,
    /// If several objects match, the highest priority counts; if priorities are equal, the
    /// first object by namespace and name.
    #[serde(default)]
    pub priority: i64,
    /// The pod to be placed: a regular expression on cluster:namespace:apiVersion:Kind:name,
    /// anchored at the start. Parts may be left out from the left.
    pub target: String,
    /// Costs by node. The first pattern that matches counts. A node without a match has cost
    /// -1, which makes it unusable.
    #[serde(default)]
    pub values: Vec<NodeCostValue>,
}

/// The cost of the nodes that a pattern names.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
pub struct NodeCostValue {
    /// A regular expression on cluster:name, or on the name alone if it has no colon, anchored
    /// at the start.
    pub node: String,
    /// The cost. Lower is better; a negative cost makes the node unusable.
    pub cost: i64,
}

/// The scripted compliance of one rule.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "constraint.ciena.com",
    version = "v1",
    kind = "RuleProvider",
    plural = "ruleproviders",
    shortname = "rp",
    namespaced,
    derive = "PartialEq",
    doc = "Compliance that the scripted rule provider returns, by rule and by patterns of targets.",
    printcolumn(name = "Rule", type_ = "string", json_path = ".spec.rule"),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority"),
    printcolumn(name = "Value", type_ = "string", json_path = ".spec.value"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".spec.reason",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
pub struct RuleProviderSpec {
    /// The name of the rule.
    pub rule: String,
    /// If several objects match, the highest priority counts; if priorities are equal, the
    /// first object by namespace and name.
    #[serde(default)]
    pub priority: i64,
    /// A pattern for each target of the binding. All patterns must match, and each target must
    /// have a pattern.
    #[serde(default)]
    pub targets: Vec<TargetPattern>,
    /// The compliance.
    pub value: Compliance,
    /// The reason.
    #[serde(default)]
    pub reason: String,
}

/// A pattern for one target of a binding.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
pub struct TargetPattern {
    /// The target's name in the offer.
    pub name: String,
    /// A regular expression on cluster:namespace:apiVersion:Kind:name, anchored
    /// at the start. Parts may be left out from the left.
    pub reference: String,
}
