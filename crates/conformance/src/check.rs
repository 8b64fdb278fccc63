//! A check and its verdict.

use futures::future::BoxFuture;

use crate::{
    failure::{CallFailure, GONE},
    session::Session,
};

/// One requirement of the contract.
pub struct Check {
    /// Its subject.
    pub group: &'static str,
    /// Its name, unique in the group.
    pub name: &'static str,
    /// The requirement.
    pub requires: &'static str,
    /// The remedy, for the provider's author.
    pub fix: &'static str,
    /// Makes no sense while EndpointCost is not answered.
    pub(crate) needs_answers: bool,
    pub(crate) run: for<'a> fn(&'a Session) -> BoxFuture<'a, Verdict>,
}

impl Check {
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.group, self.name) == (other.group, other.name)
    }
}

/// A check that has not passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The contract is broken: seen and expected.
    Failed(String),
    /// Optional and not there, or the configuration lacks something.
    Skipped(String),
}

pub(crate) type Verdict = Result<(), Finding>;

impl Finding {
    /// A call that had to be answered was not.
    pub(crate) fn unanswered(what: &str, failure: &CallFailure) -> Self {
        match failure {
            CallFailure::NotAsked => Self::Skipped(GONE.into()),
            failure => Self::Failed(format!("{what}: seen {failure}; expected an answer")),
        }
    }
}

pub(crate) fn fail<T>(message: impl Into<String>) -> Result<T, Finding> {
    Err(Finding::Failed(message.into()))
}

pub(crate) fn skip<T>(reason: impl Into<String>) -> Result<T, Finding> {
    Err(Finding::Skipped(reason.into()))
}
