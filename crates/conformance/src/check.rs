//! A check, and the table that defines the checks of a group.

use futures::future::BoxFuture;

use crate::{failure::Verdict, session::Session};

/// The documentation, with a table of the checks' requirements and fixes.
pub(crate) const DOCUMENTATION: &str = include_str!("../../../docs/conformance.md");

/// A check of one requirement of the contract.
pub(crate) struct Check {
    /// The name of the check's group.
    pub group: &'static str,
    /// The check's name, unique in the group.
    pub name: &'static str,
    pub(crate) run: for<'a> fn(&'a Session) -> BoxFuture<'a, Verdict>,
}

impl Check {
    /// Returns the requirement of the contract, and the remedy for the provider's author, from the
    /// check's row of the documentation.
    pub(crate) fn texts(&self) -> (&'static str, &'static str) {
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
        pub(crate) const CHECKS: &[$crate::check::Check] = &[$($crate::check::Check {
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
