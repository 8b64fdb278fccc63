//! Writes what people and other programs read later: line charts in SVG
//! (<https://www.w3.org/TR/SVG2/>), results of test cases as TAP and as JUnit XML.

#![warn(missing_docs)]

mod chart;
mod test_results;

pub use chart::{Axis, Line, LineChart};
pub use test_results::{Case, CaseResult, Report};

/// Escapes text for the content or an attribute of an XML 1.0 element. Control characters, most of
/// which XML does not allow (<https://www.w3.org/TR/xml/#NT-Char>), become U+FFFD.
///
/// ```
/// assert_eq!(tautline_report::escaped("<a b=\"c\">&'\u{7}"), "&lt;a b=&quot;c&quot;&gt;&amp;&apos;\u{fffd}");
/// ```
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&apos;",
            // As they are, an attribute loses them.
            '\n' => out += "&#10;",
            '\t' => out += "&#9;",
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
