//! A call without an answer.

use std::{fmt, time::Duration};

use tonic::{Code, Status};

/// Longest part of a provider's message in a report.
const LONGEST_CHARS: usize = 300;

#[derive(Clone, Debug)]
pub(crate) enum CallFailure {
    NoAnswer(Duration),
    /// The connection or the call ended first, with the causes.
    Broken(String),
    /// The provider had gone before.
    NotAsked,
    Status(Status),
}

/// Why checks after the end of a provider are skipped.
pub(crate) const GONE: &str = "not asked: the provider accepts no connections any more";

impl CallFailure {
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Self::NoAnswer(_) | Self::Broken(_) | Self::NotAsked => None,
            Self::Status(status) => Some(status.code()),
        }
    }

    /// The deadline passed, by the clock of either side.
    pub(crate) fn is_late(&self) -> bool {
        match self {
            Self::NoAnswer(_) => true,
            Self::Broken(_) | Self::NotAsked => false,
            Self::Status(status) => {
                matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled)
            }
        }
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer(after) => write!(f, "no answer within {after:?}"),
            Self::Broken(why) => write!(f, "a call broken off ({why})"),
            Self::NotAsked => f.write_str(GONE),
            Self::Status(status) => {
                f.write_str(&code_name(status.code()))?;
                let message: String = status.message().chars().take(LONGEST_CHARS).collect();
                match message.trim() {
                    "" => Ok(()),
                    message => write!(f, " ({message})"),
                }
            }
        }
    }
}

/// As in gRPC's documents: `INVALID_ARGUMENT`.
pub(crate) fn code_name(code: Code) -> String {
    if code == Code::Ok {
        return "OK".into();
    }
    let mut name = String::new();
    for c in format!("{code:?}").chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        cause = error.source();
    }
    text
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
