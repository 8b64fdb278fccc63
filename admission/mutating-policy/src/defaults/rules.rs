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

/// Rules whose paths have been parsed: once for those of pods, which apply at every admission.
pub(super) struct Rules(Vec<(Vec<Step>, ReadDefault)>);

enum Step {
    Inner {
        name: &'static str,
        is_list: bool,
        is_made: bool,
    },
    Either(Vec<Step>),
    If {
        name: &'static str,
        text: &'static str,
    },
}

enum ReadDefault {
    Fill(Vec<&'static str>, &'static FieldDefault),
    All(Rules),
    Other(fn(&mut Fields)),
}

impl Rules {
    pub(super) fn new(rules: &'static [Rule]) -> Self {
        let read = |(path, default): &'static Rule| match default {
            FieldDefault::All(rules) => (steps(path), ReadDefault::All(Self::new(rules))),
            FieldDefault::Other(set) => (steps(path), ReadDefault::Other(*set)),
            _ => {
                let (structs, names) = path.rsplit_once('/').unwrap_or(("", path));
                let names = names.split('|').collect();
                (steps(structs), ReadDefault::Fill(names, default))
            }
        };
        Self(rules.iter().map(read).collect())
    }

    /// Sets the absent fields of a struct, in the order of the rules.
    pub(super) fn apply(&self, fields: &mut Fields) {
        for (steps, default) in &self.0 {
            visit(fields, steps, &mut |fields| match default {
                ReadDefault::All(rules) => rules.apply(fields),
                ReadDefault::Other(set) => set(fields),
                ReadDefault::Fill(names, default) => {
                    names.iter().for_each(|name| fill(fields, name, default));
                }
            });
        }
    }
}

fn steps(path: &'static str) -> Vec<Step> {
    let steps = path.split('/').filter(|step| !step.is_empty());
    steps.map(step).collect()
}

fn step(step: &'static str) -> Step {
    if let Some((name, text)) = step.split_once('=') {
        return Step::If { name, text };
    }
    if step.contains('|') {
        return Step::Either(step.split('|').map(self::step).collect());
    }
    let name = step.trim_end_matches("[]");
    let (is_list, is_made) = (name != step, name.ends_with('!'));
    let name = name.trim_end_matches('!');
    Step::Inner {
        name,
        is_list,
        is_made,
    }
}

/// Calls `then` for each struct at the end of the steps.
fn visit(fields: &mut Fields, steps: &[Step], then: &mut dyn FnMut(&mut Fields)) {
    match steps {
        [] => then(fields),
        [step, rest @ ..] => take(fields, step, rest, then),
    }
}

fn take(fields: &mut Fields, step: &Step, rest: &[Step], then: &mut dyn FnMut(&mut Fields)) {
    match step {
        Step::If { name, text } if text_of(fields, name) == Some(text) => visit(fields, rest, then),
        Step::If { .. } => {}
        Step::Either(steps) => steps.iter().for_each(|step| take(fields, step, rest, then)),
        Step::Inner {
            name,
            is_list,
            is_made,
        } => {
            if *is_made {
                add(fields, name, || Map::new().into());
            }
            match fields.get_mut(*name) {
                Some(Value::Object(inner)) if !is_list => visit(inner, rest, then),
                Some(Value::Array(items)) if *is_list => {
                    for inner in items.iter_mut().filter_map(Value::as_object_mut) {
                        visit(inner, rest, then);
                    }
                }
                _ => {}
            }
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
