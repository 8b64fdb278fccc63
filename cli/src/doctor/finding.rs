//! The findings of checks, and the report that lists them.

use std::fmt::Write;

use serde::Serialize;

use crate::table::plain;

/// The level of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Something does not work.
    Problem,
    /// Something may stop working, or could not be checked.
    Warning,
    /// A check passed.
    Ok,
}

/// The result of a check for one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub level: Level,
    /// The stable code of the finding.
    pub check: &'static str,
    pub object: String,
    pub text: String,
    /// The fix, a command or a field; empty if there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

/// A fault of an object: the code and the text of its finding.
pub(crate) type Fault = (&'static str, String);

pub(crate) fn problem(
    check: &'static str,
    object: impl Into<String>,
    text: impl Into<String>,
    fix: impl Into<String>,
) -> Finding {
    Finding {
        level: Level::Problem,
        check,
        object: object.into(),
        text: text.into(),
        fix: fix.into(),
    }
}

pub(crate) fn warning(
    check: &'static str,
    object: impl Into<String>,
    text: impl Into<String>,
    fix: impl Into<String>,
) -> Finding {
    problem(check, object, text, fix).warning_if(true)
}

/// Returns the finding about something that could not be checked.
pub(crate) fn not_checked(object: impl Into<String>, why: &str, fix: impl Into<String>) -> Finding {
    let text = format!("could not be checked: {why}");
    warning("NotChecked", object, text, fix)
}

/// Returns the finding of a check without faults.
pub(crate) fn passed(
    check: &'static str,
    object: impl Into<String>,
    text: impl Into<String>,
) -> Finding {
    Finding {
        level: Level::Ok,
        ..problem(check, object, text, "")
    }
}

impl Finding {
    /// Makes the problem a warning if the condition holds.
    pub(crate) fn warning_if(mut self, condition: bool) -> Self {
        if condition {
            self.level = Level::Warning;
        }
        self
    }
}

/// The findings, the worst first.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub namespace: String,
    /// The version of this binary.
    pub version: String,
    pub cluster_version: String,
    pub problems: usize,
    pub warnings: usize,
    pub passed: usize,
    pub findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn new(
        namespace: &str,
        cluster_version: &str,
        version: &str,
        mut findings: Vec<Finding>,
    ) -> Self {
        // Within a level the order of the checks stays, since the first faults cause later ones.
        findings.sort_by_key(|f| f.level);
        let count = |level| findings.iter().filter(|f| f.level == level).count();
        Self {
            namespace: namespace.to_owned(),
            version: version.to_owned(),
            cluster_version: cluster_version.to_owned(),
            problems: count(Level::Problem),
            warnings: count(Level::Warning),
            passed: count(Level::Ok),
            findings,
        }
    }

    /// Returns the report for people; it has the passed checks only with `all`.
    pub(crate) fn text(&self, all: bool) -> String {
        let mut out = String::new();
        let shown = |f: &&Finding| all || f.level != Level::Ok;
        for finding in self.findings.iter().filter(shown) {
            let word = match finding.level {
                Level::Problem => "PROBLEM",
                Level::Warning => "WARNING",
                Level::Ok => "OK",
            };
            let object = plain(&finding.object);
            _ = writeln!(out, "{word:<8} {}  {object}", finding.check);
            _ = writeln!(out, "  {}", plain(&finding.text));
            if !finding.fix.is_empty() {
                _ = writeln!(out, "  fix: {}", plain(&finding.fix));
            }
            out.push('\n');
        }
        let hidden = self.passed > 0 && !all;
        let hint = if hidden { " (--all shows them)" } else { "" };
        let problems = counted(self.problems, "problem");
        let warnings = counted(self.warnings, "warning");
        let passed = counted(self.passed, "check");
        _ = writeln!(out, "{problems}, {warnings}, {passed} passed{hint}");
        out
    }
}

/// Returns a count with its noun: `1 pod`, `2 pods`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// Returns the first items, and the number of further items: `a, b and 3 more`.
pub(crate) fn first_of<S: AsRef<str>>(items: &[S], most: usize) -> String {
    let shown: Vec<&str> = items.iter().take(most).map(AsRef::as_ref).collect();
    let text = shown.join(", ");
    match items.len().saturating_sub(most) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_the_worst_first_and_hides_passed_checks() {
        let report = Report::new(
            "tautline-system",
            "v1.36.0",
            "0.1.0",
            vec![
                passed("CrdsInstalled", "7 kinds", "installed"),
                warning("LeaseExpired", "Lease b", "old", "a command"),
                problem("CrdMissing", "CRD \u{1b}[2Jx", "missing", "another"),
            ],
        );
        assert_eq!(
            report.text(false),
            "PROBLEM  CrdMissing  CRD \u{fffd}[2Jx\n  missing\n  fix: another\n\n\
             WARNING  LeaseExpired  Lease b\n  old\n  fix: a command\n\n\
             1 problem, 1 warning, 1 check passed (--all shows them)\n"
        );
        let all = report.text(true);
        assert!(all.contains("OK       CrdsInstalled  7 kinds\n  installed\n\n"));
        assert!(all.ends_with("1 problem, 1 warning, 1 check passed\n"));
    }

    #[test]
    fn first_of_counts_the_rest() {
        assert_eq!(first_of(&["a", "b", "c"], 2), "a, b and 1 more");
        assert_eq!(first_of(&["a"], 2), "a");
    }
}
