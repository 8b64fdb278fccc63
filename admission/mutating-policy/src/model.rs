//! Parses mutation policies and bindings. The model is MutatingAdmissionPolicy
//! (`admissionregistration.k8s.io/v1`, Kubernetes 1.36) in its current spelling, with defaults.
//! <https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/>

mod binding;
mod policy;
mod resources;
#[cfg(test)]
mod tests;

use serde_json::Value;
use tautline_core::dns::is_subdomain;
use tautline_core::selector::Selector;

use crate::manifest::{FieldRef, Findings, Problem};

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
    /// `matchConditions`, which must all be true.
    pub(crate) conditions: Vec<NamedExpression>,
    /// `variables`, which expressions use as `variables.NAME`.
    pub(crate) variables: Vec<NamedExpression>,
    /// `mutations`, in order. There is at least one.
    pub(crate) mutations: Vec<Mutation>,
    /// `failurePolicy`: the effect of an error; Fail if absent.
    pub failure: FailurePolicy,
    pub(crate) reinvocation: Reinvocation,
    /// `paramKind`; if it is `None`, expressions cannot use `params`.
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

/// The effect of a policy's error.
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
    /// The policy runs once more if any policy changed the object.
    IfNeeded,
}

/// The kind of a policy's parameters, built-in or custom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParamKind {
    /// The group and version, such as `v1` or `mutations.example.com/v1`.
    pub api_version: String,
    /// The name of the kind, such as `ConfigMap`.
    pub kind: String,
}

/// The requests that a policy or binding matches, by resource and by labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchResources {
    /// The rules of which one must match. In a binding, an empty list matches all requests.
    pub rules: Vec<Rule>,
    /// The rules that must not match.
    pub(crate) exclude: Vec<Rule>,
    /// The selector for the namespace's labels.
    pub(crate) namespaces: Selector,
    /// The selector for the labels of the object or the old object.
    pub(crate) objects: Selector,
    /// `matchPolicy`: Equivalent if a rule also matches requests for another version of its
    /// resource.
    pub(crate) policy: MatchPolicy,
}

/// A rule for operations on resources. A request matches if it is in each list and in the scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// `CREATE`, `UPDATE`, `CONNECT` or `*`.
    pub operations: Vec<String>,
    /// API groups or `*`; the core group is the empty one.
    pub groups: Vec<String>,
    /// API versions or `*`.
    pub versions: Vec<String>,
    /// `resource` or `resource/subresource`, where each part may be `*`.
    pub resources: Vec<String>,
    /// The names of objects; an empty list matches all.
    pub(crate) names: Vec<String>,
    /// The scope of the resources; by default any scope.
    pub scope: ScopeType,
}

/// The scope of the resources that a rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScopeType {
    /// Any scope: `*` in manifests.
    #[default]
    All,
    /// Resources outside namespaces, including Namespaces.
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

/// A binding of a policy. A policy without a binding has no effect.
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
    /// The namespace of the parameters; by default the request's namespace.
    pub namespace: Option<String>,
    /// True if missing parameters are an error; otherwise the binding is skipped.
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

/// Returns true for a policy and false for a binding; `None` for other manifests.
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

/// Parses a policy or binding without compiling its expressions. The error holds all problems.
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
