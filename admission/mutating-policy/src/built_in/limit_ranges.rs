//! The plugin `LimitRanger`, which sets missing requests and limits of containers
//! (plugin/pkg/admission/limitranger).

use serde_json::{Map, Value};

use super::text;
use crate::canonical_quantity::canonical;
use crate::objects::Objects;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

pub(super) fn admit(pod: &mut Value, namespace: &str, given: &Objects) {
    for range in given.of_kind("v1", "LimitRange") {
        if Objects::is_in(range, Some(namespace)) {
            apply(pod, &defaults(range));
        }
    }
}

/// Returns the default limits and requests of containers.
fn defaults(range: &Value) -> [Map<String, Value>; 2] {
    let (mut limits, mut requests) = (Map::new(), Map::new());
    let all = range["spec"]["limits"].as_array().into_iter().flatten();
    for item in all.filter(|item| item["type"] == "Container") {
        // A field takes precedence over the fields after it.
        let first_of = |fields: &[&str]| {
            let mut all = Map::new();
            for field in fields.iter().rev() {
                let amounts = item[*field].as_object().into_iter().flatten();
                all.extend(amounts.map(|(name, amount)| (name.clone(), quantity(amount))));
            }
            all
        };
        limits.extend(first_of(&["default", "max"]));
        requests.extend(first_of(&["defaultRequest", "default", "max", "min"]));
    }
    [limits, requests]
}

fn quantity(amount: &Value) -> Value {
    match amount {
        Value::String(text) => canonical(text).into(),
        other => canonical(&other.to_string()).into(),
    }
}

fn apply(pod: &mut Value, [limits, requests]: &[Map<String, Value>; 2]) {
    let mut set = Vec::new();
    for (field, title) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        let containers = pod["spec"].get_mut(field).and_then(Value::as_array_mut);
        let containers = containers.into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let name = text(container, "name").to_owned();
            for (side, word, amounts) in [
                ("requests", "request", requests),
                ("limits", "limit", limits),
            ] {
                let added = add_missing(container, side, amounts);
                if !added.is_empty() {
                    set.push(format!("{} {word} for {title} {name}", added.join(", ")));
                }
            }
        }
    }
    let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if !set.is_empty() {
        let annotations = metadata.entry("annotations");
        let annotations = annotations.or_insert_with(|| Map::new().into());
        annotations[ANNOTATION] = format!("LimitRanger plugin set: {}", set.join("; ")).into();
    }
}

/// Adds the amounts that a container does not have and returns their names.
fn add_missing(
    container: &mut Map<String, Value>,
    side: &str,
    amounts: &Map<String, Value>,
) -> Vec<String> {
    let own = container.get("resources").and_then(|r| r[side].as_object());
    let has = |name: &String| own.is_some_and(|own| own.contains_key(name));
    let missing: Vec<String> = amounts.keys().filter(|n| !has(n)).cloned().collect();
    if !missing.is_empty() {
        let resources = container.entry("resources");
        let resources = resources.or_insert_with(|| Map::new().into());
        for name in &missing {
            resources[side][name] = amounts[name].clone();
        }
    }
    missing
}
