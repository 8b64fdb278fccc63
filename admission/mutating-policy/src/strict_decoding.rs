//! Checks an object like the API server's strict decoder checks the result of a JSON patch: unknown
//! fields, wrong types and values that the Go type cannot have are refused.

use serde_json::Value;
use tautline_structured_merge::{Schema, Shape};

/// The depth in levels below which nothing is checked. It is deeper than any schema nests.
const MAX_DEPTH: usize = 64;

/// The first fault of an object, with its path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Invalid(pub String);

/// Fails with the first error in `object`. Parts that equal the same parts of `before` are not
/// checked.
pub(crate) fn check(schema: &Schema, object: &Value, before: &Value) -> Result<(), Invalid> {
    value(schema, object, before, &mut Vec::new())
}

fn value<'a>(
    schema: &Schema,
    at: &'a Value,
    before: &Value,
    path: &mut Vec<&'a str>,
) -> Result<(), Invalid> {
    // The decoder ignores null.
    if at.is_null() || path.len() > MAX_DEPTH {
        return Ok(());
    }
    let fits = match schema.shape() {
        Shape::Object | Shape::Map => at.is_object(),
        Shape::List => at.is_array(),
        Shape::String | Shape::Time | Shape::Bytes => at.is_string(),
        Shape::Integer | Shape::Int32 => at.is_i64() || at.is_u64(),
        Shape::Quantity => at.is_string() || at.is_number(),
        Shape::Number => at.is_number(),
        Shape::Boolean => at.is_boolean(),
        Shape::IntOrString => at.is_string() || at.is_i64() || at.is_u64(),
        Shape::Any => return Ok(()),
    };
    if !fits {
        return Err(Invalid(format!("{}: has a wrong type", shown(path))));
    }
    if !schema.shape().fits(at) {
        return Err(Invalid(format!("{}: has an invalid value", shown(path))));
    }
    match at {
        Value::Object(fields) => {
            for (name, field) in fields {
                let was = before.get(name);
                if was == Some(field) {
                    continue;
                }
                path.push(name);
                let Some(inner) = schema.field(name) else {
                    let path = shown(path);
                    return Err(Invalid(format!(
                        "strict decoding error: unknown field {path:?}"
                    )));
                };
                value(&inner, field, was.unwrap_or(&Value::Null), path)?;
                path.pop();
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.element() {
                for (i, item) in items.iter().enumerate() {
                    path.push("[]");
                    value(&inner, item, before.get(i).unwrap_or(&Value::Null), path)?;
                    path.pop();
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn shown(path: &[&str]) -> String {
    path.join(".").replace(".[]", "[]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tautline_structured_merge::Schemas;

    #[test]
    fn unknown_fields_and_wrong_types_are_found() {
        let schema = Schemas::bundled().kind("", "v1", "Pod").unwrap();
        let good = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "labels": {"x/y": "z"}, "creationTimestamp": null},
            "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": 1}},
                "livenessProbe": {"httpGet": {"port": "http"}}, "ports": [{"containerPort": 1}]}]},
            "status": {}});
        assert_eq!(check(&schema, &good, &Value::Null), Ok(()));
        assert_eq!(check(&schema, &good, &good), Ok(()));
        let bad = [
            (
                json!({"spec": {"containers": [{"nam": "a"}]}}),
                "spec.containers[].nam",
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "metadata.labels.a",
            ),
            (json!({"spec": {"containers": {}}}), "spec.containers"),
            (json!({"spec": {"priority": "1"}}), "spec.priority"),
            (json!({"spec": {"priority": 1_i64 << 31}}), "spec.priority"),
            (json!({"spec": {"priority": 1.0}}), "spec.priority"),
            (
                json!({"spec": {"activeDeadlineSeconds": 1_u64 << 63}}),
                "spec.activeDeadlineSeconds",
            ),
            (
                json!({"metadata": {"creationTimestamp": "2026-01-02"}}),
                "metadata.creationTimestamp",
            ),
            (
                json!({"spec": {"overhead": {"cpu": "abc"}}}),
                "overhead.cpu",
            ),
            (
                json!({"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": 1_i64 << 31}}}]}}),
                "httpGet.port",
            ),
            (json!({"spec": {"hostNetwork": 1}}), "spec.hostNetwork"),
            (json!({"spec": {"nothing": null}}), "spec.nothing"),
        ];
        for (object, path) in bad {
            for before in [&Value::Null, &good] {
                let message = check(&schema, &object, before).unwrap_err().to_string();
                assert!(message.contains(path), "{message}");
            }
            assert_eq!(check(&schema, &object, &object), Ok(()));
        }
    }
}
