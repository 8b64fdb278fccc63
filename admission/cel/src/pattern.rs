//! Patterns in Go's syntax (RE2) on the `regex` crate: the same leftmost-first matches.
//! Matching takes at worst a step per byte of text and state, so its cost is by both.

use regex::{Regex, RegexBuilder};

/// Bytes of the largest compiled pattern.
const LARGEST: usize = 128 << 10;
/// Sizes that are tried in turn, so that a small pattern is known to be small.
const SIZES: [usize; 3] = [2 << 10, 16 << 10, LARGEST];
/// Bytes of a pattern that cost one unit for each byte of text.
const BYTES_A_UNIT: usize = 1 << 10;
/// Bytes of the longest pattern.
const LONGEST: usize = 16 << 10;
/// Unicode classes in one pattern: each is hundreds of ranges, which no other limit counts.
const CLASSES: usize = 100;
/// Repetitions Go allows.
const REPETITIONS: u32 = 1_000;

#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    bytes: usize,
}

impl Pattern {
    /// Units of compiling a pattern, or of failing to.
    pub(crate) fn units(pattern: Option<&Self>) -> u64 {
        pattern.map_or(LARGEST, |pattern| pattern.bytes) as u64 / 4
    }

    pub(crate) fn match_units(&self, text: &str) -> u64 {
        text.len() as u64 * self.bytes.div_ceil(BYTES_A_UNIT) as u64
    }

    /// Fails for an invalid or too large pattern.
    pub(crate) fn new(source: &str) -> Result<Self, String> {
        let classes = |letter| source.matches(letter).count();
        if source.len() > LONGEST || classes("\\p") + classes("\\P") > CLASSES {
            return Err("it is too large".to_owned());
        }
        let translated = translate(source)?;
        let mut wrong = String::new();
        for bytes in SIZES {
            let built = RegexBuilder::new(&translated)
                .size_limit(bytes)
                .dfa_size_limit(1 << 20)
                .nest_limit(50)
                .octal(true)
                .build();
            match built {
                Ok(regex) => return Ok(Self { regex, bytes }),
                Err(regex::Error::CompiledTooBig(_)) => wrong = "it is too large".to_owned(),
                Err(other) => {
                    let text = other.to_string();
                    return Err(text.lines().last().unwrap_or_default().trim().to_owned());
                }
            }
        }
        Err(wrong)
    }
}

/// Go's syntax in that of the `regex` crate: classes as `\d` are ASCII, a `[`
/// within a class is itself, `\Q..\E` quotes.
fn translate(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len() + 16);
    let mut chars = source.chars().peekable();
    let mut class = false;
    let mut first = false;
    // Repetition operators in a row: a second one may only be a `?`.
    let mut repeats = 0;
    while let Some(c) = chars.next() {
        let starts_class = std::mem::take(&mut first);
        let again = std::mem::take(&mut repeats);
        if !class {
            let operator = matches!(c, '*' | '+' | '?')
                || (c == '{' && repetitions(&mut chars.clone()).is_some());
            if operator {
                if again > 1 || (again == 1 && c != '?') {
                    return Err(format!("invalid nested repetition operator: `{c}`"));
                }
                repeats = again + 1;
            }
            if c == '(' {
                flags(chars.clone())?;
            }
        }
        match c {
            '\\' => match chars.next() {
                None => return Err("trailing backslash at end of expression".to_owned()),
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
                    return Err(format!("invalid escape sequence: `\\{escaped}`"));
                }
                // One digit that is not zero would be a backreference.
                Some(digit @ '1'..='9')
                    if digit > '7' || !matches!(chars.peek(), Some('0'..='7')) =>
                {
                    return Err(format!("invalid escape sequence: `\\{digit}`"));
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
                // The end of `[:alpha:]` is not that of the class.
                class = out.ends_with(':')
                    && out.rfind("[:").is_some_and(|at| !out[at..].contains(']'));
                out.push(']');
            }
            ']' if class => out.push_str("\\]"),
            '&' | '~' if class => out.extend(['\\', c]),
            '-' if class && chars.peek() == Some(&'-') => out.push_str("\\-"),
            '{' if !class => {
                if let Some(high) = repetitions(&mut chars.clone())
                    && high > REPETITIONS
                {
                    return Err(format!("invalid repeat count: more than {REPETITIONS}"));
                }
                // A brace that starts no repetition is itself.
                out.push_str(if repeats > 0 { "{" } else { "\\{" });
                // The rest of it is no operator of its own.
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

/// Refuses flags Go does not have; names of groups it has.
fn flags(chars: std::iter::Peekable<std::str::Chars<'_>>) -> Result<(), String> {
    let text: String = chars.take(16).collect();
    let Some(rest) = text.strip_prefix('?') else {
        return Ok(());
    };
    let known = |c: char| "imsU-".contains(c);
    match rest.trim_start_matches(known) {
        _ if rest.starts_with("P<") || rest.starts_with('<') => Ok(()),
        after if after.starts_with([':', ')']) => Ok(()),
        _ => Err("invalid or unsupported Perl syntax".to_owned()),
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

/// The largest count of a repetition that starts after its brace.
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
