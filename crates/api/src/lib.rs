//! Custom resources, CRDs, manifest files, and the conversion of API objects to [`tautline_core`].

#![warn(missing_docs)]

pub mod constraint;
pub mod convert;
pub mod crds;
pub mod display;
pub mod manifest;
pub mod mutation;
pub mod posted;
pub mod scripted;
pub mod watched;

pub use constraint::{ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer};
pub use mutation::{MutationPolicy, MutationPolicyBinding};
pub use scripted::{CostProvider, RuleProvider};

/// The metadata of every object.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta as Metadata;
