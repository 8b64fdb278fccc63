//! Reads the documents of a manifest text, and the objects and lines in them.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    Location, ManifestError,
    compose::{Composed, Node, compose},
    encoding,
    path::{FieldPath, Step},
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
    /// The fields whose values JSON does not have, with the problems; they are texts here.
    pub invalid: Vec<(FieldPath, String)>,
}

/// Returns every object of a manifest text, unchecked: the items of lists, and the other documents.
///
/// # Errors
/// The text is not YAML.
pub fn documents(text: &str) -> Result<Vec<Document>, ManifestError> {
    let (mut objects, mut document) = (Vec::new(), 0);
    each(text, &mut |composed| {
        document += 1;
        let place = Location {
            document,
            index: None,
        };
        let document = Document {
            place,
            value: composed.root.into_value(),
            duplicates: composed.duplicates,
            invalid: composed.invalid,
        };
        flatten(document, &mut objects);
    })?;
    Ok(objects)
}

/// Adds a document to `objects`, or the items of a list, which may be lists too. Items of an inner
/// list have the place of their item in the outer one.
fn flatten(mut document: Document, objects: &mut Vec<Document>) {
    if !is_list(&document.value) {
        objects.push(document);
        return;
    }
    let Value::Array(items) = document.value["items"].take() else {
        return;
    };
    let item_type = item_type(&document.value);
    let mut duplicates = HashMap::<usize, Vec<FieldPath>>::new();
    for (index, path) in document.duplicates.iter().filter_map(FieldPath::of_item) {
        duplicates.entry(index).or_default().push(path);
    }
    let mut invalid = HashMap::<usize, Vec<(FieldPath, String)>>::new();
    for (path, what) in document.invalid {
        if let Some((index, path)) = path.of_item() {
            invalid.entry(index).or_default().push((path, what));
        }
    }
    for (index, mut value) in items.into_iter().enumerate() {
        if let (Value::Object(fields), Some((version, kind))) = (&mut value, &item_type)
            && !fields.contains_key("apiVersion")
            && !fields.contains_key("kind")
        {
            fields.insert("apiVersion".to_owned(), version.clone());
            fields.insert("kind".to_owned(), kind.as_str().into());
        }
        let place = Location {
            document: document.place.document,
            index: document.place.index.or(Some(index)),
        };
        let item = Document {
            place,
            value,
            duplicates: duplicates.remove(&index).unwrap_or_default(),
            invalid: invalid.remove(&index).unwrap_or_default(),
        };
        flatten(item, objects);
    }
}

/// Calls `each` with every document that is not empty.
fn each(text: &str, each: &mut dyn FnMut(Composed)) -> Result<(), ManifestError> {
    let text = encoding::without_marks(text);
    for (line, part) in encoding::parts(&text) {
        compose(part, line, each).map_err(|error| ManifestError::Yaml(error.to_string()))?;
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

/// The line of each field in a manifest text. The text is parsed again for it, only to locate
/// problems.
pub struct LineIndex(Vec<Node>);

impl LineIndex {
    /// Indexes a text. The index ends at the first document that is not YAML.
    pub fn new(text: &str) -> Self {
        let mut nodes = Vec::new();
        _ = each(text, &mut |composed| nodes.push(composed.root));
        Self(nodes)
    }

    /// Returns the line of a field, counted from 1. If the text does not have the field, returns
    /// the line of the innermost field around it.
    pub fn line(&self, place: Location, field: &FieldPath) -> Option<u64> {
        let document = self.0.get(place.document.checked_sub(1)?)?;
        let mut line = document.first_line();
        let mut node = document;
        let item = place.index.into_iter();
        let item = item.flat_map(|i| [Step::Key("items".to_owned()), Step::Index(i)]);
        for step in item.chain(field.0.iter().cloned()) {
            let Some((next_line, next)) = child(node, &step) else {
                break;
            };
            (line, node) = (Some(*next_line), next);
        }
        line
    }
}

fn child<'a>(node: &'a Node, step: &Step) -> Option<&'a (u64, Node)> {
    match (node, step) {
        (Node::List(items), Step::Index(i)) => items.get(*i),
        (Node::Mapping(fields), Step::Key(key)) => fields.get(key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_index_gives_the_lines_of_the_text() {
        let text = "# comment\n---\n---\nkind: List\nitems:\n- kind: Pod\n  spec:\n    a: [1,\n      {b: 2}]\n\
                    ---\n\"kind\": x\nspec:\n    other: |\n      text\n    \"c.d/e\": {f: g}\n";
        let lines = LineIndex::new(text);
        let line =
            |document, index, path: FieldPath| lines.line(Location { document, index }, &path);
        let root = FieldPath::default();
        assert_eq!(line(1, Some(0), root.clone()), Some(6));
        let a = FieldPath::from_keys(["spec", "a"]);
        assert_eq!(line(1, Some(0), a.clone()), Some(8));
        assert_eq!(line(1, Some(0), a.index(1).key("b")), Some(9));
        assert_eq!(line(1, Some(0), a.index(7).key("b")), Some(8), "the list");
        assert_eq!(line(2, None, root.clone()), Some(11));
        let f = FieldPath::from_keys(["spec", "c.d/e", "f"]);
        assert_eq!(line(2, None, f.clone()), Some(15));
        assert_eq!(f.to_string(), "spec[\"c.d/e\"].f");
        assert_eq!(a.index(1).key("b").to_string(), "spec.a[1].b");
        assert_eq!(line(3, None, root), None);
    }

    #[test]
    fn line_index_reads_json() {
        let lines = LineIndex::new("{\"kind\": \"Pod\",\n \"spec\": {\n  \"a\": 1.5e3}}");
        let place = Location {
            document: 1,
            index: None,
        };
        assert_eq!(
            lines.line(place, &FieldPath::from_keys(["spec", "a"])),
            Some(3)
        );
    }
}
