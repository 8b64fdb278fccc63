//! Merges the `ApplyConfiguration` of a mutating admission policy into an object, like the
//! structured merge of server-side apply in Kubernetes 1.36. The schemas come from the cluster's
//! OpenAPI v3 documents or are bundled.
//!
//! Lists are merged by their map keys (with defaults), sets as sets, maps and structs field by
//! field. Nothing is ever removed. [`apply`] refuses undeclared fields, values of wrong types,
//! nulls, elements that occur twice or lack all keys, and changes of atomic lists, maps and
//! structs.
//!
//! The crate does no I/O and does not panic on any input. Objects may nest to [`MAX_DEPTH`] levels.
//!
//! Sources: KEP-3962 (mutating admission policies), KEP-555 (server-side apply), and
//! `sigs.k8s.io/structured-merge-diff` v6, with which the end-to-end tests compare each merge.

#![warn(missing_docs)]

mod apply;
mod check;
mod document;
mod element;
mod error;
#[cfg(any(test, feature = "generate"))]
pub mod generate;
#[cfg(test)]
mod properties;
mod scalar;
mod schema;
mod types;

pub use apply::{Checked, apply, check_apply};
pub use check::MAX_DEPTH;
pub use document::MAX_DOCUMENT_BYTES;
pub use error::{MergeError, SchemaError};
pub use schema::{Schema, Schemas, Shape};
