//! Removes empty fields from objects of built-in kinds, for which the API server treats empty
//! fields as absent.

use serde_json::{Map, Value};
use tautline_structured_merge::{Schema, Schemas, Shape};

use crate::request::Kind;

/// The depth in levels below which nothing is removed. It is deeper than any schema nests.
const MAX_DEPTH: usize = 64;

/// Returns the schema of a built-in kind. Objects of other kinds are not pruned.
pub(crate) fn built_in_schema(kind: &Kind) -> Option<Schema> {
    Schemas::bundled().kind(&kind.group, &kind.version, &kind.kind)
}

/// Removes nulls and empty lists and maps that `before` did not have. Empty structs remain, because
/// they have a meaning. Returns true if no null was removed.
pub(crate) fn prune(schema: &Schema, object: &mut Value, before: &Value) -> bool {
    if let Value::Object(fields) = object {
        return prune_struct(schema, fields, before, 0);
    }
    true
}

fn prune_struct(
    schema: &Schema,
    fields: &mut Map<String, Value>,
    before: &Value,
    depth: usize,
) -> bool {
    if depth > MAX_DEPTH {
        return true;
    }
    let mut whole = true;
    fields.retain(|name, value| {
        if !matches!(value, Value::Null | Value::Array(_) | Value::Object(_)) {
            return true;
        }
        let was = before.get(name);
        if was == Some(value) {
            return true;
        }
        let Some(inner) = schema.field(name) else {
            return true;
        };
        let empty = match &*value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty() && inner.shape() == Shape::Map,
            _ => false,
        };
        if empty {
            whole &= !value.is_null();
            return false;
        }
        whole &= prune_value(&inner, value, was.unwrap_or(&Value::Null), depth + 1);
        true
    });
    whole
}

fn prune_value(schema: &Schema, value: &mut Value, before: &Value, depth: usize) -> bool {
    match value {
        Value::Object(fields) => prune_struct(schema, fields, before, depth),
        Value::Array(items) => {
            let Some(inner) = schema.element() else {
                return true;
            };
            let mut whole = true;
            for (i, item) in items.iter_mut().enumerate() {
                let was = before.get(i).unwrap_or(&Value::Null);
                if item != was {
                    whole &= prune_value(&inner, item, was, depth + 1);
                }
            }
            whole
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn new_empty_fields_are_removed_and_empty_structs_stay() {
        let schema = Schemas::bundled().kind("", "v1", "Pod").unwrap();
        let before = json!({"metadata": {"labels": {}}, "spec": {"containers": [{"name": "a"}]}});
        let mut object = json!({
            "metadata": {"labels": {}, "annotations": {}, "finalizers": []},
            "spec": {"containers": [{"name": "a", "env": [], "image": null, "resources": {}}],
                "initContainers": [], "securityContext": {}, "volumes": [{"emptyDir": {}}]},
            "status": {},
        });
        prune(&schema, &mut object, &before);
        let expected = json!({
            "metadata": {"labels": {}},
            "spec": {"containers": [{"name": "a", "resources": {}}],
                "securityContext": {}, "volumes": [{"emptyDir": {}}]},
            "status": {},
        });
        assert_eq!(object, expected);
    }
}
