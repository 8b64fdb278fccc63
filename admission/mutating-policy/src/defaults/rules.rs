//! Describes the defaults of fields as data and applies them to objects.

use serde_json::{Map, Value};

pub(super) type Fields = Map<String, Value>;

/// A path from a struct, and the default there. The steps of the path are names of fields,
/// separated by `/`. A field that is absent ends the path, except that `a!` creates a struct. `a[]`
/// stands for each struct in a list, `a|b` for both fields, and `a=x` for the same struct if its
/// field has this text. As in Go, null counts as absent.
pub(super) type Rule = (&'static str, FieldDefault);

pub(super) enum FieldDefault {
    /// The text of the fields at the path, where an empty text counts as absent.
    Text(&'static str),
    /// The text of optional fields, which may be empty.
    OptionalText(&'static str),
    /// The number of required fields, where 0 counts as absent.
    NotZero(i64),
    /// The number of optional fields.
    Number(i64),
    /// The boolean of optional fields.
    Flag(bool),
    /// The rules of the structs at the path.
    All(&'static [Rule]),
    /// A function that sets defaults in the structs at the path that depend on other fields.
    Other(fn(&mut Fields)),
}

/// Sets the absent fields of a struct, in the order of the rules.
pub(super) fn apply(rules: &[Rule], fields: &mut Fields) {
    for (path, default) in rules {
        match default {
            FieldDefault::All(rules) => visit(fields, path, &mut |fields| apply(rules, fields)),
            FieldDefault::Other(set) => visit(fields, path, &mut |fields| set(fields)),
            _ => {
                let (structs, names) = path.rsplit_once('/').unwrap_or(("", path));
                visit(fields, structs, &mut |fields| {
                    names
                        .split('|')
                        .for_each(|name| fill(fields, name, default));
                });
            }
        }
    }
}

/// Calls `then` for each struct at a path.
fn visit(fields: &mut Fields, path: &str, then: &mut dyn FnMut(&mut Fields)) {
    if path.is_empty() {
        return then(fields);
    }
    let (step, rest) = path.split_once('/').unwrap_or((path, ""));
    if let Some((name, text)) = step.split_once('=') {
        if text_of(fields, name) == Some(text) {
            visit(fields, rest, then);
        }
        return;
    }
    for name in step.split('|') {
        let (name, is_list) = match name.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let (name, is_made) = match name.strip_suffix('!') {
            Some(name) => (name, true),
            None => (name, false),
        };
        if is_made {
            add(fields, name, || Map::new().into());
        }
        match fields.get_mut(name) {
            Some(Value::Object(inner)) if !is_list => visit(inner, rest, then),
            Some(Value::Array(items)) if is_list => {
                for inner in items.iter_mut().filter_map(Value::as_object_mut) {
                    visit(inner, rest, then);
                }
            }
            _ => {}
        }
    }
}

fn fill(fields: &mut Fields, name: &str, default: &FieldDefault) {
    let absent = is_absent(fields, name);
    let value: Value = match *default {
        FieldDefault::Text(text) if text_of(fields, name).is_none_or(str::is_empty) => text.into(),
        FieldDefault::NotZero(number) if absent || fields[name] == 0 => number.into(),
        FieldDefault::OptionalText(text) if absent => text.into(),
        FieldDefault::Number(number) if absent => number.into(),
        FieldDefault::Flag(flag) if absent => flag.into(),
        _ => return,
    };
    fields.insert(name.to_owned(), value);
}

/// Adds a field if it is absent. The field is looked up first, because an entry would allocate a
/// String.
pub(super) fn add(fields: &mut Fields, name: &str, value: impl FnOnce() -> Value) {
    if is_absent(fields, name) {
        fields.insert(name.to_owned(), value());
    }
}

pub(super) fn is_absent(fields: &Fields, name: &str) -> bool {
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
