//! The text of an error and its causes, each once.

use std::error::Error;

/// Returns the error and its causes, separated by `: `, without a cause whose text is already
/// there. An answer of the API server is reduced to its message and code.
pub fn error_text(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        cause = error.source();
        let (part, is_last) = match api_answer(error) {
            Some(answer) => (answer, true),
            // Some errors print their cause too.
            None => {
                let whole = error.to_string();
                let own = whole.split(": ApiError: ").next().unwrap_or_default();
                (own.to_owned(), false)
            }
        };
        if !text.contains(&part) {
            if !text.is_empty() {
                text += ": ";
            }
            text += &part;
        }
        if is_last {
            break;
        }
    }
    text
}

#[cfg(feature = "cluster")]
fn api_answer(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(match &*status.message {
            "" => format!("code {}", status.code),
            message => format!("{message} ({})", status.code),
        }),
        _ => None,
    }
}

#[cfg(not(feature = "cluster"))]
fn api_answer(_: &(dyn Error + 'static)) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn causes_that_are_already_there_are_left_out() {
        let inner = anyhow!("no such file");
        let error = Err::<(), _>(inner).context("read a.yaml: no such file");
        let error = error.context("no cluster").unwrap_err();
        assert_eq!(
            error_text(error.as_ref()),
            "no cluster: read a.yaml: no such file"
        );
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn answers_of_the_api_server_are_their_message() {
        let status = kube::core::Status::failure("storage is initializing", "TooManyRequests");
        let answer = kube::Error::Api(Box::new(status.with_code(429)));
        let error = kube_runtime::watcher::Error::InitialListFailed(answer);
        assert_eq!(
            error_text(&error),
            "failed to perform initial object list: storage is initializing (429)"
        );
    }
}
