//! Finds the fields that typed decoding loses: unknown fields, and malformed quantities.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Node, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::Serialize;
use serde_json::Value;
use tautline_core::quantity;

use super::path::FieldPath;

/// The path of a wrong field, and the problem with its fix.
pub(super) type Wrong = (FieldPath, String);

/// Returns the fields of `written` that are missing in `decoded`, the same object decoded as its
/// kind.
pub(super) fn unknown(written: &Value, decoded: &impl Serialize) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    if let Ok(decoded) = serde_json::to_value(decoded) {
        compare(&FieldPath::default(), written, &decoded, &mut wrong);
    }
    wrong
}

fn compare(path: &FieldPath, written: &Value, decoded: &Value, wrong: &mut Vec<Wrong>) {
    match (written, decoded) {
        (Value::Object(written), Value::Object(decoded)) => {
            for (key, value) in written {
                match decoded.get(key) {
                    Some(decoded) => compare(&path.key(key), value, decoded, wrong),
                    None if is_empty(value) => {}
                    None => {
                        let what = "unknown field, so it is ignored; correct or remove it";
                        wrong.push((path.key(key), what.to_owned()));
                    }
                }
            }
        }
        (Value::Array(written), Value::Array(decoded)) => {
            for (i, (written, decoded)) in written.iter().zip(decoded).enumerate() {
                compare(&path.index(i), written, decoded, wrong);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Returns the malformed quantities of a pod. `at` is the path of the pod's spec.
pub(super) fn pod_quantities(at: &FieldPath, pod: &Pod) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    let Some(spec) = &pod.spec else { return wrong };
    let lists: [(&str, &[Container]); 2] = [
        ("containers", &spec.containers),
        (
            "initContainers",
            spec.init_containers.as_deref().unwrap_or_default(),
        ),
    ];
    let containers = lists.iter().flat_map(|(list, containers)| {
        let at = at.key(list);
        let containers = containers.iter().enumerate();
        containers.map(move |(i, c)| (at.index(i), c.resources.as_ref()))
    });
    for (at, resources) in containers.chain([(at.clone(), spec.resources.as_ref())]) {
        let Some(resources) = resources else { continue };
        let at = at.key("resources");
        unreadable(&at.key("requests"), resources.requests.as_ref(), &mut wrong);
        unreadable(&at.key("limits"), resources.limits.as_ref(), &mut wrong);
    }
    unreadable(&at.key("overhead"), spec.overhead.as_ref(), &mut wrong);
    wrong
}

pub(super) fn node_quantities(node: &Node) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    let at = FieldPath::from_keys(["status"]);
    if let Some(status) = &node.status {
        for (field, amounts) in [
            ("allocatable", &status.allocatable),
            ("capacity", &status.capacity),
        ] {
            unreadable(&at.key(field), amounts.as_ref(), &mut wrong);
        }
    }
    wrong
}

fn unreadable(
    at: &FieldPath,
    amounts: Option<&BTreeMap<String, Quantity>>,
    wrong: &mut Vec<Wrong>,
) {
    for (name, amount) in amounts.into_iter().flatten() {
        if let Err(error) = quantity::parse_milli(&amount.0) {
            wrong.push((at.key(name), format!("counts as 0: {error}")));
        }
    }
}
