//! Validates objects of Kthena's model registry and sets their defaults, like Kthena's registry
//! webhook but without Kthena. It takes models, autoscaling policies and their bindings as JSON,
//! and reports all errors of an object at once.
//! <https://pkg.go.dev/github.com/volcano-sh/kthena@v0.3.0/pkg/registry-webhook>
//!
//! A model has one of three forms: `spec.backends`, a list whose members scale between
//! minReplicas and maxReplicas (Kthena up to v0.1), one `spec.backend` that scales likewise (v0.2
//! to v0.4), or one with a fixed number of replicas (from v1.0 on). Each form follows the rules
//! of its versions.

#![warn(missing_docs)]

mod binding;
mod defaults;
mod error;
mod field_ref;
mod model;
mod policy;
mod reference;

use serde_json::Value;

pub use binding::{missing_policy, policy_ref};
pub use defaults::defaults;
use error::Errors;
pub use error::{FieldError, message};
use field_ref::FieldRef;

/// The prefix of the API versions in Kthena's group before v0.1.
const FORMER_GROUP: &str = "registry.volcano.sh/";

/// A kind of Kthena's model registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A model. The current name of the kind is ModelBooster.
    Model,
    /// The metrics, targets and behavior of autoscaling.
    AutoscalingPolicy,
    /// The application of an AutoscalingPolicy to one target or to several.
    AutoscalingPolicyBinding,
}

impl Kind {
    /// Returns the kind of this name, in the former or current spelling; `None` for other kinds.
    pub fn named(kind: &str) -> Option<Self> {
        Some(match kind {
            "Model" | "ModelBooster" => Self::Model,
            "AutoscalingPolicy" => Self::AutoscalingPolicy,
            "AutoscalingPolicyBinding" => Self::AutoscalingPolicyBinding,
            _ => return None,
        })
    }
}

/// Validates an object; `old` is the object before an update. An object that is being deleted may
/// change if its spec does not, so that finalizers can be removed. The caller checks that a
/// binding's policy exists: see [`policy_ref`].
///
/// Errors are in the order of the rules; those after the first thousand are only counted. If the
/// object cannot be decoded, all errors are [malformed](FieldError::is_malformed).
pub fn review(kind: Kind, object: &Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
    let deleted = !object["metadata"]["deletionTimestamp"].is_null();
    if deleted && old.is_some_and(|old| old["spec"] == object["spec"]) {
        return Ok(());
    }
    let group = object["apiVersion"].as_str().unwrap_or_default();
    let former = group.starts_with(FORMER_GROUP);
    let mut errors = Errors::default();
    let root = FieldRef::root(object).object(&mut errors);
    let spec = root.field("spec").object(&mut errors);
    match kind {
        Kind::Model => model::review(&root, &spec, &mut errors),
        Kind::AutoscalingPolicy => policy::review(former, &spec, &mut errors),
        Kind::AutoscalingPolicyBinding => binding::review(former, &spec, &mut errors),
    }
    errors.into_result()
}

#[cfg(test)]
mod properties;
