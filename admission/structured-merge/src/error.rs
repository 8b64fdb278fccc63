use thiserror::Error;

/// A document without usable schemas. None of it is used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// A document above the size limit.
    #[error("the OpenAPI document has {bytes} bytes, more than {limit}")]
    TooLarge {
        /// The document's size.
        bytes: usize,
        /// The largest allowed size, 32 MiB.
        limit: usize,
    },
    /// The JSON parser's message.
    #[error("the OpenAPI document is no JSON: {0}")]
    Json(String),
    /// Not OpenAPI v3, or a path without types.
    #[error("the OpenAPI document has no components.schemas")]
    NoSchemas,
    /// A definition that cannot be read, such as one with an unknown type.
    #[error("OpenAPI definition {definition}: {reason}")]
    Definition {
        /// Its name, such as `io.k8s.api.core.v1.Pod`.
        definition: String,
        /// The fault, and the property that has it.
        reason: String,
    },
}

/// The first invalid place of a configuration or of a live object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{path}: {reason}", if *.live { "object, " } else { "" })]
pub struct MergeError {
    /// The place, as `spec.containers[name="web"].image`; empty for the whole.
    pub path: String,
    /// The fault at this place.
    pub reason: String,
    /// Whether `path` is in the live object or in the configuration.
    pub live: bool,
}
