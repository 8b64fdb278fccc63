//! JUnit XML in the dialect that GitHub, GitLab and Jenkins read: `testsuites`, `testsuite`,
//! `testcase`.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use super::{Case, CaseResult, Report};
use crate::escaped;

pub(super) fn text(report: &Report) -> String {
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
    #[test]
    fn every_result_has_an_element() {
        insta::assert_snapshot!(crate::test_results::sample().junit());
    }
}
