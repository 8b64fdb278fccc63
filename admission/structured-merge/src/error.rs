use thiserror::Error;

/// The error of a document whose schemas cannot be used. No part of the document is used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// The document is above the size limit.
    #[error("the OpenAPI document has {bytes} bytes, more than {limit}")]
    TooLarge {
        /// The document's size, in bytes.
        bytes: usize,
        /// The largest allowed size in bytes, 32 MiB.
        limit: usize,
    },
    /// The document is not JSON. The text is the JSON parser's message.
    #[error("the OpenAPI document is no JSON: {0}")]
    Json(String),
    /// The document is not OpenAPI v3, or is of a path without types.
    #[error("the OpenAPI document has no components.schemas")]
    NoSchemas,
    /// A definition cannot be read, for example because it has an unknown type.
    #[error("OpenAPI definition {definition}: {reason}")]
    Definition {
        /// The name of the definition, such as `io.k8s.api.core.v1.Pod`.
        definition: String,
        /// The fault, and the property that has it.
        reason: String,
    },
}

/// The first invalid place of a configuration or of a live object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{path}: {reason}", if *.live { "object, " } else { "" })]
pub struct MergeError {
    /// The place, such as `spec.containers[name="web"].image`; empty for the whole object.
    pub path: String,
    /// The fault at this place.
    pub reason: String,
    /// True if `path` is in the live object, false if it is in the configuration.
    pub live: bool,
}

/// The reason why a schema or an element of a list cannot be read.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Invalid(pub String);

impl From<&str> for Invalid {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}
