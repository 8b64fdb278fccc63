//! Apply configurations as people write them: the text of an `Object{...}`.

use serde_json::Value;
use tautline_structured_merge::{Schema, Shape};

/// The expression that makes `value`, a configuration of `schema`.
pub fn of(schema: &Schema, value: &Value) -> String {
    written(Some(schema), "Object", value).0
}

/// The text of a value at a path of fields, and its type to the compiler.
fn written(schema: Option<&Schema>, at: &str, value: &Value) -> (String, String) {
    let typed = |text: String, of: &str| (text, of.to_owned());
    match value {
        Value::Null => typed("null".to_owned(), "null"),
        Value::Bool(b) => typed(b.to_string(), "bool"),
        Value::Number(n) if n.is_f64() => typed(n.to_string(), "double"),
        Value::Number(n) => typed(n.to_string(), "int"),
        // These strings need only escapes that JSON and CEL share.
        Value::String(_) => typed(value.to_string(), "string"),
        Value::Array(elements) => {
            let element = schema.and_then(Schema::element);
            let elements = elements.iter();
            let elements = alike(elements.map(|e| written(element.as_ref(), at, e)).collect());
            typed(format!("[{}]", elements.join(", ")), "list")
        }
        Value::Object(fields) if schema.is_some_and(|s| s.shape() == Shape::Object) => {
            let field = |(name, value): (&String, &Value)| {
                let schema = schema.and_then(|s| s.field(name));
                let (text, _) = written(schema.as_ref(), &format!("{at}.{name}"), value);
                format!("{name}: {text}")
            };
            let fields: Vec<String> = fields.iter().map(field).collect();
            (format!("{at}{{{}}}", fields.join(", ")), at.to_owned())
        }
        Value::Object(entries) => {
            let element = schema.and_then(Schema::element);
            let values = entries.values();
            let values = alike(values.map(|v| written(element.as_ref(), at, v)).collect());
            let names = entries.keys().map(|name| Value::from(name.as_str()));
            let entries = names.zip(values).map(|(k, v)| format!("{k}: {v}"));
            let entries: Vec<String> = entries.collect();
            typed(format!("{{{}}}", entries.join(", ")), "map")
        }
    }
}

/// A list or map literal is of one type.
fn alike(values: Vec<(String, String)>) -> Vec<String> {
    let nested = |of: &str| matches!(of, "list" | "map");
    let one = values.windows(2).all(|w| w[0].1 == w[1].1);
    if one && !values.iter().any(|(_, of)| nested(of)) {
        return values.into_iter().map(|(text, _)| text).collect();
    }
    let dynamic = |(text, _)| format!("dyn({text})");
    values.into_iter().map(dynamic).collect()
}
