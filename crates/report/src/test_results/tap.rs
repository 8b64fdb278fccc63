//! The Test Anything Protocol, version 13
//! (<https://testanything.org/tap-version-13-specification.html>). `prove` does not know later
//! versions, and readers of version 14 accept version 13, too.

use std::fmt::Write;

use super::{CaseResult, Report};

pub(super) fn text(report: &Report) -> String {
    let mut text = format!("TAP version 13\n1..{}\n", report.cases.len());
    for (case, number) in report.cases.iter().zip(1..) {
        let name = escaped(&format!("{}: {}", case.group, case.name));
        // Writing to a String cannot fail.
        _ = match &case.result {
            CaseResult::Passed => writeln!(text, "ok {number} - {name}"),
            CaseResult::Skipped { reason } => {
                writeln!(text, "ok {number} - {name} # SKIP {}", escaped(reason))
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

/// Returns the text in one line, with `#` escaped, which would begin a directive.
fn escaped(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    #[test]
    fn every_result_has_a_line() {
        insta::assert_snapshot!(crate::test_results::sample().tap());
    }
}
