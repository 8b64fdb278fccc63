//! A field's path in the object, and its line in the text.

use std::fmt;

use serde_path_to_error::Segment;

use super::{compose::Node, documents};

/// The path of a field in its object, such as `spec.containers[0].image`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl FieldPath {
    /// Creates the path of these keys, from the object's root.
    pub fn from_keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self(keys.into_iter().map(|k| Step::Key(k.to_owned())).collect())
    }

    /// Converts the path at which decoding failed.
    pub(super) fn of(path: &serde_path_to_error::Path) -> Self {
        let step = |segment: &Segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        Self(path.iter().filter_map(step).collect())
    }

    /// Returns the path of a field of this object.
    pub fn key(&self, key: &str) -> Self {
        self.then(Step::Key(key.to_owned()))
    }

    /// Returns the path of an element of this list.
    pub fn index(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    /// Returns the path of the field `below` of the object at this path.
    pub fn join(&self, below: &Self) -> Self {
        Self(self.0.iter().chain(&below.0).cloned().collect())
    }

    /// Splits a path in a `List` into the index of the item and the path in the item.
    pub(super) fn of_item(&self) -> Option<(usize, Self)> {
        match self.0.as_slice() {
            [Step::Key(items), Step::Index(index), rest @ ..] if items == "items" => {
                Some((*index, Self(rest.to_vec())))
            }
            _ => None,
        }
    }

    fn then(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if key.contains(['.', '/', ' ']) => write!(f, "[{key:?}]")?,
                Step::Key(key) if i == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

/// The line of each field in a manifest text. The text is parsed again for it, only to locate
/// problems.
pub struct LineIndex(Vec<Node>);

impl LineIndex {
    /// Indexes a text. The index ends at the first document that is not YAML.
    pub fn new(text: &str) -> Self {
        let mut nodes = Vec::new();
        _ = documents::each(text, &mut |composed| nodes.push(composed.root));
        Self(nodes)
    }

    /// Returns the line of a field, counted from 1. If the text does not have the field, returns
    /// the line of the innermost field around it.
    pub fn line(&self, place: super::Location, field: &FieldPath) -> Option<u64> {
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
    use super::{super::Location, *};

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
