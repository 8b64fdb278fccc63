//! Parsed mutation policies and bindings: MutatingAdmissionPolicy
//! (`admissionregistration.k8s.io/v1`, Kubernetes 1.36) with defaults, in its current spelling.
//! <https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/>

mod binding;
mod policy;
mod resources;
#[cfg(test)]
mod tests;

use serde_json::Value;
use tautline_core::selector::Selector;

use crate::manifest::{FieldRef, Findings, Problem, is_subdomain};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Document {
    Policy(Policy),
    Binding(Binding),
}

/// A parsed policy, with the defaults of absent fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// `metadata.name`; policies run in the order of their names.
    pub name: String,
    /// `matchConstraints`: the requests that it matches.
    pub constraints: MatchResources,
    /// All must be true.
    pub(crate) conditions: Vec<NamedExpression>,
    /// `variables.NAME` in expressions.
    pub(crate) variables: Vec<NamedExpression>,
    /// In order; at least one.
    pub(crate) mutations: Vec<Mutation>,
    /// `failurePolicy`: what an error does; Fail if absent.
    pub failure: FailurePolicy,
    pub(crate) reinvocation: Reinvocation,
    /// `paramKind`; `None`: expressions cannot use `params`.
    pub param_kind: Option<ParamKind>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedExpression {
    pub name: String,
    pub source: ExpressionSource,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpressionSource {
    /// The path, such as `spec.mutations[0].applyConfiguration.expression`.
    pub field: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mutation {
    pub patch: PatchType,
    pub source: ExpressionSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// `Object{...}`, merged as server-side apply merges.
    ApplyConfiguration,
    /// A list of `JSONPatch{...}`.
    JsonPatch,
}

/// What an error of a policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is refused.
    Fail,
    /// The failed part is skipped.
    Ignore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reinvocation {
    Never,
    /// Once more if the object changed after it.
    IfNeeded,
}

/// The kind of a policy's parameters, built-in or custom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParamKind {
    /// Group and version, such as `v1` or `mutations.example.com/v1`.
    pub api_version: String,
    /// Its name, such as `ConfigMap`.
    pub kind: String,
}

/// The requests that a policy or binding matches, by resource and by labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchResources {
    /// One of these must match; in a binding, an empty list matches all.
    pub rules: Vec<Rule>,
    /// No rule of these may match.
    pub(crate) exclude: Vec<Rule>,
    /// On the namespace's labels.
    pub(crate) namespaces: Selector,
    /// On the labels of the object or the old object.
    pub(crate) objects: Selector,
    /// Whether another version of the resource will do.
    pub(crate) policy: MatchPolicy,
}

/// Operations on resources; a request matches if it is in each list and in the scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// `CREATE`, `UPDATE`, `CONNECT` or `*`.
    pub operations: Vec<String>,
    /// API groups or `*`; the core group is the empty one.
    pub groups: Vec<String>,
    /// API versions or `*`.
    pub versions: Vec<String>,
    /// `resource`, `resource/subresource`, either of them `*`.
    pub resources: Vec<String>,
    /// Names of objects; an empty list matches all.
    pub(crate) names: Vec<String>,
    /// The scope of the resources; by default any.
    pub scope: ScopeType,
}

/// The scope of the resources that a rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScopeType {
    /// Any scope: `*` in manifests.
    #[default]
    All,
    /// Resources outside namespaces, Namespaces included.
    Cluster,
    /// Resources in namespaces.
    Namespaced,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MatchPolicy {
    Exact,
    #[default]
    Equivalent,
}

/// A binding; a policy without one has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub(crate) name: String,
    /// `policyName`; the policy need not exist.
    pub policy: String,
    pub(crate) params: Option<ParamRef>,
    pub(crate) resources: Option<MatchResources>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParamRef {
    pub target: ParamTarget,
    /// Their namespace; by default that of the request.
    pub namespace: Option<String>,
    /// Whether missing parameters are an error; otherwise the binding is skipped.
    pub deny_if_missing: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ParamTarget {
    Name(String),
    Selected(Selector),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parsed {
    pub document: Document,
    pub warnings: Vec<Problem>,
}

const TAUTLINE_API: &str = "tautline.io/v1alpha1";
const KUBERNETES_APIS: [&str; 3] = [
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1beta1",
    "admissionregistration.k8s.io/v1alpha1",
];

pub(crate) fn is_policy_or_binding(manifest: &Value) -> bool {
    kind(manifest).is_some()
}

/// Some(true) for a policy, Some(false) for a binding.
fn kind(manifest: &Value) -> Option<bool> {
    let text = |field: &str| manifest.get(field).and_then(Value::as_str);
    let version = text("apiVersion")?;
    match text("kind")? {
        "MutationPolicy" if version == TAUTLINE_API => Some(true),
        "MutationPolicyBinding" if version == TAUTLINE_API => Some(false),
        "MutatingAdmissionPolicy" if KUBERNETES_APIS.contains(&version) => Some(true),
        "MutatingAdmissionPolicyBinding" if KUBERNETES_APIS.contains(&version) => Some(false),
        _ => None,
    }
}

/// Parses a policy or binding, without its expressions; the error has all problems.
pub(crate) fn parse(manifest: &Value) -> Result<Parsed, Vec<Problem>> {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name").unwrap_or_default();
    let mut found = Findings::new(format!("{} {name}", text("/kind").unwrap_or("object")));
    let root = FieldRef::root(manifest);
    let Some(is_policy) = kind(manifest) else {
        let message = format!(
            "must be MutationPolicy or MutationPolicyBinding of {TAUTLINE_API}, or \
             MutatingAdmissionPolicy or MutatingAdmissionPolicyBinding of {}",
            KUBERNETES_APIS[0]
        );
        found.fault("kind", message);
        return Err(found.faults);
    };
    root.object(
        &["apiVersion", "kind", "metadata", "spec", "status"],
        &mut found,
    );
    if !is_subdomain(name) {
        let message = "must be a DNS subdomain, such as gpu-none.example.com";
        found.fault("metadata.name", message);
    }
    let spec = root.field("spec");
    if spec.is_none() {
        found.fault("spec", "is required");
    }
    let document = spec.and_then(|spec| {
        if is_policy {
            policy::read(name, &spec, &mut found).map(Document::Policy)
        } else {
            binding::read(name, &spec, &mut found).map(Document::Binding)
        }
    });
    match document {
        Some(document) if found.faults.is_empty() => Ok(Parsed {
            document,
            warnings: found.warnings,
        }),
        _ => Err(found.faults),
    }
}
