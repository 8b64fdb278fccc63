//! The function `format`, with the output of cel-go's version 2: `%s`, `%d`, `%f`, `%e`, `%b`,
//! `%x`, `%X`, `%o`.

use std::fmt::Write as _;

use super::convert::double_text;
use super::declaration::Module;
use crate::budget::Budget;
use crate::error::{EvaluationError, Invalid};
use crate::types::Type;
use crate::value::{Key, Value, duration};

pub(super) const MODULE: Module = (
    "string.format(list<dyn>): string",
    |_, context, arguments| match arguments {
        [Value::String(pattern), Value::List(values)] => format(context.budget, pattern, values),
        _ => Err(EvaluationError::no_overload()),
    },
);

/// The number of decimals if a clause does not give it.
const DEFAULT_DECIMALS: usize = 6;
/// The most decimals that a clause may ask for. All further decimals of a double are zero.
const MAX_DECIMALS: usize = 1_100;

fn format(budget: &mut Budget, pattern: &str, values: &[Value]) -> Result<Value, EvaluationError> {
    budget.charge_allocation(pattern.len())?;
    let mut out = String::new();
    let mut values = values.iter().enumerate();
    let mut rest = pattern;
    let mut index = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let Some((place, value)) = values.next() else {
            return Err(EvaluationError::failed(format!(
                "index {index} out of range"
            )));
        };
        index = place + 1;
        let (decimals, after) = decimals(rest)?;
        let mut clause = after.chars();
        let kind = clause
            .next()
            .ok_or_else(|| EvaluationError::failed("unexpected end of string"))?;
        rest = clause.as_str();
        let before = out.len();
        print(budget, &mut out, kind, decimals, value)?;
        budget.charge_allocation(out.len() - before)?;
    }
    out.push_str(rest);
    Ok(Value::string(out))
}

/// Refuses a pattern that does not fit the number and the types of its values.
pub(crate) fn check_format(pattern: &str, types: &[Type]) -> Result<(), Invalid> {
    let mut rest = pattern;
    let mut taken = 0;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        let of = types
            .get(taken)
            .ok_or_else(|| Invalid(format!("index {taken} out of range")))?;
        taken += 1;
        let (_, after) = decimals(rest).map_err(|error| Invalid(error.to_string()))?;
        let mut clause = after.chars();
        let kind = clause.next().ok_or("unexpected end of string")?;
        rest = clause.as_str();
        let fits = match (kind, of) {
            ('s' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o', Type::Dyn) => true,
            ('s', of) => !matches!(
                of,
                Type::Optional(_) | Type::Opaque(_) | Type::Record(_) | Type::Object { .. }
            ),
            ('d' | 'o', of) => matches!(of, Type::Int | Type::Uint),
            ('f' | 'e', of) => matches!(of, Type::Double | Type::String),
            ('b', of) => matches!(of, Type::Int | Type::Uint | Type::Bool),
            ('x' | 'X', of) => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
            _ => {
                return Err(Invalid(format!(
                    "unrecognized formatting clause \"{kind}\""
                )));
            }
        };
        if !fits {
            return Err(Invalid(format!(
                "error during formatting: %{kind} does not take a value of type {of}"
            )));
        }
    }
    if types.len() > taken {
        let found = types.len();
        return Err(Invalid(format!(
            "too many arguments supplied to string.format (expected {taken}, got {found})"
        )));
    }
    Ok(())
}

fn decimals(rest: &str) -> Result<(usize, &str), EvaluationError> {
    let Some(digits) = rest.strip_prefix('.') else {
        return Ok((DEFAULT_DECIMALS, rest));
    };
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    match digits[..length].parse() {
        Ok(decimals) if decimals <= MAX_DECIMALS => Ok((decimals, &digits[length..])),
        _ => Err(EvaluationError::failed("error while parsing precision")),
    }
}

