//! Results of test cases as TAP and as JUnit XML, for `tautline test` and `tautline conformance`.
//! Both formats are written from one [`Report`].

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use serde::Serialize;

use crate::escaped;

/// The results of one run.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The name of the whole test suite.
    pub suite: String,
    /// The test cases, in the order in which they ran.
    pub cases: Vec<Case>,
}

/// One test case.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    /// The file or the subject that the case belongs to.
    pub group: String,
    /// The name of the case, unique in its group.
    pub name: String,
    /// The result of the case.
    #[serde(flatten)]
    pub result: CaseResult,
    /// The duration of the case; in JSON `tookMicros`, in microseconds.
    #[serde(rename = "tookMicros", serialize_with = "as_micros")]
    pub took: Duration,
}

/// The result of a test case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum CaseResult {
    /// The case ended as expected.
    Passed,
    /// The case did not end as expected.
    Failed {
        /// The expected and the actual result; the text may have several lines.
        message: String,
        /// The remedy, if one is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        fix: Option<String>,
    },
    /// The case was not run.
    Skipped {
        /// The reason why the case was not run, such as a missing requirement.
        reason: String,
    },
}

impl Report {
    /// Returns the number of failed cases.
    pub fn failed(&self) -> usize {
        let failed = |c: &&Case| matches!(c.result, CaseResult::Failed { .. });
        self.cases.iter().filter(failed).count()
    }

    /// Returns the number of skipped cases.
    pub fn skipped(&self) -> usize {
        let skipped = |c: &&Case| matches!(c.result, CaseResult::Skipped { .. });
        self.cases.iter().filter(skipped).count()
    }

    /// Returns the report in the Test Anything Protocol, version 13.
    pub fn tap(&self) -> String {
        tap(self)
    }

    /// Returns the report as JUnit XML, which CI systems read.
    pub fn junit(&self) -> String {
        junit(self)
    }
}

fn as_micros<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(took.as_micros().try_into().unwrap_or(u64::MAX))
}

/// Writes the Test Anything Protocol, version 13
/// (<https://testanything.org/tap-version-13-specification.html>). `prove` does not know later
/// versions, and readers of version 14 accept version 13, too.
fn tap(report: &Report) -> String {
    let mut text = format!("TAP version 13\n1..{}\n", report.cases.len());
    for (case, number) in report.cases.iter().zip(1..) {
        let name = one_line(&format!("{}: {}", case.group, case.name));
        // Writing to a String cannot fail.
        _ = match &case.result {
            CaseResult::Passed => writeln!(text, "ok {number} - {name}"),
            CaseResult::Skipped { reason } => {
                writeln!(text, "ok {number} - {name} # SKIP {}", one_line(reason))
            }
            CaseResult::Failed { message, fix } => {
                _ = writeln!(text, "not ok {number} - {name}\n  ---");
                block(&mut text, "message", message);
                if let Some(fix) = fix {
                    block(&mut text, "fix", fix);
                }
                writeln!(text, "  ...")
            }
        };
    }
    text
}

/// Returns a text of TAP in one line, with `#` escaped, which would begin a directive.
fn one_line(text: &str) -> String {
    let line: String = printable(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    line.replace('\\', "\\\\").replace('#', "\\#")
}

/// Appends a literal block of YAML within the subset that `prove` reads: no empty lines, and the
/// first line sets the indentation.
fn block(text: &mut String, key: &str, value: &str) {
    _ = writeln!(text, "  {key}: |");
    for line in printable(value).trim_start().lines() {
        _ = writeln!(text, "    {line}");
    }
}

fn printable(text: &str) -> String {
    // YAML treats U+2028 and U+2029 as line breaks.
    let is_odd = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{2028}' | '\u{2029}');
    text.replace(is_odd, "\u{fffd}")
}

/// Writes JUnit XML in the dialect that GitHub, GitLab and Jenkins read: `testsuites`, `testsuite`,
/// `testcase`.
fn junit(report: &Report) -> String {
    let mut groups = BTreeMap::<&str, Vec<&Case>>::new();
    for case in &report.cases {
        groups.entry(&case.group).or_default().push(case);
    }
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{}\"{}>\n",
        escaped(&report.suite),
        counts(report.cases.iter())
    );
    for (group, cases) in groups {
        let count = counts(cases.iter().copied());
        // Writing to a String cannot fail.
        _ = writeln!(text, "  <testsuite name=\"{}\"{count}>", escaped(group));
        for case in cases {
            test_case(&mut text, case);
        }
        text += "  </testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn test_case(text: &mut String, case: &Case) {
    _ = write!(
        text,
        "    <testcase classname=\"{}\" name=\"{}\" time=\"{}\"",
        escaped(&case.group),
        escaped(&case.name),
        seconds(case.took)
    );
    _ = match &case.result {
        CaseResult::Passed => writeln!(text, "/>"),
        CaseResult::Skipped { reason } => writeln!(
            text,
            ">\n      <skipped message=\"{}\"/>\n    </testcase>",
            escaped(reason)
        ),
        CaseResult::Failed { message, fix } => {
            // Some systems show only the attribute `message`, so it has the whole message.
            let lines: Vec<&str> = message.lines().map(str::trim).collect();
            let fix = fix.iter().map(|fix| format!("\nFix: {fix}"));
            let body = fix.fold(message.clone(), |all, fix| all + &fix);
            writeln!(
                text,
                ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>",
                escaped(&lines.join("; ")),
                escaped(&body)
            )
        }
    };
}

fn counts<'a>(cases: impl Iterator<Item = &'a Case>) -> String {
    let (mut all, mut failed, mut skipped, mut took) = (0, 0, 0, Duration::ZERO);
    for case in cases {
        all += 1;
        took += case.took;
        match case.result {
            CaseResult::Passed => {}
            CaseResult::Failed { .. } => failed += 1,
            CaseResult::Skipped { .. } => skipped += 1,
        }
    }
    format!(
        " tests=\"{all}\" failures=\"{failed}\" skipped=\"{skipped}\" time=\"{}\"",
        seconds(took)
    )
}

fn seconds(took: Duration) -> String {
    format!("{:.6}", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Report {
        let case = |name: &str, result| Case {
            group: "web & db.yaml".into(),
            name: name.into(),
            result,
            took: Duration::from_micros(1_500),
        };
        Report {
            suite: "tautline test".into(),
            cases: vec![
                case("near <db>", CaseResult::Passed),
                case(
                    "issue #1 \\ far",
                    CaseResult::Failed {
                        message: "expected: n1\ngot: \"n2\" \u{1b}[0m".into(),
                        fix: Some("raise the limit".into()),
                    },
                ),
                case(
                    "gpu",
                    CaseResult::Skipped {
                        reason: "no cards\nhere".into(),
                    },
                ),
            ],
        }
    }

    #[test]
    fn every_result_has_a_line() {
        insta::assert_snapshot!(sample().tap());
    }

    #[test]
    fn every_result_has_an_element() {
        insta::assert_snapshot!(sample().junit());
    }
}
