//! Errors of schemas and merges.

use thiserror::Error;

/// A document that holds no usable schemas. None of it is used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// Larger than [`crate::MAX_DOCUMENT_BYTES`].
    #[error("the OpenAPI document has {bytes} bytes, more than {limit}")]
    TooLarge { bytes: usize, limit: usize },
    /// No JSON, or nested beyond 128 levels.
    #[error("the OpenAPI document is no JSON: {0}")]
    Json(String),
    /// No `components.schemas`: no OpenAPI v3, or of a path without types.
    #[error("the OpenAPI document has no components.schemas")]
    NoSchemas,
    /// A definition that says something that has no meaning.
    #[error("OpenAPI definition {definition}: {reason}")]
    Definition { definition: String, reason: String },
}

/// Why a configuration was not applied. The object stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{path}: {reason}", if *.live { "object, " } else { "" })]
pub struct MergeError {
    /// The place, as `spec.containers[name="web"].image`; empty for the whole.
    pub path: String,
    /// What is wrong there, and what would mend it.
    pub reason: String,
    /// Whether it is the live object's place; else it is the configuration's.
    pub live: bool,
}
