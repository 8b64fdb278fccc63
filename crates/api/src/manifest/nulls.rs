//! Replaces null entries of maps and lists. The API server decodes such an entry as the zero value of
//! its type, while a null field counts as absent.

use serde_json::{Value, json};

/// The fields that are maps of quantities.
const QUANTITIES: [&str; 5] = ["requests", "limits", "overhead", "allocatable", "capacity"];
/// The fields that are maps of texts.
const TEXTS: [&str; 9] = [
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "data",
    "binaryData",
    "volumeAttributes",
    "parameters",
    "selector",
];
/// The fields of a `selector` that is no map.
const SELECTOR: [&str; 2] = ["matchLabels", "matchExpressions"];
/// The lists of texts that may have nulls only. Other elements of a list show its type.
const TEXT_LISTS: [&str; 6] = [
    "args",
    "command",
    "values",
    "matchLabelKeys",
    "mismatchLabelKeys",
    "namespaces",
];

/// Replaces the null entries of an object's maps, and of its lists.
pub(super) fn replace(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(replace),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::Array(items) => replace_items(key, items),
                    Value::Object(entries) => replace_entries(key, entries),
                    _ => {}
                }
                replace(value);
            }
        }
        _ => {}
    }
}

fn replace_entries(field: &str, entries: &mut serde_json::Map<String, Value>) {
    let zero = match field {
        field if QUANTITIES.contains(&field) => "0",
        field if TEXTS.contains(&field) => "",
        _ => return,
    };
    for (key, entry) in entries {
        let is_field = field == "selector" && SELECTOR.contains(&key.as_str());
        if entry.is_null() && !is_field {
            *entry = zero.into();
        }
    }
}

fn replace_items(field: &str, items: &mut [Value]) {
    let zero = match items.iter().find(|item| !item.is_null()) {
        Some(Value::String(_)) => json!(""),
        Some(Value::Number(_)) => json!(0),
        None if TEXT_LISTS.contains(&field) => json!(""),
        _ => json!({}),
    };
    for item in items.iter_mut().filter(|item| item.is_null()) {
        item.clone_from(&zero);
    }
}
