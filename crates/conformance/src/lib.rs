//! Checks over gRPC whether a rule provider fulfils Tautline's contract. The command `tautline
//! conformance` and the tests of providers use it.
//!
//! ```no_run
//! # async fn test() -> Result<(), tautline_conformance::Error> {
//! let config = tautline_conformance::Config {
//!     nodes: vec!["node-a".into(), "node-b".into()],
//!     ..tautline_conformance::Config::new("127.0.0.1:5309", "spread")
//! };
//! let report = tautline_conformance::run(config).await?;
//! assert_eq!(report.failed(), 0, "{}", report.tap());
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod check;
mod checks;
mod config;
mod failure;
mod lines;
mod questions;
mod session;
mod stream;
mod wire;

use std::time::Duration;

use tautline_report::{Case, CaseResult, Report};
use tokio::time::Instant;

pub use tautline_proto::{RULE_PROVIDER_PORT, ruleprovider::Workload};

pub use crate::config::{Config, Expectation, Peer, PlacedPod, TextError};

use crate::{
    check::Check,
    checks::{GROUPS, connection::READY},
    failure::{Finding, GONE},
    session::Session,
};

/// The error of a run that has no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter selects no check; the fields are the filter and the names of the groups.
    #[error("no check has {0:?} in its name; the groups are {1}")]
    NoSuchCheck(String, String),
    /// The address is not HOST:PORT.
    #[error("address {0:?}: write HOST:PORT, as in 127.0.0.1:5309 or [::1]:5309")]
    Address(String),
    /// TLS cannot use a certificate or key.
    #[error("TLS: {0}")]
    Tls(tonic::transport::Error),
    /// The address accepts no connections.
    #[error("no connection to {address}: {why}; start the provider, or check the address and TLS")]
    Connect {
        /// The provider's address, HOST:PORT.
        address: String,
        /// The causes of the failure.
        why: String,
    },
    /// The server is no gRPC server, or expects TLS.
    #[error(
        "no gRPC at {address}: {why}; name the provider's gRPC port, and --provider-ca if it has \
         TLS"
    )]
    NoGrpc {
        /// The provider's address, HOST:PORT.
        address: String,
        /// The failure of the first call.
        why: String,
    },
}

/// Returns all checks, in the order of a run.
fn all_checks() -> impl Iterator<Item = &'static Check> {
    GROUPS.into_iter().flatten()
}

/// Runs the checks that the configuration selects.
///
/// # Errors
/// No check is selected, or the provider cannot be reached.
pub async fn run(config: Config) -> Result<Report, Error> {
    let is_selected = |check: &&Check| {
        let name = format!("{}/{}", check.group, check.name);
        config
            .filter
            .as_ref()
            .is_none_or(|part| name.contains(part))
    };
    let selected: Vec<&Check> = all_checks().filter(is_selected).collect();
    if selected.is_empty() {
        let mut groups: Vec<&str> = all_checks().map(|check| check.group).collect();
        groups.dedup();
        let filter = config.filter.unwrap_or_default();
        return Err(Error::NoSuchCheck(filter, groups.join(", ")));
    }
    let end = Instant::now() + config.timeout;
    let session = Session::connect(config).await?;
    let Config { address, rule, .. } = &session.config;
    let mut report = Report {
        suite: format!("provider {address}, rule {rule}"),
        cases: Vec::new(),
    };
    // If this check fails, every other check would fail for the same reason.
    let ready = case(&session, READY, end).await;
    let is_ready = ready.result == CaseResult::Passed;
    // READY is the first of all checks.
    if !is_ready || selected[0].name == READY.name {
        report.cases.push(ready);
    }
    let mut ended_in = None;
    for check in selected.into_iter().filter(|c| c.name != READY.name) {
        let missing = if Instant::now() >= end {
            Some("not run: the time of the run was over")
        } else if !is_ready && check.group != READY.group {
            Some("no answer to judge: see connection/ready")
        } else if session.has_gone() && !judges_samples(&session, check) {
            Some(GONE)
        } else {
            None
        };
        report.cases.push(match missing {
            Some(reason) => record(check, Duration::ZERO, skipped(reason)),
            None => case(&session, check, end).await,
        });
        if session.has_gone() {
            ended_in.get_or_insert(report.cases.len() - 1);
        }
    }
    // A provider that has ended never passes.
    if report.failed() == 0
        && let Some(case) = ended_in.and_then(|at| report.cases.get_mut(at))
    {
        let message = "the connection broke, and the provider accepts no more";
        case.result = failed(message, "see in the provider's log why it ended");
    }
    Ok(report)
}

/// Returns whether a check judges only answers from before the provider's end. They show which
/// question ended the provider.
fn judges_samples(session: &Session, check: &Check) -> bool {
    session.samples.initialized() && ["nodes", "questions"].contains(&check.group)
}

async fn case(session: &Session, check: &Check, end: Instant) -> Case {
    let start = Instant::now();
    let verdict = tokio::time::timeout_at(end, (check.run)(session)).await;
    session.release_all().await;
    let result = match verdict {
        Ok(Ok(())) => CaseResult::Passed,
        Ok(Err(Finding::Skipped(reason))) => skipped(reason),
        Ok(Err(Finding::Failed(message))) => failed(message, check.texts().1),
        Err(_) => {
            let limit = session.config.timeout;
            let message = format!("not done when the time of the run, {limit:?}, was over");
            failed(message, "answer faster, or raise --deadline")
        }
    };
    record(check, start.elapsed(), result)
}

fn record(check: &Check, took: Duration, result: CaseResult) -> Case {
    Case {
        group: check.group.into(),
        name: check.name.into(),
        result,
        took,
    }
}

fn failed(message: impl Into<String>, fix: &str) -> CaseResult {
    CaseResult::Failed {
        message: message.into(),
        fix: Some(fix.into()),
    }
}

fn skipped(reason: impl Into<String>) -> CaseResult {
    CaseResult::Skipped {
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::check::DOCUMENTATION;

    #[test]
    fn docs_have_a_row_for_each_check() {
        let rows = DOCUMENTATION.lines().filter_map(|line| {
            let name = line.strip_prefix("| `")?.split_once("` | ")?.0;
            (name.contains('/') && !name.starts_with("--")).then_some(name)
        });
        let checks = all_checks().map(|c| format!("{}/{}", c.group, c.name));
        assert!(rows.eq(checks), "the table of docs/conformance.md");
    }

    #[test]
    fn checks_have_unique_names_and_texts_for_a_table() {
        let names: BTreeSet<_> = all_checks().map(|c| (c.group, c.name)).collect();
        assert_eq!(names.len(), all_checks().count());
        for check in all_checks() {
            let (requirement, fix) = check.texts();
            for text in [requirement, fix] {
                let fits = !text.is_empty() && !text.contains(['|', '\n']) && !text.ends_with('.');
                assert!(fits, "{}/{}: {text:?}", check.group, check.name);
            }
        }
    }
}
