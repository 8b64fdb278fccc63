//! Calls to the API server with a deadline.

use std::{future::Future, time::Duration};

use crate::error_text::error_text;

/// A call to the API server that failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiCallError {
    /// The call failed before its deadline. The error is not a source, since its own text has the
    /// API server's whole answer.
    #[error("{}", error_text(.0))]
    Failed(kube::Error),
    /// The API server did not answer within this time; it may have carried out the request.
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
}

impl From<kube::Error> for ApiCallError {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_api_server_are_a_sentence_with_their_causes_too() {
        let status = kube::core::Status::failure("pods \"a\" is forbidden", "Forbidden");
        let answer = kube::Error::Api(Box::new(status.with_code(403)));
        let error = anyhow::Error::from(ApiCallError::from(answer)).context("pod shop/a");
        assert_eq!(
            format!("{error:#}"),
            "pod shop/a: pods \"a\" is forbidden (403)"
        );
    }
}
