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
pub enum Document {
    Policy(Policy),
    Binding(Binding),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub name: String,
    pub constraints: MatchResources,
    /// All must be true.
    pub conditions: Vec<NamedExpression>,
    /// `variables.NAME` in expressions.
    pub variables: Vec<NamedExpression>,
    /// In order; at least one.
    pub mutations: Vec<Mutation>,
    pub failure: FailurePolicy,
    pub reinvocation: Reinvocation,
    pub param_kind: Option<ParamKind>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NamedExpression {
    pub name: String,
    pub source: ExpressionSource,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExpressionSource {
    /// The path, such as `spec.mutations[0].applyConfiguration.expression`.
    pub field: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    pub patch: PatchType,
    pub source: ExpressionSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `Object{...}`, merged as server-side apply merges.
    ApplyConfiguration,
    /// A list of `JSONPatch{...}`.
    JsonPatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is refused.
    Fail,
    /// The failed part is skipped.
    Ignore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reinvocation {
    Never,
    /// Once more if the object changed after it.
    IfNeeded,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParamKind {
    /// Group and version, such as `v1` or `mutations.example.com/v1`.
    pub api_version: String,
    pub kind: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchResources {
    /// One of these must match; in a binding, an empty list matches all.
    pub rules: Vec<Rule>,
    /// No rule of these may match.
    pub exclude: Vec<Rule>,
    /// On the namespace's labels.
    pub namespaces: Selector,
    /// On the labels of the object or the old object.
    pub objects: Selector,
    /// Whether another version of the resource will do.
    pub policy: MatchPolicy,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// `CREATE`, `UPDATE`, `CONNECT` or `*`.
    pub operations: Vec<String>,
    pub groups: Vec<String>,
    pub versions: Vec<String>,
    /// `resource`, `resource/subresource`, either of them `*`.
    pub resources: Vec<String>,
    /// Names of objects; an empty list matches all.
    pub names: Vec<String>,
    pub scope: ScopeType,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScopeType {
    #[default]
    All,
    Cluster,
    Namespaced,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchPolicy {
    Exact,
    #[default]
    Equivalent,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub name: String,
    pub policy: String,
    pub params: Option<ParamRef>,
    pub resources: Option<MatchResources>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ParamRef {
    pub target: ParamTarget,
    /// Their namespace; by default that of the request.
    pub namespace: Option<String>,
    /// Whether missing parameters are an error; otherwise the binding is skipped.
    pub deny_if_missing: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ParamTarget {
    Name(String),
    Selected(Selector),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    pub document: Document,
    pub warnings: Vec<Problem>,
}

const TAUTLINE_API: &str = "tautline.io/v1alpha1";
const KUBERNETES_APIS: [&str; 3] = [
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1beta1",
    "admissionregistration.k8s.io/v1alpha1",
];

pub fn is_policy_or_binding(manifest: &Value) -> bool {
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
pub fn parse(manifest: &Value) -> Result<Parsed, Vec<Problem>> {
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
