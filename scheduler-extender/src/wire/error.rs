/// The error of an invalid request.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("the body is not the JSON of {kind}: {error}")]
    Json {
        kind: &'static str,
        error: serde_json::Error,
    },
    #[error("too many bytes of requests at once")]
    Memory,
    #[error("{kind}: {field} is missing")]
    Missing {
        kind: &'static str,
        field: &'static str,
    },
    #[error("{kind}: {field} {text:?} is not the name of an object")]
    Name {
        kind: &'static str,
        field: &'static str,
        text: String,
    },
    #[error("{kind}: {count} nodes are more than the limit of {max}")]
    TooManyNodes {
        kind: &'static str,
        count: usize,
        max: usize,
    },
    #[error(
        "{kind}: the pod has {count} bytes; Kubernetes' own limit on its size leaves room for fewer than {max}"
    )]
    PodTooLong {
        kind: &'static str,
        count: usize,
        max: usize,
    },
    #[error(
        "{kind}: the pod has {count} JSON values; Kubernetes' own limit on its size leaves room for fewer than {max}"
    )]
    PodTooLarge {
        kind: &'static str,
        count: usize,
        max: usize,
    },
}
