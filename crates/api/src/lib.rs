//! Defines the custom resources of Tautline and their CRDs, and decodes Kubernetes objects from
//! manifest files and from the API server. It converts them to the model of [`tautline_core`],
//! which has only the fields that decisions need.

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
