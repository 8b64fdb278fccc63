//! Reads the documents of a manifest text, and the objects in them.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    Location, ManifestError,
    compose::{ComposeError, Composed, compose},
    encoding,
    path::FieldPath,
};

/// An object of a manifest text, unchecked.
#[derive(Clone, Debug)]
pub struct Document {
    /// The object's location.
    pub place: Location,
    /// The object.
    pub value: Value,
    /// The paths of repeated fields, of which the last counts.
    pub duplicates: Vec<FieldPath>,
}

/// Returns every object of a manifest text, unchecked: the items of lists, and the other documents.
///
/// # Errors
/// The text is not YAML.
pub fn documents(text: &str) -> Result<Vec<Document>, ManifestError> {
    let (mut objects, mut document) = (Vec::new(), 0);
    each(text, &mut |composed| {
        document += 1;
        let (duplicates, mut value) = (composed.duplicates, composed.root.into_value());
        if !is_list(&value) {
            let place = Location {
                document,
                index: None,
            };
            objects.push(Document {
                place,
                value,
                duplicates,
            });
            return;
        }
        let Value::Array(items) = value["items"].take() else {
            return;
        };
        let item_type = item_type(&value);
        let mut of_items = HashMap::<usize, Vec<FieldPath>>::new();
        for (index, path) in duplicates.iter().filter_map(FieldPath::of_item) {
            of_items.entry(index).or_default().push(path);
        }
        for (index, mut value) in items.into_iter().enumerate() {
            if let (Value::Object(fields), Some((version, kind))) = (&mut value, &item_type)
                && !fields.contains_key("apiVersion")
                && !fields.contains_key("kind")
            {
                fields.insert("apiVersion".to_owned(), version.clone());
                fields.insert("kind".to_owned(), kind.as_str().into());
            }
            let duplicates = of_items.remove(&index).unwrap_or_default();
            let index = Some(index);
            let place = Location { document, index };
            objects.push(Document {
                place,
                value,
                duplicates,
            });
        }
    })?;
    Ok(objects)
}

/// Calls `each` with every document that is not empty.
pub(super) fn each(text: &str, each: &mut dyn FnMut(Composed)) -> Result<(), ManifestError> {
    let text = encoding::without_marks(text);
    for (line, part) in encoding::parts(&text) {
        compose(part, line, each).map_err(|ComposeError { line, column, what }| {
            ManifestError::Yaml(format!("line {line} column {column}: {what}"))
        })?;
    }
    Ok(())
}

/// Returns whether a document is a `List`, or the list of one kind, such as a `PodList`.
fn is_list(value: &Value) -> bool {
    let kind = value["kind"].as_str().unwrap_or_default();
    let is_empty = value["items"].is_null() && value["metadata"]["name"].is_null();
    kind.ends_with("List") && (value["items"].is_array() || is_empty)
}

/// Returns the API version and kind of the items of a list such as a `PodList`. The items may lack
/// both.
fn item_type(list: &Value) -> Option<(Value, String)> {
    let kind = list["kind"].as_str()?.strip_suffix("List")?;
    (!kind.is_empty()).then(|| (list["apiVersion"].clone(), kind.to_owned()))
}
