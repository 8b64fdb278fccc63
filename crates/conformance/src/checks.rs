//! The checks by group, and their verdicts.

pub(crate) mod allocator;
pub(crate) mod connection;
pub(crate) mod evaluate;
pub(crate) mod nodes;
pub(crate) mod questions;
pub(crate) mod time;
pub(crate) mod watch;

use std::{borrow::Borrow, fmt::Display};

use futures::future::BoxFuture;

use crate::{
    failure::{Answer, CallFailure, GONE},
    session::Session,
};

/// The documentation, with a table of the checks' requirements and fixes.
pub(crate) const DOCUMENTATION: &str = include_str!("../../../docs/conformance.md");

pub(crate) const GROUPS: [&[Check]; 7] = [
    connection::CHECKS,
    nodes::CHECKS,
    questions::CHECKS,
    time::CHECKS,
    watch::CHECKS,
    evaluate::CHECKS,
    allocator::CHECKS,
];

/// A check of one requirement of the contract.
pub struct Check {
    /// The name of the check's group.
    pub group: &'static str,
    /// The check's name, unique in the group.
    pub name: &'static str,
    pub(crate) run: for<'a> fn(&'a Session) -> BoxFuture<'a, Verdict>,
}

impl Check {
    /// Returns the requirement of the contract.
    pub fn requires(&self) -> &'static str {
        self.texts().0
    }

    /// Returns the remedy, for the provider's author.
    pub fn fix(&self) -> &'static str {
        self.texts().1
    }

    /// Returns the requirement and the fix in the check's row of the documentation.
    fn texts(&self) -> (&'static str, &'static str) {
        let start = format!("| `{}/{}` | ", self.group, self.name);
        let row = DOCUMENTATION.lines().find_map(|line| {
            let texts = line.strip_prefix(&start)?.strip_suffix(" |")?;
            texts.split_once(" | ")
        });
        // A test ensures that each check has a row.
        row.unwrap_or_default()
    }
}

/// Defines the checks of a group. A row has the check's name, in brackets a function that skips the
/// check, and its function with the arguments after the session. The requirement and the fix are in
/// the table of docs/conformance.md.
macro_rules! checks {
    ($group:literal: $($name:literal $([$needs:ident])? $run:ident $(($($arg:expr),+))?;)+) => {
        pub(crate) const CHECKS: &[$crate::checks::Check] = &[$($crate::checks::Check {
            group: $group,
            name: $name,
            run: |session| Box::pin(async move {
                $($needs(session).await?;)?
                $run(session $($(, $arg)+)?).await
            }),
        }),+];
    };
}
pub(crate) use checks;

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
