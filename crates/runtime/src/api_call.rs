//! Calls to the API server with a deadline.

use std::{future::Future, time::Duration};

/// A call to the API server that failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiCallError {
    /// It failed in time.
    #[error(transparent)]
    Failed(#[from] kube::Error),
    /// No answer within this time: the request may have been carried out.
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
}

impl ApiCallError {
    /// The HTTP status code of the API server's answer, if it answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Failed(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// The API server's own message if it answered, else the error's text.
    pub fn message(&self) -> String {
        match self {
            Self::Failed(kube::Error::Api(status)) => status.message.clone(),
            other => other.to_string(),
        }
    }
}

/// Runs a call for at most `limit`.
///
/// # Errors
/// The call's own error, or [`ApiCallError::Timeout`].
pub async fn within<T>(
    limit: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApiCallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(ApiCallError::Timeout(limit)),
    }
}
