//! The plugin `RuntimeClass`, which adds the overhead, node selector and tolerations of a pod's
//! class (plugin/pkg/admission/runtimeclass).

use serde_json::{Map, Value};

use super::{list, text};
use crate::canonical_quantity::canonical;
use crate::cluster::Refusal;
use crate::objects::Objects;

pub(super) fn admit(
    spec: &mut Map<String, Value>,
    given: &Objects,
    notes: &mut Vec<String>,
) -> Result<(), Refusal> {
    let name = text(spec, "runtimeClassName");
    if name.is_empty() {
        return Ok(());
    }
    let Some(class) = given.object("node.k8s.io/v1", "RuntimeClass", None, name) else {
        notes.push(format!(
            "RuntimeClass {name} is not given, so its overhead and nodes are left out; \
             name its file by -f"
        ));
        return Ok(());
    };
    overhead(spec, &class["overhead"]["podFixed"])?;
    let scheduling = &class["scheduling"];
    node_selector(spec, &scheduling["nodeSelector"])?;
    if let Some(tolerations) = scheduling["tolerations"].as_array() {
        let all = [list(spec, "tolerations"), tolerations].concat();
        if !all.is_empty() {
            spec.insert("tolerations".to_owned(), merged(&all).into());
        }
    }
    Ok(())
}

fn overhead(spec: &mut Map<String, Value>, fixed: &Value) -> Result<(), Refusal> {
    let Some(fixed) = fixed.as_object() else {
        return Ok(());
    };
    let usual = |(name, amount): (&String, &Value)| {
        let text = amount
            .as_str()
            .map_or_else(|| amount.to_string(), str::to_owned);
        (name.clone(), Value::from(canonical(&text)))
    };
    let fixed: Map<_, _> = fixed.iter().map(usual).collect();
    let own = spec.get("overhead").and_then(Value::as_object);
    if own.is_some_and(|own| !own.is_empty() && *own != fixed) {
        let message = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
        return Err(Refusal(message.to_owned()));
    }
    if !fixed.is_empty() {
        spec.insert("overhead".to_owned(), fixed.into());
    }
    Ok(())
}

fn node_selector(spec: &mut Map<String, Value>, of_class: &Value) -> Result<(), Refusal> {
    for (key, value) in of_class.as_object().into_iter().flatten() {
        let own = spec.entry("nodeSelector");
        let own = own.or_insert_with(|| Map::new().into());
        match own.get(key) {
            Some(other) if other != value => {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (class, pod) = (text(value), text(other));
                return Err(Refusal(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {class}; \
                     pod.spec.nodeSelector[{key}] = {pod}"
                )));
            }
            _ => own[key] = value.clone(),
        }
    }
    Ok(())
}

/// Returns the tolerations without those that another one includes. Of equal tolerations the first
/// remains.
fn merged(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (i, toleration) in all.iter().enumerate() {
        let before = merged.iter().any(|other| includes(other, toleration));
        let mut later = all[i + 1..].iter();
        if !before && !later.any(|other| other != toleration && includes(other, toleration)) {
            merged.push(toleration.clone());
        }
    }
    merged
}

/// Returns whether a toleration tolerates everything that another one does.
fn includes(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let same = |field: &str| text(wide, field) == text(narrow, field);
    let exists = text(wide, "operator") == "Exists";
    let any_key = text(wide, "key").is_empty() && exists;
    let any_effect = text(wide, "effect").is_empty();
    if !(same("key") || any_key) || !(same("effect") || any_effect) {
        return false;
    }
    if text(wide, "effect") == "NoExecute"
        && let Some(longest) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"]
            .as_i64()
            .is_none_or(|s| s > longest)
    {
        return false;
    }
    match text(wide, "operator").as_str() {
        "Exists" => true,
        "" | "Equal" => text(narrow, "operator") == "Equal" && same("value"),
        _ => false,
    }
}
