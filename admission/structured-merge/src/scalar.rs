//! Checks the scalars of a configuration before the merge, and normalizes them in the merge.
//!
//! The API server converts the merged object to the kind's Go type, which fails for a fraction in
//! an integer field. The check comes before the merge, so that such a policy fails here and by its
//! own `failurePolicy`.

use serde_json::{Number, Value};

use crate::Shape;

pub(crate) fn fits(shape: Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::Integer, Value::Number(number)) => whole(number).is_some(),
        (Shape::Int32 | Shape::IntOrString, Value::Number(number)) => {
            whole(number).is_some_and(|whole| i32::try_from(whole).is_ok())
        }
        (Shape::Time, Value::String(text)) => is_time(text),
        (Shape::Bytes, Value::String(text)) => is_base64(text),
        (Shape::IntOrString | Shape::String | Shape::Time | Shape::Bytes, value) => {
            value.is_string()
        }
        (Shape::Quantity, Value::String(text)) => is_quantity(text.trim()),
        (Shape::Quantity, value) => value.is_number(),
        _ => true,
    }
}

/// Returns the value as the server writes it, such as 5 for 5.0.
pub(crate) fn normalized(value: Value) -> Value {
    match value {
        Value::Number(number) => match whole(&number) {
            Some(whole) => whole.into(),
            None => Value::Number(number),
        },
        Value::Array(elements) => elements.into_iter().map(normalized).collect(),
        Value::Object(mut fields) => {
            for field in fields.values_mut() {
                *field = normalized(field.take());
            }
            Value::Object(fields)
        }
        other => other,
    }
}

pub(crate) fn normalizes_to(other: &Value, value: &Value) -> bool {
    match (other, value) {
        (Value::Array(others), Value::Array(values)) => {
            others.len() == values.len()
                && others.iter().zip(values).all(|(o, v)| normalizes_to(o, v))
        }
        (Value::Object(others), Value::Object(values)) => {
            let mut pairs = others.iter().zip(values);
            others.len() == values.len()
                && pairs.all(|((a, o), (b, v))| a == b && normalizes_to(o, v))
        }
        (_, Value::Number(number)) => match whole(number) {
            Some(whole) => *other == whole,
            None => other == value,
        },
        _ => other == value,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(crate) fn whole(number: &Number) -> Option<i64> {
    /// The integer up to which an `f64` represents every integer exactly.
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
    number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        (float.fract() == 0.0 && float.abs() <= MAX_EXACT_INTEGER).then_some(float as i64)
    })
}

/// Returns whether the text is a quantity by the Kubernetes API reference.
fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 16] = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let exponent = || {
        let digits = suffix.strip_prefix(['e', 'E'])?;
        let digits = digits.strip_prefix(['+', '-']).unwrap_or(digits);
        (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(())
    };
    number.bytes().any(|b| b.is_ascii_digit())
        && number.bytes().filter(|b| *b == b'.').count() <= 1
        && (SUFFIXES.contains(&suffix) || exponent().is_some())
}

/// Returns whether the text is a time in the format of RFC 3339 with a valid day of the month.
fn is_time(text: &str) -> bool {
    let part = |range: std::ops::Range<usize>| -> Option<u32> {
        let digits = text.get(range)?;
        let all = digits.bytes().all(|b| b.is_ascii_digit());
        all.then(|| digits.parse().ok())?
    };
    let at = |index: usize, wanted: &[u8]| {
        let byte = text.as_bytes().get(index);
        byte.is_some_and(|byte| wanted.contains(byte)).then_some(())
    };
    let date_and_time = || {
        let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
        let (hour, minute, second) = (part(11..13)?, part(14..16)?, part(17..19)?);
        at(4, b"-").and(at(7, b"-")).and(at(10, b"T"))?;
        at(13, b":").and(at(16, b":"))?;
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 => 28 + u32::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => 0,
        };
        ((1..=days).contains(&day) && hour < 24 && minute < 60 && second < 60).then_some(())
    };
    let zone = || {
        let mut start = 19;
        if at(start, b".").is_some() {
            let fraction = text.get(20..)?.bytes();
            let digits = fraction.take_while(u8::is_ascii_digit).count();
            start += 1 + digits;
            (digits > 0).then_some(())?;
        }
        if text.get(start..)? == "Z" {
            return Some(());
        }
        at(start, b"+-").and(at(start + 3, b":"))?;
        let (hours, minutes) = (part(start + 1..start + 3)?, part(start + 4..start + 6)?);
        (hours <= 24 && minutes < 60 && text.len() == start + 6).then_some(())
    };
    date_and_time().and_then(|()| zone()).is_some()
}

