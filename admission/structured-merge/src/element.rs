//! Computes the identity of list elements, by which a merge finds the same element in two lists.

use std::{borrow::Cow, fmt::Write};

use serde_json::Value;

use crate::{
    error::Invalid,
    scalar::whole,
    types::{Definitions, List, Relation},
};

/// The identity of a list's element. It is equal for elements with equal keys or values, including
/// whole numbers in any spelling (80, 80.0). The identity of a single string is the string; other
/// identities begin with [`OTHER`].
pub(crate) type Identity<'a> = Cow<'a, str>;

/// The first character of the identity of a value that is not a string, or of a string that begins
/// with this character.
const OTHER: char = '\0';

/// Returns the identity of an element; `None` for elements of atomic lists.
pub(crate) fn identity<'a>(
    definitions: &Definitions,
    list: &List,
    element: &'a Value,
) -> Result<Option<Identity<'a>>, Invalid> {
    match &list.relation {
        Relation::Atomic => Ok(None),
        Relation::Set => match element {
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Some(alone(element))),
            other => Err(Invalid(format!(
                "is {}, where a set holds only scalars",
                json_type(other)
            ))),
        },
        Relation::Keyed(keys) => keyed(definitions, list, keys, element).map(Some),
    }
}

fn keyed<'a>(
    definitions: &Definitions,
    list: &List,
    keys: &[String],
    element: &'a Value,
) -> Result<Identity<'a>, Invalid> {
    let Value::Object(fields) = element else {
        return Err(Invalid(format!(
            "is {}, where the list holds objects by {}",
            json_type(element),
            keys.join(", ")
        )));
    };
    let declared = definitions.at(&list.element).ok().and_then(|at| at.map());
    let default = |key| declared?.fields.get(key)?.default.as_ref();
    if let [key] = keys {
        if let Some(value) = fields.get(key) {
            return Ok(alone(value));
        }
        if let Some(value) = default(key) {
            return Ok(Cow::Owned(alone(value).into_owned()));
        }
    }
    let of = |key| fields.get(key).or_else(|| default(key));
    let mut identity = String::from(OTHER);
    for key in keys {
        if let Some(value) = of(key) {
            identity.push_str(key);
            identity.push('=');
            write(&mut identity, value);
            identity.push(',');
        }
    }
    if identity.len() == OTHER.len_utf8() {
        return Err(Invalid(format!(
            "has none of the keys that tell the list's elements apart ({}); give one",
            keys.join(", ")
        )));
    }
    Ok(Cow::Owned(identity))
}

fn alone(value: &Value) -> Identity<'_> {
    match value {
        Value::String(text) if !text.starts_with(OTHER) => Cow::Borrowed(text),
        other => {
            let mut identity = String::from(OTHER);
            write(&mut identity, other);
            Cow::Owned(identity)
        }
    }
}

fn write(identity: &mut String, value: &Value) {
    _ = match value {
        Value::Number(number) => match whole(number) {
            Some(whole) => write!(identity, "{whole}"),
            None => write!(identity, "{number}"),
        },
        Value::String(text) => write!(identity, "\"{}:{text}", text.len()),
        other => write!(identity, "{other}"),
    };
}

/// Returns the label of an element in a path: `name="web"`, or `="value"` in a set.
pub(crate) fn label(list: &List, element: &Value) -> String {
    let Relation::Keyed(keys) = &list.relation else {
        return format!("={element}");
    };
    let named = |key: &String| Some(format!("{key}={}", element.get(key)?));
    let named: Vec<String> = keys.iter().filter_map(named).collect();
    named.join(",")
}

pub(crate) const fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_the_same_in_any_spelling() {
        for (a, b, same) in [
            (json!(80), json!(80.0), true),
            (json!(-0.0), json!(0), true),
            (json!(80), json!(80.5), false),
            (json!(80), json!("80"), false),
            (json!(i64::MAX), json!(i64::MAX - 1), false),
            (json!(u64::MAX), json!(i64::MAX), false),
        ] {
            let of = |value: &Value| {
                let mut identity = String::new();
                write(&mut identity, value);
                identity
            };
            assert_eq!(of(&a) == of(&b), same, "{a} and {b}");
        }
    }
}