fn print(
    budget: &mut Budget,
    out: &mut String,
    kind: char,
    decimals: usize,
    value: &Value,
) -> Result<(), EvaluationError> {
    let wrong = |wanted: &str| {
        Err(EvaluationError::failed(format!(
            "error during formatting: {wanted}, was given {}",
            value.type_name()
        )))
    };
    match (kind, value) {
        ('s', _) => return text(budget, out, value, false),
        ('d', Value::Int(number)) => put(out, format_args!("{number}")),
        ('d', Value::Uint(number)) => put(out, format_args!("{number}")),
        ('d', _) => return wrong("decimal clause can only be used on integers"),
        ('f' | 'e', Value::Double(number)) => {
            // The digits of these numbers are computed one by one, which is expensive.
            if decimals > 20 || number.abs() > 1e20 {
                budget.charge(300 + decimals as u64)?;
            }
            real(out, kind, decimals, *number);
        }
        ('f' | 'e', Value::String(text)) => match &**text {
            "NaN" => out.push_str("NaN"),
            "Infinity" => out.push('∞'),
            "-Infinity" => out.push_str("-∞"),
            _ => return wrong("fixed-point clause can only be used on doubles"),
        },
        ('f', _) => return wrong("fixed-point clause can only be used on doubles"),
        ('e', _) => return wrong("scientific clause can only be used on doubles"),
        ('b', Value::Bool(flag)) => out.push(if *flag { '1' } else { '0' }),
        ('b' | 'o' | 'x' | 'X', Value::Uint(number)) => integer(out, kind, "", *number),
        ('b' | 'o' | 'x' | 'X', Value::Int(number)) => {
            let sign = if *number < 0 { "-" } else { "" };
            integer(out, kind, sign, number.unsigned_abs());
        }
        ('b', _) => return wrong("only integers and bools can be formatted as binary"),
        ('o', _) => return wrong("octal clause can only be used on integers"),
        ('x' | 'X', Value::String(text)) => return bytes(budget, out, kind, text.as_bytes()),
        ('x' | 'X', Value::Bytes(content)) => return bytes(budget, out, kind, content),
        ('x' | 'X', _) => {
            return wrong("only integers, byte buffers, and strings can be formatted as hex");
        }
        _ => {
            return Err(EvaluationError::failed(format!(
                "unrecognized formatting clause \"{kind}\""
            )));
        }
    }
    Ok(())
}

fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = out.write_fmt(arguments);
}

fn integer(out: &mut String, kind: char, sign: &str, size: u64) {
    match kind {
        'b' => put(out, format_args!("{sign}{size:b}")),
        'o' => put(out, format_args!("{sign}{size:o}")),
        'x' => put(out, format_args!("{sign}{size:x}")),
        _ => put(out, format_args!("{sign}{size:X}")),
    }
}

fn bytes(
    budget: &mut Budget,
    out: &mut String,
    kind: char,
    content: &[u8],
) -> Result<(), EvaluationError> {
    budget.charge_allocation(content.len() * 2)?;
    let digits = match kind {
        'x' => b"0123456789abcdef",
        _ => b"0123456789ABCDEF",
    };
    out.reserve(content.len() * 2);
    for byte in content {
        out.push(char::from(digits[usize::from(byte >> 4)]));
        out.push(char::from(digits[usize::from(byte & 15)]));
    }
    Ok(())
}

/// Prints a double as golang.org/x/text does for English, with commas between thousands and
/// exponents like `1.5×10⁰³`. cel-go uses the precision of `%e` as the minimum width.
fn real(out: &mut String, kind: char, decimals: usize, number: f64) {
    if kind == 'e' {
        let mut text = String::new();
        if number.is_sign_negative() && !number.is_nan() {
            text.push('-');
        }
        if number.is_nan() {
            text.push_str("NaN");
        } else if number.is_infinite() {
            text.push('∞');
        } else {
            let digits = format!("{:.DEFAULT_DECIMALS$e}", number.abs());
            let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
            put(&mut text, format_args!("{mantissa}×10"));
            superscript(&mut text, exponent);
        }
        put(out, format_args!("{text:>decimals$}"));
        return;
    }
    if number.is_nan() {
        out.push_str("NaN");
        return;
    }
    if number.is_sign_negative() {
        out.push('-');
    }
    let size = number.abs();
    if size.is_infinite() {
        out.push('∞');
        return;
    }
    let text = format!("{size:.decimals$}");
    let (whole, fraction) = text
        .split_once('.')
        .map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
}

