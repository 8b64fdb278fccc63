//! A field of an object with its path. As in Go, null counts as absent and a missing number is 0.

use serde_json::Value;
use tautline_core::{duration, quantity};

use crate::{FieldError, error::Errors};

/// A duration in nanoseconds. Negative ones parse, but are never valid.
pub(crate) type Nanos = i128;

#[derive(Clone, Debug)]
pub(crate) struct FieldRef<'a> {
    pub(crate) path: String,
    value: Option<&'a Value>,
}

impl<'a> FieldRef<'a> {
    pub(crate) fn root(object: &'a Value) -> Self {
        Self {
            path: String::new(),
            value: Some(object),
        }
    }

    pub(crate) fn field(&self, name: &str) -> Self {
        let value = self.value.and_then(|v| v.get(name));
        Self {
            path: self.child_path(name),
            value: value.filter(|v| !v.is_null()),
        }
    }

    pub(crate) fn child_path(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.value.is_some()
    }

    pub(crate) fn object(self, errors: &mut Errors) -> Self {
        match self.value {
            Some(value) if !value.is_object() => {
                self.malformed(value, "an object", errors);
                Self {
                    value: None,
                    ..self
                }
            }
            _ => self,
        }
    }

    pub(crate) fn objects(&self, errors: &mut Errors) -> Vec<Self> {
        let list = match self.value {
            None => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(other) => {
                self.malformed(other, "a list", errors);
                return Vec::new();
            }
        };
        let member = |(i, value)| {
            let place = Self {
                path: format!("{}[{i}]", self.path),
                value: Some(value),
            };
            place.object(errors)
        };
        list.iter().enumerate().map(member).collect()
    }

    /// Returns the members of an object with their names.
    pub(crate) fn entries(&self, errors: &mut Errors) -> Vec<(&'a str, Self)> {
        let Some(Value::Object(members)) = self.clone().object(errors).value else {
            return Vec::new();
        };
        let member = |(name, value): (&'a String, &'a Value)| {
            let at = Self {
                path: format!("{}[{name}]", self.path),
                value: Some(value).filter(|v| !v.is_null()),
            };
            (name.as_str(), at)
        };
        members.iter().map(member).collect()
    }

    /// Returns a quantity in thousandths; `None` if it is not a finite quantity.
    pub(crate) fn quantity_milli(&self) -> Option<i64> {
        let text = self.scalar()?;
        let infinite = text.parse::<f64>().is_ok_and(f64::is_infinite);
        quantity::parse_milli(&text).ok().filter(|_| !infinite)
    }

    /// Returns a whole number. Numbers above `i64::MAX` are capped.
    pub(crate) fn int(&self, errors: &mut Errors) -> i64 {
        let Some(value) = self.value else { return 0 };
        if let Some(number) = value.as_i64() {
            return number;
        }
        if value.is_u64() {
            return i64::MAX;
        }
        self.malformed(value, "a whole number", errors);
        0
    }

    pub(crate) fn text(&self, errors: &mut Errors) -> Option<&'a str> {
        let value = self.value?;
        let text = value.as_str();
        if text.is_none() {
            self.malformed(value, "a text", errors);
        }
        text
    }

    pub(crate) fn duration(&self, errors: &mut Errors) -> Option<Nanos> {
        let text = self.text(errors)?;
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) if !rest.starts_with('+') => (-1, rest),
            _ => (1, text),
        };
        match duration::parse(rest) {
            Ok(duration) => Some(sign * Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)),
            Err(_) => {
                let detail = "write a duration, such as 30s or 5m";
                errors.push(FieldError::invalid(&self.path, &text.into(), detail));
                None
            }
        }
    }

    pub(crate) fn raw(&self) -> Option<&'a Value> {
        self.value
    }

    pub(crate) fn value(&self) -> Value {
        self.value.cloned().unwrap_or_default()
    }

    pub(crate) fn scalar(&self) -> Option<String> {
        match self.value? {
            Value::String(text) => Some(text.trim().to_owned()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// Records that the value is invalid.
    pub(crate) fn invalid(&self, detail: impl Into<String>, errors: &mut Errors) {
        errors.push(FieldError::invalid(&self.path, &self.value(), detail));
    }

    fn malformed(&self, value: &Value, wanted: &str, errors: &mut Errors) {
        let path = if self.path.is_empty() {
            "object"
        } else {
            &self.path
        };
        errors.push(FieldError::malformed(
            path,
            value,
            format!("write {wanted}"),
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_as_go_reads_them() {
        let read = |text: &str| {
            let value = json!({"d": text});
            let mut errors = Errors::default();
            let read = FieldRef::root(&value).field("d").duration(&mut errors);
            (read, errors.into_result().is_ok())
        };
        for (text, seconds) in [
            ("30s", 30),
            ("1m30s", 90),
            ("-5s", -5),
            ("+5s", 5),
            ("0", 0),
            ("-0s", 0),
        ] {
            assert_eq!(read(text), (Some(seconds * 1_000_000_000), true), "{text}");
        }
        for text in ["", "30", "--5s", "-+5s", "5 s", "1d"] {
            assert_eq!(read(text), (None, false), "{text}");
        }
    }

    #[test]
    fn wrong_types_are_reported() {
        let value = json!({"n": "1", "t": 1, "o": [], "l": {}, "m": [1], "f": 1.5});
        let root = FieldRef::root(&value);
        let mut errors = Errors::default();
        assert_eq!(root.field("n").int(&mut errors), 0);
        assert_eq!(root.field("f").int(&mut errors), 0);
        assert_eq!(root.field("t").text(&mut errors), None);
        assert!(!root.field("o").object(&mut errors).is_present());
        assert!(root.field("l").objects(&mut errors).is_empty());
        assert_eq!(root.field("m").objects(&mut errors).len(), 1);
        let errors = errors.into_result().unwrap_err();
        insta::assert_snapshot!(crate::message(&errors), @r#"
        validation failed:
          - n: Invalid value: "1": write a whole number
          - f: Invalid value: 1.5: write a whole number
          - t: Invalid value: 1: write a text
          - o: Invalid value: []: write an object
          - l: Invalid value: {}: write a list
          - m[0]: Invalid value: 1: write an object
        "#);
        assert!(errors.iter().all(FieldError::is_malformed));
    }

    #[test]
    fn nothing_is_no_error() {
        let value = json!({"n": null});
        let root = FieldRef::root(&value);
        let mut errors = Errors::default();
        assert_eq!(root.field("n").int(&mut errors), 0);
        assert_eq!(root.field("n").text(&mut errors), None);
        assert_eq!(root.field("x").field("y").duration(&mut errors), None);
        assert!(root.field("n").objects(&mut errors).is_empty());
        assert_eq!(errors.into_result(), Ok(()));
        let most = json!({"n": u64::MAX});
        let mut errors = Errors::default();
        assert_eq!(FieldRef::root(&most).field("n").int(&mut errors), i64::MAX);
    }
}
