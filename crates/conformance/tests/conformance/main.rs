//! Tautline's own providers pass; providers with one fault each fail at its check.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

mod broken;
mod fake;
mod no_grpc;
mod own;
mod tls;

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use tautline_conformance::{Config, run};
use tautline_report::{CaseResult, Report};

/// Deadlines that a busy machine keeps.
fn patient(address: SocketAddr, rule: &str) -> Config {
    let minute = Duration::from_secs(60);
    Config {
        deadline: minute,
        evaluate_deadline: minute,
        patience: minute,
        start_within: minute,
        timeout: 5 * minute,
        ..Config::new(address.to_string(), rule)
    }
}

fn failed(report: &Report) -> BTreeSet<String> {
    let failed = |result: &CaseResult| matches!(result, CaseResult::Failed { .. });
    let cases = report.cases.iter().filter(|case| failed(&case.result));
    cases.map(|c| format!("{}/{}", c.group, c.name)).collect()
}

/// The checks that were skipped, with the reasons.
fn skipped(report: &Report) -> String {
    let lines = report.cases.iter().filter_map(|case| match &case.result {
        CaseResult::Skipped { reason } => Some(format!("{}/{}: {reason}\n", case.group, case.name)),
        CaseResult::Passed | CaseResult::Failed { .. } => None,
    });
    lines.collect()
}

/// Runs the suite; nothing must fail.
async fn passes(config: Config) -> Report {
    let report = run(config).await.unwrap();
    assert_eq!(failed(&report), BTreeSet::new(), "{}", report.tap());
    report
}
