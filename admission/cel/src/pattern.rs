//! Compiles patterns in Go's syntax (RE2) with the `regex` crate, which finds the same
//! leftmost-first matches. Matching takes at worst one step per byte of text and state of the
//! pattern, so its cost is proportional to both sizes.

use crate::error::Invalid;
use regex::{Regex, RegexBuilder};

/// The size of the largest compiled pattern, in bytes.
const MAX_COMPILED_BYTES: usize = 128 << 10;
/// The size limits, in bytes, that are tried in turn to find the size class of a pattern.
const COMPILED_SIZE_LIMITS_BYTES: [usize; 3] = [2 << 10, 16 << 10, MAX_COMPILED_BYTES];
/// The bytes of a compiled pattern that cost one unit for each byte of text.
const PATTERN_BYTES_PER_UNIT: usize = 1 << 10;
/// The length of the longest pattern, in bytes.
const MAX_SOURCE_BYTES: usize = 16 << 10;
/// The most Unicode classes in one pattern. Each stands for hundreds of ranges, which no other
/// limit counts.
const MAX_UNICODE_CLASSES: usize = 100;
/// The largest repetition count that Go allows.
const MAX_REPETITIONS: u32 = 1_000;

#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    bytes: usize,
}

impl Pattern {
    /// Returns the cost units of compiling a pattern. One that does not compile (`None`) costs as
    /// much as the largest one.
    pub(crate) fn units(pattern: Option<&Self>) -> u64 {
        pattern.map_or(MAX_COMPILED_BYTES, |pattern| pattern.bytes) as u64 / 4
    }

    pub(crate) fn match_units(&self, text: &str) -> u64 {
        text.len() as u64 * self.bytes.div_ceil(PATTERN_BYTES_PER_UNIT) as u64
    }

    /// Compiles a pattern. Fails if it is invalid or too large.
    pub(crate) fn new(source: &str) -> Result<Self, Invalid> {
        let classes = |letter| source.matches(letter).count();
        if source.len() > MAX_SOURCE_BYTES || classes("\\p") + classes("\\P") > MAX_UNICODE_CLASSES
        {
            return Err("it is too large".into());
        }
        let translated = translate(source)?;
        let mut wrong = Invalid(String::new());
        for bytes in COMPILED_SIZE_LIMITS_BYTES {
            let built = RegexBuilder::new(&translated)
                .size_limit(bytes)
                .dfa_size_limit(1 << 20)
                .nest_limit(50)
                .octal(true)
                .build();
            match built {
                Ok(regex) => return Ok(Self { regex, bytes }),
                Err(regex::Error::CompiledTooBig(_)) => wrong = "it is too large".into(),
                Err(other) => {
                    let text = other.to_string();
                    return Err(text.lines().last().unwrap_or_default().trim().into());
                }
            }
        }
        Err(wrong)
    }
}

/// Translates Go's syntax to the syntax of the `regex` crate: in Go, classes such as `\d` are
/// ASCII, a `[` within a class is literal, and `\Q..\E` quotes.
fn translate(source: &str) -> Result<String, Invalid> {
    let mut out = String::with_capacity(source.len() + 16);
    let mut chars = source.chars().peekable();
    let mut class = false;
    let mut first = false;
    // The number of repetition operators directly before; a second one may only be a `?`.
    let mut repeats = 0;
    while let Some(c) = chars.next() {
        let starts_class = std::mem::take(&mut first);
        let again = std::mem::take(&mut repeats);
        if !class {
            let operator = matches!(c, '*' | '+' | '?')
                || (c == '{' && repetitions(&mut chars.clone()).is_some());
            if operator {
                if again > 1 || (again == 1 && c != '?') {
                    return Err(Invalid(format!(
                        "invalid nested repetition operator: `{c}`"
                    )));
                }
                repeats = again + 1;
            }
            if c == '(' {
                flags(chars.clone())?;
            }
        }
        match c {
            '\\' => match chars.next() {
                None => return Err("trailing backslash at end of expression".into()),
                Some('Q') if !class => quoted(&mut chars, &mut out),
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
                Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
                Some('b') if !class => out.push_str("(?-u:\\b)"),
                Some('B') if !class => out.push_str("(?-u:\\B)"),
                Some(
                    escaped @ ('<' | '>' | 'Z' | 'u' | 'U' | 'C' | 'E' | 'G' | 'h' | 'H' | 'K'
                    | 'R' | 'X'),
                ) => {
                    return Err(Invalid(format!("invalid escape sequence: `\\{escaped}`")));
                }
                // One digit that is not zero would be a backreference.
                Some(digit @ '1'..='9')
                    if digit > '7' || !matches!(chars.peek(), Some('0'..='7')) =>
                {
                    return Err(Invalid(format!("invalid escape sequence: `\\{digit}`")));
                }
                Some(escaped) => out.extend(['\\', escaped]),
            },
            '[' if !class => {
                class = true;
                first = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
            }
            '[' if chars.peek() == Some(&':') => out.push('['),
            '[' => out.push_str("\\["),
            ']' if class && !starts_class => {
                // The `]` that ends `[:alpha:]` does not end the class around it.
                class = out.ends_with(':')
                    && out.rfind("[:").is_some_and(|at| !out[at..].contains(']'));
                out.push(']');
            }
            ']' if class => out.push_str("\\]"),
            '&' | '~' if class => out.extend(['\\', c]),
            '-' if class && chars.peek() == Some(&'-') => out.push_str("\\-"),
            '{' if !class => {
                if let Some(high) = repetitions(&mut chars.clone())
                    && high > MAX_REPETITIONS
                {
                    return Err(Invalid(format!(
                        "invalid repeat count: more than {MAX_REPETITIONS}"
                    )));
                }
                // A brace that does not start a repetition is literal.
                out.push_str(if repeats > 0 { "{" } else { "\\{" });
                // The rest of the repetition contains no operators.
                if repeats > 0 {
                    while let Some(inner) = chars.next_if(|c| *c != '}') {
                        out.push(inner);
                    }
                    out.extend(chars.next());
                }
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

/// Refuses flags of a group that Go does not have. Named groups are allowed.
fn flags(chars: std::iter::Peekable<std::str::Chars<'_>>) -> Result<(), Invalid> {
    let text: String = chars.take(16).collect();
    let Some(rest) = text.strip_prefix('?') else {
        return Ok(());
    };
    let known = |c: char| "imsU-".contains(c);
    match rest.trim_start_matches(known) {
        _ if rest.starts_with("P<") || rest.starts_with('<') => Ok(()),
        after if after.starts_with([':', ')']) => Ok(()),
        _ => Err("invalid or unsupported Perl syntax".into()),
    }
}

fn quoted(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next_if_eq(&'E').is_some() {
            return;
        }
        out.push_str(&regex::escape(&c.to_string()));
    }
}

/// Returns the largest count of a repetition, given the text after its opening brace; `None` if the
/// text is not a repetition.
fn repetitions(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<u32> {
    let text: String = chars.take_while(|c| *c != '}').take(32).collect();
    let (low, high) = text.split_once(',').unwrap_or((&text, ""));
    let number = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse().unwrap_or(u32::MAX))
    };
    if low.is_empty() {
        return None;
    }
    let low = number(low)?;
    let high = if high.is_empty() {
        Some(low)
    } else {
        number(high)
    }?;
    Some(low.max(high))
}