/// Returns whether the text is base64 with padding. Line ends are ignored.
fn is_base64(text: &str) -> bool {
    let bytes: Vec<u8> = text.bytes().filter(|b| !b"\r\n".contains(b)).collect();
    let padding = bytes.iter().rev().take_while(|b| **b == b'=').count();
    let digit = |b: &u8| b.is_ascii_alphanumeric() || b"+/".contains(b);
    bytes.len().is_multiple_of(4)
        && padding <= 2
        && bytes[..bytes.len() - padding].iter().all(digit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities() {
        for text in ["1", "0.5", ".5", "5.", "+1Ki", "-100m", "1e3", "1E-3", "2E"] {
            assert!(is_quantity(text), "{text}");
        }
        for text in ["", ".", "1.2.3", "1ki", "e3", "1e", "1 Gi", "Gi", "0x1"] {
            assert!(!is_quantity(text), "{text}");
        }
    }

    #[test]
    fn times() {
        for text in [
            "2026-01-02T03:04:05Z",
            "2024-02-29T23:59:59.123456+02:30",
            "0000-12-31T00:00:00-00:00",
        ] {
            assert!(is_time(text), "{text}");
        }
        for text in [
            "",
            "a",
            "2026-01-02",
            "2026-02-29T00:00:00Z",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T24:04:05Z",
            "2026-01-02T03:04:05Zx",
            "2026-01-02T03:04:05+0200",
            "2026-é1-02T03:04:05Z",
        ] {
            assert!(!is_time(text), "{text}");
        }
    }

    #[test]
    fn bytes() {
        for (text, is) in [
            ("", true),
            ("aGk=", true),
            ("aA==\n", true),
            ("a", false),
            ("a===", false),
            ("é===", false),
        ] {
            assert_eq!(is_base64(text), is, "{text}");
        }
    }

    #[test]
    fn values_fit_shapes() {
        for (shape, value, does) in [
            (Shape::Integer, json!(5.0), true),
            (Shape::Integer, json!(5.5), false),
            (Shape::Integer, json!(1_i64 << 40), true),
            (Shape::Integer, json!(1_u64 << 63), false),
            (Shape::Int32, json!(i32::MIN), true),
            (Shape::Int32, json!(5.0), true),
            (Shape::Int32, json!(1_i64 << 31), false),
            (Shape::Number, json!(5.5), true),
            (Shape::IntOrString, json!(80), true),
            (Shape::IntOrString, json!(1_i64 << 40), false),
            (Shape::IntOrString, json!("25%"), true),
            (Shape::IntOrString, json!(true), false),
            (Shape::IntOrString, json!({}), false),
            (Shape::Quantity, json!(2), true),
            (Shape::Quantity, json!("x"), false),
            (Shape::Quantity, json!(false), false),
            (Shape::String, json!(1), false),
            (Shape::Any, json!([null]), true),
        ] {
            assert_eq!(fits(shape, &value), does, "{shape:?} {value}");
        }
    }

    #[test]
    fn whole_floats_are_written_whole() {
        let value = json!({"a": [5.0, 5.5, -0.0, 1e300], "b": "5.0"});
        let expected = json!({"a": [5, 5.5, 0, 1e300], "b": "5.0"});
        assert!(normalizes_to(&expected, &value));
        assert!(!normalizes_to(&value, &value));
        assert_eq!(normalized(value), expected);
    }
}
