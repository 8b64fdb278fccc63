//! Renders the results for people.

use std::fmt::Write;

use tautline_report::CaseResult;

use super::runner::CaseRun;
use crate::{
    local::Placement,
    render::{self, View},
    table::{cut, plain, section},
};

const MAX_NAME_COLUMNS: usize = 70;
/// The maximum number of nodes of a failed case that are shown.
const MAX_NODES: usize = 12;

/// Renders a table for each file, then [`failures`].
pub(super) fn text(runs: &[CaseRun]) -> String {
    let mut out = String::new();
    for file in runs.chunk_by(|a, b| a.case.group == b.case.group) {
        let title = file.first().map_or("", |run| &run.case.group);
        let pod = |p: &Placement| format!("{}/{}", p.namespace, p.pod);
        out += &section(
            title,
            file,
            &[
                ("RESULT", &|run| word(&run.case.result).to_owned()),
                ("CASE", &|run| cut(&plain(&run.case.name), MAX_NAME_COLUMNS)),
                ("POD", &|run| pod(&run.placement)),
                ("NODE", &|run| {
                    let node = run.placement.node.as_deref();
                    node.unwrap_or("pending").to_owned()
                }),
            ],
        );
        out.push('\n');
    }
    out + &failures(runs)
}

/// Renders the failed cases, then the totals.
pub(super) fn failures(runs: &[CaseRun]) -> String {
    let mut out = String::new();
    for run in runs {
        if let CaseResult::Failed { message, fix } = &run.case.result {
            failure(&mut out, run, message, fix.as_deref());
        }
    }
    let is_failed = |run: &&CaseRun| word(&run.case.result) == FAILED;
    let failed = runs.iter().filter(is_failed).count();
    // Writing to a String cannot fail.
    _ = writeln!(out, "{} passed, {failed} failed", runs.len() - failed);
    out
}

const FAILED: &str = "FAILED";

fn word(result: &CaseResult) -> &'static str {
    match result {
        CaseResult::Passed => "ok",
        CaseResult::Failed { .. } => FAILED,
        CaseResult::Skipped { .. } => "skipped",
    }
}

fn failure(out: &mut String, run: &CaseRun, message: &str, fix: Option<&str>) {
    let (group, name) = (&run.case.group, plain(&run.case.name));
    _ = writeln!(out, "{FAILED} {group}: {name}");
    for line in message.lines() {
        // The first word is right-aligned.
        let indent = line.len() - line.trim_start().len();
        _ = writeln!(out, "  {:indent$}{}", "", plain(line));
    }
    if let Some(fix) = fix {
        _ = writeln!(out, "  fix: {}", plain(fix));
    }
    for line in render::placement(&run.placement, View::plain(MAX_NODES)).lines() {
        _ = writeln!(out, "  | {line}");
    }
    out.push('\n');
}
