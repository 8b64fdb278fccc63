//! A field's path in the object, and its line in the text.

use std::fmt;

use serde_json::Value;
use serde_path_to_error::Segment;

/// The path of a field in its object, such as `spec.containers[0].image`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(pub(super) Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
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

    /// Returns the field's value in an object; null if the object does not have the field.
    pub(super) fn value<'a>(&self, object: &'a Value) -> &'a Value {
        self.0.iter().fold(object, |value, step| match step {
            Step::Key(key) => &value[key],
            Step::Index(index) => &value[index],
        })
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
