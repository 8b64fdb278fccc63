//! The reasons why a call has no usable answer: the address, and whether connection, TLS, protocol
//! or provider failed.

use std::{error::Error, fmt::Display, io, sync::Arc};

use tautline_core::{planning::code, text};
use tautline_proto::endpoint_cost::MalformedMessage;
use tonic::{Code, Status};

const MAX_MESSAGE_CHARS: usize = 512;

/// The reason why a call has no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The provider has no ready address.
    #[error("no ready address")]
    NotReady,
    /// The provider was not called: the circuit breakers of all its addresses are open.
    #[error("not called: {0}")]
    BreakerOpen(String),
    /// The provider was not called: its namespace has used up its share of kube-scheduler's time.
    #[error(
        "not called: the providers of namespace {0} have taken more than their share of \
         kube-scheduler's time; see --untrusted-share"
    )]
    OverBudget(Arc<str>),
    /// The provider was not called: the configuration does not allow it.
    #[error("not called: {0}")]
    NotAllowed(String),
    /// The provider gave no answer before the deadline; the text names the address.
    #[error("{0}")]
    Timeout(String),
    /// The answer is malformed or too large.
    #[error("{0}")]
    BadAnswer(String),
    /// The call failed, or the provider returned an error.
    #[error("{0}")]
    Failed(String),
}

impl From<MalformedMessage> for CallError {
    fn from(error: MalformedMessage) -> Self {
        Self::BadAnswer(format!("malformed answer: {error}"))
    }
}

impl CallError {
    /// The error of a call that ended with this status, which `from` answered.
    pub(crate) fn new(from: &impl Display, status: &Status) -> Self {
        let text = match status.source() {
            None => format!("{from} answered {}", status_text(status)),
            Some(cause) => format!("{from}: {}", cause_of(cause)),
        };
        match status.code() {
            Code::DeadlineExceeded => Self::Timeout(text),
            Code::OutOfRange | Code::ResourceExhausted => Self::BadAnswer(text),
            _ => Self::Failed(text),
        }
    }

    /// Hides details of a tenant's address from the tenant: Tautline calls it from its own network.
    pub(crate) fn without_details(self, external: bool) -> Self {
        let hidden = |what: &str| format!("{what}; the log has the cause, at the level debug");
        match self {
            Self::Timeout(_) | Self::BadAnswer(_) | Self::Failed(_) if external => {
                Self::Failed(hidden("the provider gave no usable answer"))
            }
            Self::Timeout(_) => Self::Timeout(hidden("no answer in time")),
            Self::BadAnswer(_) => Self::BadAnswer(hidden("the answer was malformed")),
            Self::Failed(_) => Self::Failed(hidden("the call failed")),
            Self::BreakerOpen(_) => Self::BreakerOpen(hidden("it failed too often just now")),
            other => other,
        }
    }

    /// The stable reason code, one of [`code`].
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotReady => code::NO_ADDRESS,
            Self::BreakerOpen(_) => code::BREAKER_OPEN,
            Self::OverBudget(_) => code::OVER_BUDGET,
            Self::NotAllowed(_) => code::NOT_ALLOWED,
            Self::Timeout(_) => code::TIMEOUT,
            Self::BadAnswer(_) => code::BAD_ANSWER,
            Self::Failed(_) => code::FAILED,
        }
    }
}

/// Returns whether the provider itself answered with this status; a status of the transport has a
/// source.
pub(crate) fn is_answer(status: &Status) -> bool {
    status.source().is_none()
}

/// The text of a provider's status, sanitized.
pub(crate) fn status_text(status: &Status) -> String {
    let message = text::sanitize(status.message(), MAX_MESSAGE_CHARS);
    format!("{:?}: {message}", status.code())
}

fn cause_of(top: &(dyn Error + 'static)) -> String {
    let chain = || std::iter::successors(Some(top), |error| Error::source(*error));
    if let Some(io) = chain().find_map(|error| error.downcast_ref::<io::Error>()) {
        return match io.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            io::ErrorKind::TimedOut => "no connection in time".to_owned(),
            io::ErrorKind::InvalidData => format!("TLS: {io}"),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionAborted => {
                format!("the connection was closed by the other side ({io})")
            }
            _ => io.to_string(),
        };
    }
    if let Some(h2) = chain().find(|error| error.to_string().contains("http2 error")) {
        let cause = h2
            .source()
            .map_or_else(|| h2.to_string(), ToString::to_string);
        return format!("the other side does not speak gRPC over HTTP/2 ({cause})");
    }
    let last = chain().last().map(ToString::to_string);
    last.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_text_sanitizes_and_cuts_messages() {
        let status = Status::failed_precondition("full\n\u{1b}[31m".to_owned() + &"x".repeat(9999));
        let text = status_text(&status);
        let expected = "FailedPrecondition: full \u{fffd}[31m";
        assert!(text.starts_with(expected) && text.len() < 600, "{text}");
    }
}
