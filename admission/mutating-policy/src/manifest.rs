//! Reads the fields of a manifest and records problems as the API server reports them.

use serde_json::{Map, Value};
use tautline_core::dns::is_subdomain;

/// A fault or a warning about one field of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {message}")]
pub struct Problem {
    /// The kind and name, such as `MutationPolicy gpu-none`.
    pub object: String,
    /// The path, such as `spec.mutations[0].patchType`.
    pub field: String,
    /// A description of the problem and of its fix.
    pub message: String,
}

pub(crate) struct Findings {
    pub object: String,
    pub faults: Vec<Problem>,
    pub warnings: Vec<Problem>,
}

impl Findings {
    pub fn new(object: String) -> Self {
        Self {
            object,
            faults: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub fn fault(&mut self, field: &str, message: impl Into<String>) {
        let problem = self.problem(field, message.into());
        self.faults.push(problem);
    }

    pub fn warn(&mut self, field: &str, message: impl Into<String>) {
        let problem = self.problem(field, message.into());
        self.warnings.push(problem);
    }

    fn problem(&self, field: &str, message: String) -> Problem {
        Problem {
            object: self.object.clone(),
            field: field.to_owned(),
            message,
        }
    }
}

#[derive(Clone)]
pub(crate) struct FieldRef<'a> {
    pub path: String,
    value: &'a Value,
}

impl<'a> FieldRef<'a> {
    pub fn root(value: &'a Value) -> Self {
        Self {
            path: String::new(),
            value,
        }
    }

    pub fn child_path(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// Returns the field `name`; null counts as absent.
    pub fn field(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|v| !v.is_null())?;
        Some(Self {
            path: self.child_path(name),
            value,
        })
    }

    /// Returns the value as an object. Fields that are not in `known` are faults.
    pub fn object(&self, known: &[&str], found: &mut Findings) -> Option<&'a Map<String, Value>> {
        let Value::Object(fields) = self.value else {
            found.fault(&self.path, "must be an object");
            return None;
        };
        for name in fields.keys().filter(|n| !known.contains(&n.as_str())) {
            let message = format!("unknown field; the fields here are {}", known.join(", "));
            found.fault(&self.child_path(name), message);
        }
        Some(fields)
    }

    pub fn text(&self, found: &mut Findings) -> Option<&'a str> {
        let text = self.value.as_str();
        if text.is_none() {
            found.fault(&self.path, "must be a string");
        }
        text
    }

    /// Returns the text of the field `name`; an empty text counts as absent.
    pub fn text_field(&self, name: &str, found: &mut Findings) -> Option<&'a str> {
        let text = self.field(name)?.text(found)?;
        Some(text).filter(|t| !t.trim().is_empty())
    }

    pub fn required(&self, name: &str, found: &mut Findings) -> Option<&'a str> {
        let place = self.field(name);
        let text = place.as_ref().and_then(|p| p.value.as_str());
        let text = text.filter(|t| !t.trim().is_empty());
        if text.is_none() {
            let message = match place {
                Some(p) if !p.value.is_string() => "must be a string",
                _ => "is required",
            };
            found.fault(&self.child_path(name), message);
        }
        text
    }

    pub fn choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&str, T)],
        found: &mut Findings,
    ) -> Option<T> {
        let text = self.text_field(name, found)?;
        let choice = choices.iter().find(|(word, _)| *word == text);
        if choice.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let message = format!("{text:?} is not known; use {}", words.join(" or "));
            found.fault(&self.child_path(name), message);
        }
        choice.map(|(_, choice)| *choice)
    }

    /// Returns the items of the list `name`; an empty list if it is absent.
    pub fn items(&self, name: &str, found: &mut Findings) -> Vec<Self> {
        let Some(list) = self.field(name) else {
            return Vec::new();
        };
        let Value::Array(items) = list.value else {
            found.fault(&list.path, "must be a list");
            return Vec::new();
        };
        let item = |(i, value)| Self {
            path: format!("{}[{i}]", list.path),
            value,
        };
        items.iter().enumerate().map(item).collect()
    }

    pub fn pairs(&self, found: &mut Findings) -> Vec<(String, String)> {
        let Value::Object(fields) = self.value else {
            found.fault(&self.path, "must be an object");
            return Vec::new();
        };
        let mut pairs = Vec::new();
        for (key, value) in fields {
            match value.as_str() {
                Some(text) => pairs.push((key.clone(), text.to_owned())),
                None => found.fault(&self.child_path(key), "must be a string"),
            }
        }
        pairs
    }

    pub fn texts(&self, name: &str, found: &mut Findings) -> Vec<String> {
        let items = self.items(name, found);
        let texts = items.iter().filter_map(|i| i.text(found));
        texts.map(str::to_owned).collect()
    }
}

/// Returns whether `name` is a qualified name: `[subdomain/]name`.
pub(crate) fn is_qualified(name: &str) -> bool {
    let (prefix, name) = name.rsplit_once('/').unwrap_or(("", name));
    let ends = |b: u8| b.is_ascii_alphanumeric();
    let inner = |b: u8| ends(b) || b"-_.".contains(&b);
    let bytes = name.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(|b| ends(*b))
        && bytes.last().is_some_and(|b| ends(*b))
        && bytes.iter().all(|b| inner(*b))
        && (prefix.is_empty() || is_subdomain(prefix))
}

/// Returns whether `name` can name a variable in an expression.
/// <https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax>
pub(crate) fn is_identifier(name: &str) -> bool {
    const RESERVED: &str = "true false null in as break const continue else for function \
        if import let loop package namespace return var void while";
    let start = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let bytes = name.as_bytes();
    bytes.first().is_some_and(|b| start(*b))
        && bytes.iter().all(|b| start(*b) || b.is_ascii_digit())
        && !RESERVED.split(' ').any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn problems_have_their_paths() {
        let value = json!({"a": [{"b": 1, "c": "x"}], "d": "maybe"});
        let mut found = Findings::new("Thing t".into());
        let root = FieldRef::root(&value);
        let items = root.items("a", &mut found);
        items[0].object(&["b"], &mut found);
        items[0].required("b", &mut found);
        items[0].required("e", &mut found);
        root.choice("d", &[("Yes", true), ("No", false)], &mut found);
        root.items("d", &mut found);
        let faults: Vec<String> = found.faults.iter().map(ToString::to_string).collect();
        let expected = [
            "Thing t: a[0].c: unknown field; the fields here are b",
            "Thing t: a[0].b: must be a string",
            "Thing t: a[0].e: is required",
            "Thing t: d: \"maybe\" is not known; use Yes or No",
            "Thing t: d: must be a list",
        ];
        assert_eq!(faults, expected);
    }

    #[test]
    fn names_follow_the_rules_of_kubernetes() {
        assert!(is_subdomain("nvidia-visible-devices-policy.example.com"));
        assert!(!is_subdomain("Upper") && !is_subdomain("-a") && !is_subdomain("a..b"));
        assert!(is_qualified("example.com/has-limits") && is_qualified("A_b.c"));
        assert!(!is_qualified("a b") && !is_qualified("x/") && !is_qualified(""));
        assert!(is_identifier("containersWithLimits") && is_identifier("_x1"));
        assert!(!is_identifier("for") && !is_identifier("1x") && !is_identifier("a-b"));
    }
}
