//! Draws line charts in SVG (<https://www.w3.org/TR/SVG2/>), for reports and the documents, and
//! escapes text for XML.

#![warn(missing_docs)]

mod chart;

pub use chart::{Axis, Line, LineChart};

/// Escapes text for the content or an attribute of an XML 1.0 element. Characters that XML does not
/// allow (<https://www.w3.org/TR/xml/#NT-Char>) become spaces.
///
/// ```
/// assert_eq!(tautline_svg::escaped("<a b=\"c\">&'\u{7}"), "&lt;a b=&quot;c&quot;&gt;&amp;&apos; ");
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
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
