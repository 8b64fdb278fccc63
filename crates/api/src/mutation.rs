//! The kinds of `tautline.io/v1alpha1`: Kubernetes 1.36 `MutatingAdmissionPolicy` and its binding.
//! Unknown fields pass the schema, and the webhook rejects them with the fix.
//! <https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/>

// Printer columns are equal-looking attributes.
#![allow(clippy::duplicated_attributes)]

use k8s_openapi::api::admissionregistration::v1::{
    ApplyConfiguration, JSONPatch, MatchCondition, MatchResources, ParamKind, ParamRef, Variable,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The spec of a MutatingAdmissionPolicy.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "tautline.io",
    version = "v1alpha1",
    kind = "MutationPolicy",
    plural = "mutationpolicies",
    shortname = "mp",
    derive = "PartialEq",
    doc = "Mutates objects when they are created or updated: a MutatingAdmissionPolicy outside the API server. It takes effect when a MutationPolicyBinding names it.",
    printcolumn(
        name = "Mutations",
        type_ = "string",
        json_path = ".spec.mutations[*].patchType"
    ),
    printcolumn(
        name = "ParamKind",
        type_ = "string",
        json_path = ".spec.paramKind.kind"
    ),
    printcolumn(
        name = "FailurePolicy",
        type_ = "string",
        json_path = ".spec.failurePolicy",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct MutationPolicySpec {
    /// The kind of the policy's parameters, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_kind: Option<ParamKind>,
    /// The requests that the policy applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_constraints: Option<MatchResources>,
    /// Expressions that mutations can use as variables.NAME.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<Variable>,
    /// The mutations, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutations: Vec<Mutation>,
    /// The effect of an error: Fail (default) denies the request, Ignore skips the mutation
    /// that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<String>,
    /// Conditions that must all be true for the policy to apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_conditions: Vec<MatchCondition>,
    /// Whether the policy is evaluated again after another policy has changed the object:
    /// Never or IfNeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reinvocation_policy: Option<String>,
}

/// A mutation.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Mutation {
    /// ApplyConfiguration or JSONPatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch_type: Option<String>,
    /// An expression whose result is merged into the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_configuration: Option<ApplyConfiguration>,
    /// An expression whose result is a list of JSON Patch operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_patch: Option<JSONPatch>,
    /// applyConfiguration.expression, as in the alpha version of 2024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
    /// The policy's reinvocationPolicy, as in the alpha version of 2024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reinvocation_policy: Option<String>,
}

/// The spec of a MutatingAdmissionPolicyBinding.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "tautline.io",
    version = "v1alpha1",
    kind = "MutationPolicyBinding",
    plural = "mutationpolicybindings",
    shortname = "mpb",
    derive = "PartialEq",
    doc = "Makes a MutationPolicy take effect, for some objects and with parameters.",
    printcolumn(name = "Policy", type_ = "string", json_path = ".spec.policyName"),
    printcolumn(name = "Param", type_ = "string", json_path = ".spec.paramRef.name"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct MutationPolicyBindingSpec {
    /// The policy's name.
    pub policy_name: String,
    /// The policy's parameters, by name or by labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_ref: Option<ParamRef>,
    /// Narrows the requests that the policy applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_resources: Option<MatchResources>,
}
