//! Parsed mutation policies and bindings: the fields of
//! MutatingAdmissionPolicy (`admissionregistration.k8s.io/v1`, Kubernetes 1.36),
//! with defaults, in the current spelling.
//! <https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/>

mod binding;
mod policy;
mod resources;
#[cfg(test)]
mod tests;

use serde_json::Value;
use tautline_core::selector::Selector;

use crate::manifest::{FieldRef, Findings, Problem, is_subdomain};

/// A policy or a binding.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// A policy.
    Policy(Policy),
    /// A binding.
    Binding(Binding),
}

/// A mutation policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The requests it matches.
    pub constraints: MatchResources,
    /// Conditions; all must be true.
    pub conditions: Vec<NamedExpression>,
    /// Variables: `variables.NAME` in expressions.
    pub variables: Vec<NamedExpression>,
    /// Mutations in order; at least one.
    pub mutations: Vec<Mutation>,
    /// The effect of an error.
    pub failure: FailurePolicy,
    /// Whether it runs again after a change.
    pub reinvocation: Reinvocation,
    /// The kind of its parameters, if it has any.
    pub param_kind: Option<ParamKind>,
}

/// A named expression.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedExpression {
    /// Its name.
    pub name: String,
    /// The expression.
    pub source: ExpressionSource,
}

/// An expression and its field.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpressionSource {
    /// The path, such as `spec.mutations[0].applyConfiguration.expression`.
    pub field: String,
    /// The text.
    pub text: String,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    /// How the expression's value changes the object.
    pub patch: PatchType,
    /// The expression.
    pub source: ExpressionSource,
}

/// How the value of an expression changes an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `Object{...}`, merged as server-side apply merges.
    ApplyConfiguration,
    /// A list of `JSONPatch{...}`.
    JsonPatch,
}

/// The effect of an error in a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is refused.
    Fail,
    /// The failed part is skipped.
    Ignore,
}

/// Whether a policy runs again when the object changed after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reinvocation {
    /// Once only.
    Never,
    /// Once more if needed.
    IfNeeded,
}

/// The kind of a policy's parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParamKind {
    /// Group and version, such as `v1` or `mutations.example.com/v1`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

/// The requests that a policy or binding matches.
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

/// Operations on resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// `CREATE`, `UPDATE`, `CONNECT` or `*`.
    pub operations: Vec<String>,
    /// API groups or `*`.
    pub groups: Vec<String>,
    /// API versions or `*`.
    pub versions: Vec<String>,
    /// `resource`, `resource/subresource`, either of them `*`.
    pub resources: Vec<String>,
    /// Names of objects; an empty list matches all.
    pub names: Vec<String>,
    /// The scope.
    pub scope: ScopeType,
}

/// Namespaced resources, cluster-wide ones, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScopeType {
    /// Both.
    #[default]
    All,
    /// Only cluster-wide ones.
    Cluster,
    /// Only namespaced ones.
    Namespaced,
}

/// Whether a rule matches only the requested version of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchPolicy {
    /// Only the requested version.
    Exact,
    /// Also other versions.
    #[default]
    Equivalent,
}

/// A binding: it activates a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// The policy's name.
    pub policy: String,
    /// Its parameters.
    pub params: Option<ParamRef>,
    /// A further restriction of requests.
    pub resources: Option<MatchResources>,
}

/// The parameters of a binding.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamRef {
    /// By name or by labels.
    pub target: ParamTarget,
    /// Their namespace; by default that of the request.
    pub namespace: Option<String>,
    /// Whether missing parameters are an error; otherwise the binding is skipped.
    pub deny_if_missing: bool,
}

/// The selection of parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamTarget {
    /// The one of this name.
    Name(String),
    /// All that these labels select.
    Selected(Selector),
}

/// A parsed object and its warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The object.
    pub document: Document,
    /// Warnings.
    pub warnings: Vec<Problem>,
}

/// The API version of Tautline's kinds, and those of the API server's.
const TAUTLINE_API: &str = "tautline.io/v1alpha1";
const KUBERNETES_APIS: [&str; 3] = [
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1beta1",
    "admissionregistration.k8s.io/v1alpha1",
];

/// Whether `manifest` has a kind that [`parse`] accepts.
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

/// Parses a policy or binding, in the current spelling or that of 2024, without its
/// expressions. The error has all problems.
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
