//! Replaces null entries of maps. The API server decodes such an entry as the zero value of its
//! type, while a null field counts as absent.

use serde_json::Value;

/// The fields that are maps of quantities.
const QUANTITIES: [&str; 5] = ["requests", "limits", "overhead", "allocatable", "capacity"];
/// The fields that are maps of texts.
const TEXTS: [&str; 5] = [
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "data",
];

/// Replaces the null entries of an object's maps.
pub(super) fn replace(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(replace),
        Value::Object(fields) => {
            for (key, value) in fields {
                let zero = match key.as_str() {
                    key if QUANTITIES.contains(&key) => "0",
                    key if TEXTS.contains(&key) => "",
                    _ => {
                        replace(value);
                        continue;
                    }
                };
                let entries = value.as_object_mut().into_iter().flatten();
                for (_, entry) in entries.filter(|(_, entry)| entry.is_null()) {
                    *entry = zero.into();
                }
            }
        }
        _ => {}
    }
}
