//! The named formats of Kubernetes and their validation. The error texts are those of apimachinery
//! (`pkg/api/validate/content`, `util/validation`).

use super::url::Url;

/// A named format with its validation.
#[derive(Debug)]
pub struct NamedFormat {
    name: &'static str,
    pub(crate) validate: fn(&str) -> Vec<String>,
}

static FORMATS: [NamedFormat; 13] = [
    named("dns1123Label", label),
    named("dns1123Subdomain", subdomain),
    named("dns1035Label", old_label),
    named("qualifiedName", qualified_name),
    named("dns1123LabelPrefix", |text| label(&prefix(text))),
    named("dns1123SubdomainPrefix", |text| subdomain(&prefix(text))),
    named("dns1035LabelPrefix", |text| old_label(&prefix(text))),
    named("labelValue", label_value),
    named("uri", |text| {
        let wrong = Url::parse_request(text).err();
        wrong.into_iter().map(|wrong| wrong.0).collect()
    }),
    named("uuid", |text| {
        unless(uuid(text), "does not match the UUID format")
    }),
    named("byte", |text| unless(base64(text), "invalid base64")),
    named("date", |text| unless(date(text), "invalid date")),
    named("datetime", |text| {
        unless(date_time(text), "invalid datetime")
    }),
];

const fn named(name: &'static str, validate: fn(&str) -> Vec<String>) -> NamedFormat {
    NamedFormat { name, validate }
}

pub(crate) fn find(name: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.name == name)
}

fn unless(valid: bool, error: &str) -> Vec<String> {
    if valid {
        Vec::new()
    } else {
        vec![error.to_owned()]
    }
}

/// Replaces a trailing dash, which is allowed in the prefix of generated names, so that the prefix
/// is validated without it.
fn prefix(text: &str) -> String {
    if text.len() > 1 && text.ends_with('-') && text.is_char_boundary(text.len() - 2) {
        format!("{}a", &text[..text.len() - 2])
    } else {
        text.to_owned()
    }
}

fn mismatch(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    format!(
        "{message} (e.g. {}regex used for validation is '{pattern}')",
        examples.join(" or ")
    )
}

fn too_long(text: &str, most: usize, unit: &str) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} {unit}"))
}

/// Returns whether the first and last byte match `end` and all others match `within`.
fn word(text: &str, end: fn(u8) -> bool, within: fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [only] => end(*only),
        [first, middle @ .., last] => {
            end(*first) && end(*last) && middle.iter().all(|byte| within(*byte))
        }
    }
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    word(text, lower, |byte| lower(byte) || byte == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn label(text: &str) -> Vec<String> {
    let mut errors: Vec<String> = too_long(text, 63, "characters").into_iter().collect();
    if is_label(text) {
        return errors;
    }
    errors.push(if is_subdomain(text) {
        "must not contain dots".to_owned()
    } else {
        mismatch(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "123-abc"],
        )
    });
    errors
}

pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut errors: Vec<String> = too_long(text, 253, "characters").into_iter().collect();
    if !is_subdomain(text) {
        errors.push(mismatch(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    errors
}

fn old_label(text: &str) -> Vec<String> {
    let mut errors: Vec<String> = too_long(text, 63, "characters").into_iter().collect();
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(mismatch(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// Returns whether the text has the form of a label's value or of the name in a label's key.
fn is_label_part(text: &str) -> bool {
    word(
        text,
        |byte| byte.is_ascii_alphanumeric(),
        |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte),
    )
}

fn label_value(text: &str) -> Vec<String> {
    let mut errors: Vec<String> = too_long(text, 63, "bytes").into_iter().collect();
    if !text.is_empty() && !is_label_part(text) {
        errors.push(mismatch(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

fn uuid(text: &str) -> bool {
    let mut rest = text;
    for (place, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if place > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..length) {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                rest = &rest[length..]
            }
            _ => return false,
        }
    }
    rest.is_empty()
}

fn base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

fn date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, byte)| {
            if at == 4 || at == 7 {
                *byte == b'-'
            } else {
                byte.is_ascii_digit()
            }
        })
        && text.parse::<jiff::civil::Date>().is_ok()
}

fn date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(day), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let pair = |text: Option<&str>| {
        text.filter(|text| text.len() == 2 && digits(text))
            .map(str::to_owned)
    };
    let (Some(hour), Some(minute), Some(second)) = (
        pair(time.get(..2)),
        pair(time.get(3..5)),
        pair(time.get(6..8)),
    ) else {
        return false;
    };
    if !date(day) || time.get(2..3) != Some(":") || time.get(5..6) != Some(":") {
        return false;
    }
    let Some(rest) = time.get(8..) else {
        return false;
    };
    let zone_at = match rest.strip_suffix('z') {
        Some(before) => Some(before),
        None => rest.len().checked_sub(6).and_then(|at| {
            let (before, zone) = rest.split_at_checked(at)?;
            let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
            let is_zone = pair(Some(hours)).is_some() && pair(Some(minutes)).is_some();
            is_zone.then_some(before)
        }),
    };
    let fraction = zone_at.is_some_and(|fraction| {
        let mut chars = fraction.chars();
        chars.next().is_none() || (!chars.as_str().is_empty() && digits(chars.as_str()))
    });
    fraction && *hour <= *"23" && *minute <= *"59" && *second <= *"59"
}

pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    const MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    const PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    let rule = || mismatch(MESSAGE, PATTERN, &["MyName", "my.name", "123-abc"]);
    let mut parts = text.split('/');
    let mut errors = Vec::new();
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(subdomain(prefix).iter().map(|reason| {
                    format!(
                        "prefix part {}",
                        reason.replace("253 characters", "253 bytes")
                    )
                }));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                rule()
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_label_part(name) {
        errors.push(format!("name part {}", rule()));
    }
    errors
}
