//! The failures of calls to the provider, and the verdicts of checks.

use std::{borrow::Borrow, error::Error, fmt::Display, time::Duration};

use tautline_runtime::error_text::error_text;
use tonic::{Code, Status};

/// The maximum number of characters of a provider's message in a report.
const MAX_MESSAGE_CHARS: usize = 300;
/// The reason for which checks after the end of a provider are skipped.
pub(crate) const GONE: &str = "not asked: the provider accepts no connections any more";

pub(crate) type Answer<T> = Result<T, CallFailure>;

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CallFailure {
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// The connection or the call ended before an answer; the text has the causes.
    #[error("a call broken off ({0})")]
    Broken(String),
    /// The call was not made, because the provider had ended before.
    #[error("{GONE}")]
    NotAsked,
    #[error("{}", describe(.0))]
    Status(Status),
}

impl CallFailure {
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Self::Status(status) => Some(status.code()),
            _ => None,
        }
    }

    pub(crate) fn is(&self, codes: &[Code]) -> bool {
        self.code().is_some_and(|code| codes.contains(&code))
    }

    /// Returns whether the deadline has passed, by the clock of either side.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::NoAnswer(_)) || self.is(&[Code::DeadlineExceeded, Code::Cancelled])
    }
}

impl From<Status> for CallFailure {
    /// Returns the provider's own status, or the broken connection that caused it.
    fn from(status: Status) -> Self {
        match status.source() {
            None => Self::Status(status),
            Some(cause) => Self::Broken(error_text(cause)),
        }
    }
}

fn describe(status: &Status) -> String {
    let code = code_name(status.code());
    let message: String = status.message().chars().take(MAX_MESSAGE_CHARS).collect();
    match message.trim() {
        "" => code,
        message => format!("{code} ({message})"),
    }
}

/// Returns the name of a code as in gRPC's documents: `INVALID_ARGUMENT`.
pub(crate) fn code_name(code: Code) -> String {
    let mut name = String::new();
    for c in format!("{code:?}").chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

/// The reason for which a check has not passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The provider breaks the contract. The text says what was seen and what was expected.
    Failed(String),
    /// The check does not apply: the provider or the configuration lacks something optional.
    Skipped(String),
}

pub(crate) type Verdict<T = ()> = Result<T, Finding>;

/// An answer that the provider must give.
pub(crate) trait Answered<T> {
    /// Returns the answer, or the finding that the provider did not give it.
    fn answered(self, what: &str) -> Verdict<T>;
}

impl<T, F: Borrow<CallFailure>> Answered<T> for Result<T, F> {
    fn answered(self, what: &str) -> Verdict<T> {
        self.or_else(|failure| match failure.borrow() {
            CallFailure::NotAsked => skip(GONE),
            failure => wrong(what, failure, "an answer"),
        })
    }
}

/// Fails with the texts of what was seen of a subject and what was expected.
pub(crate) fn wrong<T>(subject: &str, seen: impl Display, expected: impl Display) -> Verdict<T> {
    fail(format!("{subject}: seen {seen}; expected {expected}"))
}

/// Describes an answer that should have been another failure.
pub(crate) fn seen<T>(answer: Answer<T>) -> String {
    answer.map_or_else(|failure| failure.to_string(), |_| "OK".into())
}

pub(crate) fn fail<T>(message: impl Into<String>) -> Verdict<T> {
    Err(Finding::Failed(message.into()))
}

pub(crate) fn skip<T>(reason: impl Into<String>) -> Verdict<T> {
    Err(Finding::Skipped(reason.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_grpcs_names() {
        let all = [
            (Code::Ok, "OK"),
            (Code::InvalidArgument, "INVALID_ARGUMENT"),
            (Code::NotFound, "NOT_FOUND"),
        ];
        for (code, name) in all {
            assert_eq!(code_name(code), name);
        }
        let failure = CallFailure::Status(Status::internal("broken"));
        assert_eq!(failure.to_string(), "INTERNAL (broken)");
    }
}
