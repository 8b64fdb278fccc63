//! Writes the fields of custom resources, from their schemas.

use std::fmt::Write;

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// The fields of Kubernetes' own types, which its reference describes.
const KNOWN: [&str; 5] = [
    "selector",
    "labelSelector",
    "namespaceSelector",
    "objectSelector",
    "conditions",
];

/// Writes one page with a table for each kind.
pub(super) fn page(crds: &[CustomResourceDefinition]) -> Result<String> {
    let mut out = "# Kinds\n".to_owned();
    for crd in crds {
        let spec = serde_json::to_value(&crd.spec)?;
        for version in list(&spec["versions"]) {
            kind(&mut out, &spec, version);
        }
    }
    Ok(out)
}

fn kind(out: &mut String, spec: &Value, version: &Value) {
    let schema = &version["schema"]["openAPIV3Schema"];
    let names = &spec["names"];
    let (name, group) = (text(&names["kind"]), text(&spec["group"]));
    let scope = match text(&spec["scope"]) {
        "Cluster" => "of the whole cluster",
        _ => "in a namespace",
    };
    _ = writeln!(out, "\n## {name}\n");
    _ = writeln!(out, "`{group}/{}`, {scope}.", text(&version["name"]));
    let short: Vec<String> = list(&names["shortNames"])
        .map(|n| format!("`{}`", text(n)))
        .collect();
    if !short.is_empty() {
        _ = writeln!(out, "Short name: {}.", short.join(", "));
    }
    _ = writeln!(out, "\n{}\n", sentence(&schema["description"]));
    out.push_str("| field | type | |\n|---|---|---|\n");
    fields(out, schema, "");
}

/// Writes a row for each property, and for the properties below it.
fn fields(out: &mut String, schema: &Value, path: &str) {
    let required: Vec<&str> = list(&schema["required"]).map(text).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = match path {
            "" => name.clone(),
            above => format!("{above}.{name}"),
        };
        let mut about = sentence(&property["description"]);
        for fact in facts(property, required.contains(&name.as_str())) {
            let space = if about.is_empty() { "" } else { " " };
            about += &format!("{space}{fact}");
        }
        _ = writeln!(out, "| `{path}` | {} | {about} |", type_of(property));
        if KNOWN.contains(&name.as_str()) {
            continue;
        }
        fields(out, property, &path);
        fields(out, &property["items"], &format!("{path}[]"));
        fields(
            out,
            &property["additionalProperties"],
            &format!("{path}.KEY"),
        );
    }
}

fn type_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    match text(&schema["type"]) {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&schema["additionalProperties"]))
        }
        "" => "any".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns the demands of the schema, each as a sentence.
fn facts(schema: &Value, required: bool) -> Vec<String> {
    let mut facts = Vec::new();
    if required {
        facts.push("Required.".to_owned());
    }
    let quoted = |value: &Value| match value.as_str() {
        Some(text) => format!("`{text}`"),
        None => format!("`{value}`"),
    };
    let values = list(&schema["enum"]).filter(|v| !v.is_null());
    let values: Vec<String> = values.map(quoted).collect();
    if !values.is_empty() {
        facts.push(format!("One of {}.", values.join(", ")));
    }
    let is_plain = |v: &&Value| !v.is_null() && !v.is_array() && !v.is_object() && **v != "";
    if let Some(default) = Some(&schema["default"]).filter(is_plain) {
        facts.push(format!("Default {}.", quoted(default)));
    }
    for (key, words) in [
        ("minimum", "At least"),
        ("maximum", "At most"),
        ("maxLength", "Characters: at most"),
        ("maxItems", "Entries: at most"),
    ] {
        if let Some(number) = schema[key].as_f64() {
            facts.push(format!("{words} {number}."));
        }
    }
    facts
}

/// Returns a description on one line that ends with a period.
fn sentence(description: &Value) -> String {
    let words: Vec<&str> = text(description).split_whitespace().collect();
    let escaped = words.join(" ").replace('|', "\\|").replace('<', "&lt;");
    // Kubernetes' texts link to files of its own source.
    let line = escaped.replace("](", "] (");
    match line.chars().last() {
        None | Some('.' | '!' | '?' | ':') => line,
        Some(_) => line + ".",
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use tautline_api::crds;

    use super::*;

    #[test]
    fn every_kind_has_its_fields() {
        let page = page(&crds::all()).unwrap();
        for crd in crds::all() {
            let heading = format!("\n## {}\n", crd.spec.names.kind);
            assert!(page.contains(&heading), "{heading}");
        }
        let row = "| `spec.targets[].kind` | string | The kind of the selected objects. Required. \
                   One of `Pod`, `Cluster`, `Endpoint`, `NetworkService`. |\n";
        assert!(page.contains(row), "{page}");
        assert!(!page.contains("matchExpressions[]"), "{page}");
        let columns = |line: &&str| line.replace("\\|", "").matches('|').count() != 4;
        let odd = page.lines().filter(|l| l.starts_with('|')).find(columns);
        assert_eq!(odd, None);
    }
}
