//! Reads the values of YAML scalars as kubectl does: as YAML 1.1 without base 60, by the rules of
//! sigs.k8s.io/yaml, with numbers as Go writes them in JSON.

use base64::{Engine, engine::general_purpose::STANDARD};
use granit_parser::Tag;
use serde_json::{Number, Value};

/// The namespace of YAML's core tags.
const CORE: &str = "tag:yaml.org,2002:";

/// The error of a YAML text that has no value in JSON.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum YamlError {
    #[error("{0}")]
    Syntax(String),
    #[error("a key is empty, a list or a mapping; write a text")]
    NoKey,
    #[error("the value of << is not a mapping; name an anchor of one")]
    NoMapping,
    #[error("an alias is inside of the node that its anchor names")]
    AliasInside,
    #[error("with its aliases, it is deeper than {0}")]
    TooDeep(usize),
    #[error("its aliases copy more than {0} MiB")]
    TooLarge(usize),
    #[error("the value does not fit its tag !!{0}")]
    Tag(String),
    #[error("the value of the tag !!binary is not base64: {0}")]
    Binary(#[from] base64::DecodeError),
    #[error("JSON has no number {0}; write it in quotes")]
    NoNumber(String),
}

/// Returns the value of a scalar. Without a tag, only a plain scalar can be other than a text.
pub(super) fn resolve(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Value, YamlError> {
    let Some(tag) = tag else {
        return if plain {
            implicit(text)
        } else {
            Ok(text.into())
        };
    };
    let core = tag.suffix_in_namespace(CORE);
    let value = match core.as_deref() {
        Some("null" | "bool" | "int" | "float") => implicit(text)?,
        Some("binary") => return binary(text),
        _ => return Ok(text.into()),
    };
    let fits = match core.as_deref() {
        Some("null") => value.is_null(),
        Some("bool") => value.is_boolean(),
        _ => value.is_number(),
    };
    fits.then_some(value)
        .ok_or_else(|| YamlError::Tag(core.unwrap_or_default().into()))
}

/// Returns a mapping's key as a text, because JSON has no other keys.
pub(super) fn key(value: Value) -> Result<String, YamlError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        _ => Err(YamlError::NoKey),
    }
}

fn binary(text: &str) -> Result<Value, YamlError> {
    let packed: String = text.split_ascii_whitespace().collect();
    Ok(String::from_utf8_lossy(&STANDARD.decode(packed)?).into())
}

fn implicit(text: &str) -> Result<Value, YamlError> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => {
            return Err(YamlError::NoNumber(text.to_owned()));
        }
        _ => number(text).map_or_else(|| text.into(), Value::Number),
    })
}

fn number(text: &str) -> Option<Number> {
    match text.as_bytes().first()? {
        b'0'..=b'9' | b'+' | b'-' => {
            let plain = text.replace('_', "");
            integer(&plain).or_else(|| fraction(&plain))
        }
        // After a dot at the start, an underscore must be between digits.
        b'.' => {
            let mut around = text.split('_');
            let digits = |c: char| c.is_ascii_digit();
            let first = around.next()?;
            let between = around.all(|part| part.starts_with(digits))
                && (!text.contains('_') || (first.ends_with(digits) && !text.ends_with('_')));
            between.then(|| fraction(&text.replace('_', "")))?
        }
        _ => None,
    }
}

/// Returns the integer of a text as Go's `ParseInt` and `ParseUint` read it with base 0.
fn integer(text: &str) -> Option<Number> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (radix, digits) = match body.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (16, &body[2..]),
        Some("0b") => (2, &body[2..]),
        Some("0o") => (8, &body[2..]),
        _ if body.len() > 1 && body.starts_with('0') => (8, &body[1..]),
        _ => (10, body),
    };
    // Rust would accept a second sign here.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let size = u64::from_str_radix(digits, radix).ok()?;
    match text.as_bytes()[0] {
        b'-' => 0_i64.checked_sub_unsigned(size).map(Number::from),
        b'+' => i64::try_from(size).ok().map(Number::from),
        _ => Some(size.into()),
    }
}

/// Returns the number of a decimal text. A whole number becomes an integer, as Go writes it in
/// JSON.
fn fraction(text: &str) -> Option<Number> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    if !body.starts_with(|c: char| c.is_ascii_digit() || c == '.') || !body.chars().all(is_number) {
        return None;
    }
    let value: f64 = text.parse().ok().filter(|v: &f64| v.is_finite())?;
    // Both bounds are exact, and so are the conversions of whole numbers between them.
    if value.fract() != 0.0 || value < -(2_f64.powi(63)) || value >= 2_f64.powi(64) {
        return Number::from_f64(value);
    }
    Some(if value < 0.0 {
        Number::from(value as i64)
    } else {
        Number::from(value as u64)
    })
}

#[cfg(test)]
#[path = "scalar_tests.rs"]
mod tests;
