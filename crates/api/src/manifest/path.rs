//! A field's path in the object, and its line in the text.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_path_to_error::Segment;
use serde_saphyr::Spanned;

/// The path of a field in its object, such as `spec.containers[0].image`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl FieldPath {
    /// The path of these keys, from the object's root.
    pub fn from_keys<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self(keys.into_iter().map(|k| Step::Key(k.to_owned())).collect())
    }

    /// Where decoding failed.
    pub(super) fn of(path: &serde_path_to_error::Path) -> Self {
        let step = |segment: &Segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        Self(path.iter().filter_map(step).collect())
    }

    /// The path of a field of this one.
    pub fn key(&self, key: &str) -> Self {
        self.then(Step::Key(key.to_owned()))
    }

    /// The path of an element of this list.
    pub fn index(&self, index: usize) -> Self {
        self.then(Step::Index(index))
    }

    /// The path of a field of the object that this field holds.
    pub fn join(&self, below: &Self) -> Self {
        Self(self.0.iter().chain(&below.0).cloned().collect())
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

/// The lines of everything in a manifest text: parsed again, only to locate problems.
pub struct LineIndex(Vec<Node>);

enum Node {
    Leaf,
    List(Vec<(u64, Node)>),
    Mapping(Vec<(String, u64, Node)>),
}

impl LineIndex {
    /// Those of a text; of one that is not YAML there are none.
    pub fn new(text: &str) -> Self {
        let nodes = serde_saphyr::from_multiple_with_options(text, super::options());
        Self(nodes.unwrap_or_default())
    }

    /// The line, from 1 on, of a field, or of the nearest written field around it.
    pub fn line(&self, place: super::Location, field: &FieldPath) -> Option<u64> {
        let document = self.0.get(place.document.checked_sub(1)?)?;
        let mut line = document.first_line();
        let mut node = document;
        let item = place.index.into_iter();
        let item = item.flat_map(|i| [Step::Key("items".to_owned()), Step::Index(i)]);
        for step in item.chain(field.0.iter().cloned()) {
            let Some((next_line, next)) = node.child(&step) else {
                break;
            };
            (line, node) = (Some(next_line), next);
        }
        line
    }
}

impl Node {
    fn first_line(&self) -> Option<u64> {
        match self {
            Self::Leaf => None,
            Self::List(items) => items.first().map(|(line, _)| *line),
            Self::Mapping(fields) => fields.first().map(|(_, line, _)| *line),
        }
    }

    fn child(&self, step: &Step) -> Option<(u64, &Self)> {
        match (self, step) {
            (Self::List(items), Step::Index(i)) => items.get(*i).map(|(line, n)| (*line, n)),
            (Self::Mapping(fields), Step::Key(key)) => fields
                .iter()
                .find(|(name, ..)| name == key)
                .map(|(_, line, n)| (*line, n)),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any YAML")
            }
            fn visit_bool<E: de::Error>(self, _: bool) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_i128<E: de::Error>(self, _: i128) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_u64<E: de::Error>(self, _: u64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_u128<E: de::Error>(self, _: u128) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_f64<E: de::Error>(self, _: f64) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_str<E: de::Error>(self, _: &str) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_bytes<E: de::Error>(self, _: &[u8]) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_none<E: de::Error>(self) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Node, D::Error> {
                Node::deserialize(inner)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element::<Spanned<Node>>()? {
                    items.push((item.referenced.line(), item.value));
                }
                Ok(Node::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut fields = Vec::new();
                while let Some((key, value)) = map.next_entry::<Spanned<String>, Node>()? {
                    fields.push((key.value, key.referenced.line(), value));
                }
                Ok(Node::Mapping(fields))
            }
        }
        deserializer.deserialize_any(Any)
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
