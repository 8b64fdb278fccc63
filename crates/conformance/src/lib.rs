//! Judges a rule provider by the contract, over gRPC: `tautline conformance`, and tests of
//! providers.
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
mod objects;
mod questions;
mod session;
mod stream;
mod wire;

use std::time::Duration;

use tautline_test_report::{Case, CaseResult, Report};
use tokio::time::Instant;

pub use tautline_proto::RULE_PROVIDER_PORT;

pub use crate::{
    check::Check,
    config::{Config, Tls},
    objects::{Expectation, Peer, PlacedPod},
};

use crate::{
    check::{Finding, Verdict},
    checks::connection,
    failure::GONE,
    session::Session,
};

/// A run without a report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter selects no check.
    #[error("no check has {0:?} in its name; the groups are {1}")]
    NoSuchCheck(String, String),
    /// The address is not one.
    #[error("address {0:?}: write HOST:PORT, as in 127.0.0.1:5309 or [::1]:5309")]
    Address(String),
    /// A certificate or key that TLS cannot use.
    #[error("TLS: {0}")]
    Tls(tonic::transport::Error),
    /// Nothing accepts connections.
    #[error("no connection to {address}: {why}; start the provider, or check the address and TLS")]
    Connect {
        /// HOST:PORT.
        address: String,
        /// The causes.
        why: String,
    },
    /// The server is no gRPC server, or expects TLS.
    #[error(
        "no gRPC at {address}: {why}; name the provider's gRPC port, and --provider-ca if it has \
         TLS"
    )]
    NoGrpc {
        /// HOST:PORT.
        address: String,
        /// What came instead.
        why: String,
    },
}

/// All checks, in the order of a run.
pub fn all_checks() -> impl Iterator<Item = &'static Check> {
    checks::GROUPS.into_iter().flatten()
}

/// Runs the checks that the configuration selects.
///
/// # Errors
/// No check is selected, or the provider cannot be reached.
pub async fn run(config: Config) -> Result<Report, Error> {
    let selected: Vec<&Check> = all_checks().filter(|c| config.selects(c)).collect();
    if selected.is_empty() {
        let mut groups: Vec<&str> = all_checks().map(|check| check.group).collect();
        groups.dedup();
        let filter = config.filter.unwrap_or_default();
        return Err(Error::NoSuchCheck(filter, groups.join(", ")));
    }
    let end = Instant::now() + config.timeout;
    let session = Session::connect(config).await?;
    let mut report = Report {
        suite: format!(
            "provider {}, rule {}",
            session.config.address, session.config.rule
        ),
        cases: Vec::new(),
    };
    // Without it, every other check would fail for the same reason.
    let ready = case(&session, &connection::READY, end).await;
    let is_ready = ready.result == CaseResult::Passed;
    let mut ended_in = None;
    if !is_ready || selected.iter().any(|c| c.is(&connection::READY)) {
        report.cases.push(ready);
    }
    for check in selected {
        if check.is(&connection::READY) {
            continue;
        }
        let missing = if Instant::now() >= end {
            Some("not run: the time of the run was over")
        } else if !is_ready && check.needs_answers {
            Some("no answer to judge: see connection/ready")
        } else if session.has_gone() && !judges_samples(&session, check) {
            Some(GONE)
        } else {
            None
        };
        report.cases.push(match missing {
            Some(reason) => skipped(check, reason),
            None => case(&session, check, end).await,
        });
        if session.has_gone() {
            ended_in.get_or_insert(report.cases.len() - 1);
        }
    }
    // A provider that has gone never passes.
    if report.failed() == 0
        && let Some(case) = ended_in.and_then(|at| report.cases.get_mut(at))
    {
        case.result = CaseResult::Failed {
            message: "the connection broke, and the provider accepts no more".into(),
            fix: Some("see in the provider's log why it ended".into()),
        };
    }
    Ok(report)
}

/// The answers from before the end of the provider say which question ended it.
fn judges_samples(session: &Session, check: &Check) -> bool {
    session.has_samples() && ["nodes", "questions"].contains(&check.group)
}

async fn case(session: &Session, check: &Check, end: Instant) -> Case {
    let start = Instant::now();
    let verdict = tokio::time::timeout_at(end, (check.run)(session)).await;
    session.release_all().await;
    let result = match verdict {
        Ok(verdict) => result(check, verdict),
        Err(_) => CaseResult::Failed {
            message: format!(
                "not done when the time of the run, {:?}, was over",
                session.config.timeout
            ),
            fix: Some("answer faster, or raise --timeout".into()),
        },
    };
    Case {
        group: check.group.into(),
        name: check.name.into(),
        result,
        took: start.elapsed(),
    }
}

fn result(check: &Check, verdict: Verdict) -> CaseResult {
    match verdict {
        Ok(()) => CaseResult::Passed,
        Err(Finding::Skipped(reason)) => CaseResult::Skipped { reason },
        Err(Finding::Failed(message)) => CaseResult::Failed {
            message,
            fix: Some(check.fix.into()),
        },
    }
}

fn skipped(check: &Check, reason: &str) -> Case {
    Case {
        group: check.group.into(),
        name: check.name.into(),
        result: CaseResult::Skipped {
            reason: reason.into(),
        },
        took: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn documented() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/conformance.md");
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn docs_have_the_table_of_checks() {
        let rows = all_checks().map(|c| {
            let Check { group, name, .. } = c;
            format!("| `{group}/{name}` | {} | {} |\n", c.requires, c.fix)
        });
        let table: String = rows.collect();
        assert!(
            documented().contains(&table),
            "docs/conformance.md needs this table:\n{table}"
        );
    }

    #[test]
    fn checks_have_unique_names_and_texts_for_a_table() {
        let names: BTreeSet<_> = all_checks().map(|c| (c.group, c.name)).collect();
        assert_eq!(names.len(), all_checks().count());
        for check in all_checks() {
            for text in [check.requires, check.fix] {
                let fits = !text.is_empty() && !text.contains(['|', '\n']) && !text.ends_with('.');
                assert!(fits, "{}/{}: {text:?}", check.group, check.name);
            }
        }
    }
}
