//! Describes the defaults of fields as data and applies them to objects.

use serde_json::{Map, Value};

/// The default of a field of a struct. As in Go, null counts as absent.
pub(super) enum Rule {
    /// The text of a field, where an empty text counts as absent.
    Text(&'static str, &'static str),
    /// The text of an optional field, which may be empty.
    OptionalText(&'static str, &'static str),
    /// The number of a required field, where 0 counts as absent.
    NotZero(&'static str, i64),
    /// The number of an optional field.
    Number(&'static str, i64),
    /// The boolean of an optional field.
    Flag(&'static str, bool),
    /// A struct that is created if it is absent, with the rules of its fields.
    Always(&'static str, &'static [Rule]),
    /// The rules of the fields of a struct, if the struct is present.
    In(&'static str, &'static [Rule]),
    /// The rules of the fields of each struct in a list.
    Each(&'static str, &'static [Rule]),
    /// Rules that apply only if a field has this text.
    If(&'static str, &'static str, &'static [Rule]),
    /// A function that sets defaults that depend on other fields.
    Other(fn(&mut Map<String, Value>)),
}

/// Sets the absent fields of a struct, in the order of the rules.
pub(super) fn apply(rules: &[Rule], fields: &mut Map<String, Value>) {
    for rule in rules {
        match rule {
            Rule::Text(name, text) => {
                if text_of(fields, name).is_none_or(str::is_empty) {
                    fields.insert((*name).to_owned(), (*text).into());
                }
            }
            Rule::NotZero(name, number) => {
                if is_absent(fields, name) || fields.get(*name) == Some(&Value::from(0)) {
                    fields.insert((*name).to_owned(), (*number).into());
                }
            }
            Rule::Number(name, number) => add(fields, name, || (*number).into()),
            Rule::OptionalText(name, text) => add(fields, name, || (*text).into()),
            Rule::Flag(name, flag) => add(fields, name, || (*flag).into()),
            Rule::Always(name, rules) => {
                add(fields, name, || Map::new().into());
                within(fields, name, rules);
            }
            Rule::In(name, rules) => within(fields, name, rules),
            Rule::Each(name, rules) => {
                let list = fields.get_mut(*name).and_then(Value::as_array_mut);
                for element in list.into_iter().flatten() {
                    if let Some(fields) = element.as_object_mut() {
                        apply(rules, fields);
                    }
                }
            }
            Rule::If(name, text, rules) => {
                if text_of(fields, name) == Some(*text) {
                    apply(rules, fields);
                }
            }
            Rule::Other(set) => set(fields),
        }
    }
}

fn within(fields: &mut Map<String, Value>, name: &str, rules: &[Rule]) {
    if let Some(fields) = fields.get_mut(name).and_then(Value::as_object_mut) {
        apply(rules, fields);
    }
}

/// Adds a field if it is absent. The field is looked up first, because an entry would allocate a
/// String.
pub(super) fn add(fields: &mut Map<String, Value>, name: &str, value: impl FnOnce() -> Value) {
    if is_absent(fields, name) {
        fields.insert(name.to_owned(), value());
    }
}

pub(super) fn is_absent(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name).is_none_or(Value::is_null)
}

/// Returns the text of a field; `?` if it has another type, which is an error that the API server
/// reports.
pub(super) fn text_of<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(value) => Some(value.as_str().unwrap_or("?")),
    }
}
