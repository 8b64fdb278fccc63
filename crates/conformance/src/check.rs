//! A check and its verdict.

use std::{borrow::Borrow, fmt::Display};

use futures::future::BoxFuture;

use crate::{
    failure::{Answer, CallFailure, GONE},
    session::Session,
};

/// A check of one requirement of the contract.
pub struct Check {
    /// The name of the check's group.
    pub group: &'static str,
    /// The check's name, unique in the group.
    pub name: &'static str,
    /// The requirement of the contract.
    pub requires: &'static str,
    /// The remedy, for the provider's author.
    pub fix: &'static str,
    pub(crate) run: for<'a> fn(&'a Session) -> BoxFuture<'a, Verdict>,
}

/// Defines the checks of a group. A row has the check's name, in brackets a function that skips the
/// check, its function with the arguments after the session, the requirement and the fix.
macro_rules! checks {
    ($group:literal: $($name:literal $([$needs:ident])? $run:ident $(($($arg:expr),+))?
        $requires:literal, $fix:literal;)+) => {
        pub(crate) const CHECKS: &[$crate::check::Check] = &[$($crate::check::Check {
            group: $group,
            name: $name,
            requires: $requires,
            fix: $fix,
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
