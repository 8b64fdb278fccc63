//! What the API server makes of a configuration's scalars after the merge.
//!
//! The merge itself knows numbers, strings and booleans only. The server then
//! turns the result into the kind's Go type, which is where a fraction in an
//! integer field fails. That is checked here first, so that a policy that fails
//! there fails here, and by its own `failurePolicy`.

use serde_json::{Number, Value};

use crate::Shape;

/// Whether a value of the shape can be this one.
pub(crate) fn fits(shape: Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::Integer, Value::Number(number)) => whole(number).is_some(),
        (Shape::IntOrString, Value::Number(number)) => {
            whole(number).is_some_and(|whole| i32::try_from(whole).is_ok())
        }
        (Shape::IntOrString | Shape::String | Shape::Time | Shape::Bytes, value) => {
            value.is_string()
        }
        (Shape::Quantity, Value::String(text)) => is_quantity(text.trim()),
        (Shape::Quantity, value) => value.is_number(),
        _ => true,
    }
}

/// The value as the server writes it: 5.0 is 5.
pub(crate) fn settled(value: &Value) -> Value {
    match value {
        Value::Number(number) => match whole(number) {
            Some(whole) => whole.into(),
            None => value.clone(),
        },
        Value::Array(elements) => elements.iter().map(settled).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            Value::Object(fields.map(|(k, v)| (k.clone(), settled(v))).collect())
        }
        other => other.clone(),
    }
}

/// The whole number that it is, in whichever spelling.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(crate) fn whole(number: &Number) -> Option<i64> {
    /// Beyond 2^53, floats leave whole numbers out.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i64)
    })
}

/// Digits, one of the suffixes or an exponent. Source: the Kubernetes API
/// reference, resource quantities.
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
    fn what_fits() {
        for (shape, value, does) in [
            (Shape::Integer, json!(5.0), true),
            (Shape::Integer, json!(5.5), false),
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
        assert_eq!(settled(&value), expected);
    }
}
