//! What tells the elements of a keyed list or a set apart.

use serde_json::Value;

use crate::{
    scalar::whole,
    types::{Definitions, List, Relation},
};

/// Equal for elements that are the same: those whose keys, or values, are equal,
/// a whole number in any spelling (80, 80.0) included.
pub(crate) type Identity = String;

/// `None` for the elements of atomic lists.
pub(crate) fn identity(
    definitions: &Definitions,
    list: &List,
    element: &Value,
) -> Result<Option<Identity>, String> {
    match &list.relation {
        Relation::Atomic => Ok(None),
        Relation::Set => match element {
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let mut identity = Identity::new();
                write(&mut identity, element);
                Ok(Some(identity))
            }
            other => Err(format!(
                "is {}, where a set holds only scalars",
                crate::check::kind(other)
            )),
        },
        Relation::Keyed(keys) => keyed(definitions, list, keys, element).map(Some),
    }
}

fn keyed(
    definitions: &Definitions,
    list: &List,
    keys: &[String],
    element: &Value,
) -> Result<Identity, String> {
    let Value::Object(fields) = element else {
        return Err(format!(
            "is {}, where the list holds objects by {}",
            crate::check::kind(element),
            keys.join(", ")
        ));
    };
    let declared = definitions.at(&list.element).ok().and_then(|at| at.map());
    let mut identity = Identity::new();
    for key in keys {
        let default = || declared?.fields.get(key)?.default.as_ref();
        if let Some(value) = fields.get(key).or_else(default) {
            identity.push_str(key);
            identity.push('=');
            write(&mut identity, value);
            identity.push(',');
        }
    }
    if identity.is_empty() {
        return Err(format!(
            "has none of the keys that tell the list's elements apart ({}); give one",
            keys.join(", ")
        ));
    }
    Ok(identity)
}

// As JSON, but for numbers that are equal and spelled differently.
fn write(identity: &mut Identity, value: &Value) {
    match value {
        Value::Number(number) => match whole(number) {
            Some(whole) => identity.push_str(&whole.to_string()),
            None => identity.push_str(&number.to_string()),
        },
        other => identity.push_str(&other.to_string()),
    }
}

/// For people: `name="web"`, or `="value"` in a set.
pub(crate) fn label(list: &List, element: &Value) -> String {
    let Relation::Keyed(keys) = &list.relation else {
        return format!("={element}");
    };
    let named = |key: &String| Some(format!("{key}={}", element.get(key)?));
    let named: Vec<String> = keys.iter().filter_map(named).collect();
    named.join(",")
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
                let mut identity = Identity::new();
                write(&mut identity, value);
                identity
            };
            assert_eq!(of(&a) == of(&b), same, "{a} and {b}");
        }
    }
}
