//! Kthena's registry webhook on the JSON of its kinds, without Kthena: validation of
//! models and autoscaling policies with all errors at once, and defaults.
//! <https://pkg.go.dev/github.com/volcano-sh/kthena@v0.3.0/pkg/registry-webhook>
//!
//! A model has one of two forms, known by their fields: `spec.backends`, a list
//! whose members scale between minReplicas and maxReplicas, and today's
//! `spec.backend`, one with a fixed number of replicas.

mod binding;
mod defaults;
mod error;
mod field_ref;
mod model;
mod policy;

use serde_json::Value;

pub use binding::{missing_policy, policy_ref};
pub use defaults::defaults;
use error::Errors;
pub use error::{FieldError, Problem, message};
use field_ref::FieldRef;

/// A kind of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Model, or ModelBooster as it is called today.
    Model,
    AutoscalingPolicy,
    AutoscalingPolicyBinding,
}

impl Kind {
    /// The kind of this name; `None`: it is not one of the registry.
    pub fn named(kind: &str) -> Option<Self> {
        Some(match kind {
            "Model" | "ModelBooster" => Self::Model,
            "AutoscalingPolicy" => Self::AutoscalingPolicy,
            "AutoscalingPolicyBinding" => Self::AutoscalingPolicyBinding,
            _ => return None,
        })
    }
}

/// Reviews an object as it would become; `old` is what an update replaces. An
/// object that is being deleted may change as long as its spec stays: else nobody
/// could take its finalizers off.
///
/// Whether a binding's policy exists is for the caller to find out: see
/// [`policy_ref`].
///
/// # Errors
/// All that is wrong, in the order of the rules; beyond a thousand they are
/// counted. [`message`] makes the refusal of them. Of an object that cannot be
/// decoded as its kind they are all [malformed](FieldError::is_malformed).
pub fn review(kind: Kind, object: &Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
    let deleted = !object["metadata"]["deletionTimestamp"].is_null();
    if deleted && old.is_some_and(|old| old["spec"] == object["spec"]) {
        return Ok(());
    }
    let mut errors = Errors::default();
    let root = FieldRef::root(object).object(&mut errors);
    let spec = root.field("spec").object(&mut errors);
    match kind {
        Kind::Model => model::review(&root, &spec, &mut errors),
        Kind::AutoscalingPolicy => policy::review(&spec, &mut errors),
        Kind::AutoscalingPolicyBinding => binding::review(&spec, &mut errors),
    }
    errors.into_result()
}

#[cfg(test)]
mod properties;
