//! The merge of an `ApplyConfiguration` of a mutating admission policy: the structured
//! merge of server-side apply, as Kubernetes 1.36 does it, with
//! the schemas of the cluster's OpenAPI v3 or the bundled ones.
//!
//! Lists are merged by their map keys (keys that are left out take their
//! defaults), sets as sets, maps and structs field by field. Nothing is ever
//! removed, and [`apply`] refuses a configuration that
//!
//! - names a field that the schema does not declare,
//! - holds a value of another type than the schema's, or a null,
//! - names an element of a keyed list or set twice, or without any of its keys,
//! - touches a list, map or struct that is only replaced as a whole (atomic).
//!
//! No I/O, and no panic on any input; neither object may nest deeper than
//! [`MAX_DEPTH`].
//!
//! Sources: KEP-3962 (mutating admission policies), KEP-555 (server-side apply),
//! and the merge rules of `sigs.k8s.io/structured-merge-diff` v6. The end-to-end
//! tests compare with that code, merge by merge.

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
