//! Findings, and the report of all of them.

use std::fmt::Write;

use serde::Serialize;

use crate::table::plain;

/// The worst first.
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
    /// A stable code.
    pub check: &'static str,
    pub object: String,
    pub text: String,
    /// A command or a field; empty if there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fix: String,
}

impl Finding {
    pub(crate) fn problem(
        check: &'static str,
        object: impl Into<String>,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
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
    ) -> Self {
        Self {
            level: Level::Warning,
            ..Self::problem(check, object, text, fix)
        }
    }

    pub(crate) fn ok(
        check: &'static str,
        object: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Ok,
            ..Self::problem(check, object, text, "")
        }
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
        // Within a level the order of the checks: the first faults cause later ones.
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

    /// The report for people; the passed checks only with `all`.
    pub(crate) fn text(&self, all: bool) -> String {
        let mut out = String::new();
        for finding in &self.findings {
            let (word, check, object) = match finding.level {
                Level::Problem => ("PROBLEM", finding.check, &finding.object),
                Level::Warning => ("WARNING", finding.check, &finding.object),
                Level::Ok if all => ("OK", finding.check, &finding.object),
                Level::Ok => continue,
            };
            _ = writeln!(out, "{word:<8} {check}  {}", plain(object));
            _ = writeln!(out, "  {}", plain(&finding.text));
            if !finding.fix.is_empty() {
                _ = writeln!(out, "  fix: {}", plain(&finding.fix));
            }
            out.push('\n');
        }
        let hint = match (all, self.passed) {
            (true, _) | (_, 0) => "",
            (false, _) => " (--all shows them)",
        };
        _ = writeln!(
            out,
            "{}, {}, {} passed{hint}",
            counted(self.problems, "problem"),
            counted(self.warnings, "warning"),
            counted(self.passed, "check"),
        );
        out
    }
}

/// `1 pod`, `2 pods`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// The first items and the number of the others: `a, b and 3 more`.
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
                Finding::ok("CrdsInstalled", "7 kinds", "installed"),
                Finding::warning("LeaseExpired", "Lease b", "old", "a command"),
                Finding::problem("CrdMissing", "CRD \u{1b}[2Jx", "missing", "another"),
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
