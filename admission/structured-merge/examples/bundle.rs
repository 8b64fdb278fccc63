//! Reduces OpenAPI v3 documents to the fields that merging reads, and joins them with one
//! definition per line: `bundle DOCUMENT... > bundled.json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    io::{self, Write},
};

use serde_json::{Map, Value};

/// The fields of a schema that are copied.
const COPIED_FIELDS: [&str; 11] = [
    "type",
    "format",
    "default",
    "$ref",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-int-or-string",
];
const KINDS: &str = "x-kubernetes-group-version-kind";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

fn main() -> Result<(), Box<dyn Error>> {
    let mut all = BTreeMap::new();
    for path in std::env::args().skip(1) {
        let document: Value = serde_json::from_slice(&fs::read(&path)?)?;
        let schemas = document
            .pointer("/components/schemas")
            .and_then(Value::as_object)
            .ok_or_else(|| format!("{path}: no components.schemas"))?;
        for (name, schema) in schemas {
            let mut cut = cut(schema);
            // Only kinds whose objects users create are needed: neither lists nor types that all
            // groups share.
            if let Some(kinds) = schema.get(KINDS)
                && schema.pointer("/properties/metadata").is_some()
                && !name.starts_with(META)
                && !name.ends_with("List")
            {
                cut[KINDS] = kinds.clone();
            }
            all.insert(name.clone(), cut);
        }
    }

    let mut wanted = BTreeSet::new();
    let mut queue: Vec<String> = all
        .iter()
        .filter(|(_, schema)| schema.get(KINDS).is_some())
        .map(|(name, _)| name.clone())
        .collect();
    while let Some(name) = queue.pop() {
        if wanted.insert(name.clone()) {
            refer(all.get(&name).unwrap_or(&Value::Null), &mut queue);
        }
    }

    let mut out = io::stdout().lock();
    write!(out, "{{\"components\":{{\"schemas\":{{")?;
    for (index, name) in wanted.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let schema = all
            .get(name)
            .ok_or_else(|| format!("{name} is not defined"))?;
        write!(out, "{comma}\n{}:{schema}", Value::from(name.as_str()))?;
    }
    writeln!(out, "\n}}}}}}")?;
    Ok(())
}

fn cut(schema: &Value) -> Value {
    let mut reduced = Map::new();
    let Some(schema) = schema.as_object() else {
        return schema.clone();
    };
    let listed = schema.contains_key("x-kubernetes-list-type");
    for (key, value) in schema {
        match key.as_str() {
            "properties" => {
                let fields = value.as_object().into_iter().flatten();
                let fields = fields.map(|(name, is)| (name.clone(), cut(is)));
                reduced.insert(key.clone(), Value::Object(fields.collect()));
            }
            "items" | "additionalProperties" => {
                reduced.insert(key.clone(), cut(value));
            }
            "allOf" => {
                if let [one] = value.as_array().map_or(&[][..], Vec::as_slice)
                    && let Some(name) = one.get("$ref")
                {
                    reduced.insert("$ref".to_owned(), name.clone());
                }
            }
            // Only keys of lists need a default, and keys are scalars.
            "default" if value.is_object() || value.is_array() => {}
            // The list type takes precedence.
            "x-kubernetes-patch-strategy" | "x-kubernetes-patch-merge-key" if listed => {}
            known if COPIED_FIELDS.contains(&known) => {
                reduced.insert(key.clone(), value.clone());
            }
            _ => {}
        }
    }
    Value::Object(reduced)
}

fn refer(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(path) if key == "$ref" => {
                        names.extend(path.rsplit('/').next().map(str::to_owned));
                    }
                    _ => refer(value, names),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|e| refer(e, names)),
        _ => {}
    }
}