fn superscript(out: &mut String, exponent: &str) {
    let digits = exponent.trim_start_matches('-');
    if exponent.starts_with('-') {
        out.push('⁻');
    }
    if digits.len() == 1 {
        out.push('⁰');
    }
    out.extend(digits.bytes().map(|digit| {
        ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][usize::from(digit - b'0') % 10]
    }));
}

/// Prints a value for `%s`. Inside lists and maps, strings are quoted, and timestamps and durations
/// are printed as calls.
fn text(
    budget: &mut Budget,
    out: &mut String,
    value: &Value,
    inside: bool,
) -> Result<(), EvaluationError> {
    budget.charge(1)?;
    let before = out.len();
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => put(out, format_args!("{flag}")),
        Value::Int(number) => put(out, format_args!("{number}")),
        Value::Uint(number) => put(out, format_args!("{number}")),
        Value::Double(number) if inside => {
            if number.is_finite() {
                put(out, format_args!("{number:.6}"));
            } else {
                put(out, format_args!("\"{}\"", double_text(*number)));
            }
        }
        Value::Double(number) => out.push_str(&double_text(*number)),
        Value::String(text) => {
            budget.charge_allocation(text.len())?;
            if inside {
                quote(out, text)
            } else {
                out.push_str(text)
            }
        }
        Value::Bytes(content) => {
            budget.charge_allocation(content.len())?;
            let text = std::str::from_utf8(content).map_err(|_| {
                EvaluationError::failed("invalid UTF-8 in bytes, cannot convert to string")
            })?;
            if inside {
                out.push('b');
                quote(out, text);
            } else {
                out.push_str(text);
            }
        }
        Value::Timestamp(time) if inside => put(out, format_args!("timestamp(\"{time}\")")),
        Value::Timestamp(time) => put(out, format_args!("{time}")),
        Value::Duration(span) if inside => put(
            out,
            format_args!("duration(\"{}\")", duration::to_text(*span)),
        ),
        Value::Duration(span) => out.push_str(&duration::to_text(*span)),
        Value::Type(name) => out.push_str(name),
        Value::List(list) => {
            out.push('[');
            for (place, each) in list.iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                text(budget, out, each, true)?;
            }
            out.push(']');
            return Ok(());
        }
        Value::Map(map) => {
            let mut pairs = Vec::with_capacity(map.len());
            for (key, value) in map.iter() {
                let (mut name, mut shown) = (String::new(), String::new());
                match key {
                    Key::String(text) => quote(&mut name, text),
                    Key::Int(number) => put(&mut name, format_args!("{number}")),
                    Key::Bool(flag) => put(&mut name, format_args!("{flag}")),
                }
                text(budget, &mut shown, value, true)?;
                budget.charge_allocation(name.len() + shown.len())?;
                pairs.push((name, shown));
            }
            pairs.sort();
            out.push('{');
            for (place, (name, shown)) in pairs.iter().enumerate() {
                put(
                    out,
                    format_args!("{}{name}:{shown}", if place > 0 { ", " } else { "" }),
                );
            }
            out.push('}');
            return Ok(());
        }
        other => {
            return Err(EvaluationError::failed(format!(
                "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
                other.type_name()
            )));
        }
    }
    budget.charge_allocation(out.len().saturating_sub(before))
}

/// Prints a text in quotes like Go's `%q`.
fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\x0b' => out.push_str("\\v"),
            c if c.is_ascii_control() => put(out, format_args!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}
