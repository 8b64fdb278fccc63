/// The reason why a write to the API server failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("it is gone, or another of its name has come")]
    Gone,
    #[error("an object of this name exists already")]
    Exists,
    #[error("{0}")]
    Refused(String),
    #[error("the API server did not answer within {0:?}")]
    Timeout(std::time::Duration),
}
