//! The merge of an `ApplyConfiguration` of a mutating admission policy: server-side apply's
//! structured merge as of Kubernetes 1.36, with the schemas of the cluster's OpenAPI v3 or the
//! bundled ones.
//!
//! Lists are merged by their map keys (with defaults), sets as sets, maps and structs field by
//! field. Nothing is ever removed. [`apply`] refuses undeclared fields, values of wrong types,
//! nulls, elements that occur twice or lack all keys, and changes of atomic lists, maps and
//! structs.
//!
//! No I/O, and no panic on any input; objects may nest to [`MAX_DEPTH`].
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
