use thiserror::Error;

/// A document without usable schemas. None of it is used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchemaError {
    #[error("the OpenAPI document has {bytes} bytes, more than {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("the OpenAPI document is no JSON: {0}")]
    Json(String),
    /// Not OpenAPI v3, or a path without types.
    #[error("the OpenAPI document has no components.schemas")]
    NoSchemas,
    #[error("OpenAPI definition {definition}: {reason}")]
    Definition { definition: String, reason: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{path}: {reason}", if *.live { "object, " } else { "" })]
pub struct MergeError {
    /// The place, as `spec.containers[name="web"].image`; empty for the whole.
    pub path: String,
    pub reason: String,
    /// Whether `path` is in the live object or in the configuration.
    pub live: bool,
}
