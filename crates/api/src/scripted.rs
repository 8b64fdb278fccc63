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
    doc = "Costs that the scripted rule provider answers with, for rules and targets by pattern.",
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
    /// The rule it answers for.
    pub rule: String,
    /// Of several that match, the highest counts; of equal ones the first by
    /// namespace and name.
    #[serde(default)]
    pub priority: i64,
    /// Who asks: a regular expression on cluster:namespace:apiVersion:Kind:name,
    /// anchored at the start. Parts may be left out from the left.
    pub target: String,
    /// Costs by node; the first pattern that matches counts. A node without any
    /// costs -1: it cannot be used.
    #[serde(default)]
    pub values: Vec<NodeCostValue>,
}

/// The cost of the nodes that a pattern names.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
pub struct NodeCostValue {
    /// A regular expression on cluster:name, or on name alone if it has no
    /// colon, anchored at the start.
    pub node: String,
    /// Lower is better; negative: the node cannot be used.
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
    doc = "Compliances that the scripted rule provider answers with, for rules and targets by pattern.",
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
    /// The rule it answers for.
    pub rule: String,
    /// Of several that match, the highest counts; of equal ones the first by
    /// namespace and name.
    #[serde(default)]
    pub priority: i64,
    /// A pattern for each target of the binding; all must match, and no target
    /// may be left over.
    #[serde(default)]
    pub targets: Vec<TargetPattern>,
    /// The answer.
    pub value: Compliance,
    /// The answer's reason.
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
