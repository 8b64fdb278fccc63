//! Runs the API server's own admission plugins on objects that no API server has admitted. The
//! plugins are those that are on by default and change a pod, a node, or the finalizers of a volume
//! or claim; DefaultStorageClass and DefaultIngressClass are left out. They run in the order of
//! Kubernetes 1.36.3 (pkg/kubeapiserver/options/plugins.go): before the policies and, after a
//! change, between the passes.

mod limit_checks;
mod limit_ranges;
mod priority;
mod runtime_class;
mod service_account;
mod tolerations;

use serde_json::{Map, Value, json};

use crate::cluster::Refusal;
use crate::defaults;
use crate::objects::Objects;
use crate::request::Request;

/// Changes the object as the plugins do, with the classes, accounts and ranges that are given.
/// Returns notes on the changes that are left out because an object is not given. The error is the
/// API server's refusal.
pub(crate) fn admit(
    request: &Request,
    object: &mut Value,
    given: &Objects,
) -> Result<Vec<String>, Refusal> {
    let mut notes = Vec::new();
    let creates = request.operation == "CREATE";
    if !request.sub_resource.is_empty() || !(creates || request.operation == "UPDATE") {
        return Ok(notes);
    }
    let resource = &request.resource;
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("", "pods") => {
            let admitted = pod(request, object, given, &mut notes);
            admitted.map_err(|why| forbidden(object, &why))?;
        }
        ("", "nodes") if creates => node_taint(object),
        ("", "persistentvolumes") if creates => finalizer(object, "kubernetes.io/pv-protection"),
        ("", "persistentvolumeclaims") if creates => {
            finalizer(object, "kubernetes.io/pvc-protection");
        }
        _ => {}
    }
    Ok(notes)
}

fn pod(
    request: &Request,
    pod: &mut Value,
    given: &Objects,
    notes: &mut Vec<String>,
) -> Result<(), Refusal> {
    let creates = request.operation == "CREATE";
    if creates {
        limit_ranges::admit(pod, &request.namespace, given);
    }
    // The kubelet removes a mirror pod that differs from its file.
    let is_mirror = pod
        .pointer("/metadata/annotations/kubernetes.io~1config.mirror")
        .is_some();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    defaults::alias_service_account(spec);
    if creates && !is_mirror {
        service_account::admit(spec, &request.namespace, given, notes);
        defaults::alias_service_account(spec);
    }
    if creates {
        priority::admit(spec, given, notes)?;
    } else {
        priority::keep(spec, &request.old_object["spec"]);
    }
    tolerations::admit(spec);
    if creates {
        runtime_class::admit(spec, given, notes)?;
    }
    Ok(())
}

/// Completes a new pod with what decides on its node, and checks its LimitRanges. What is not given
/// has no effect.
pub(crate) fn complete_pod(
    pod: &mut Value,
    namespace: &str,
    given: &Objects,
) -> Result<(), Refusal> {
    limit_ranges::admit(pod, namespace, given);
    let mut completed = Ok(());
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        let mut notes = Vec::new();
        if !spec.contains_key("priority") {
            completed = priority::admit(spec, given, &mut notes);
        }
        completed = completed.and_then(|()| runtime_class::admit(spec, given, &mut notes));
    }
    completed.map_err(|why| forbidden(pod, &why))?;
    check_pod(pod, namespace, given)
}

/// Fails if the object of a request is a new pod that violates a LimitRange. The API server checks
/// this after all changes.
pub(crate) fn check(request: &Request, object: &Value, given: &Objects) -> Result<(), Refusal> {
    let resource = &request.resource;
    let is_new_pod = request.operation == "CREATE"
        && request.sub_resource.is_empty()
        && resource.group.is_empty()
        && resource.resource == "pods";
    if is_new_pod {
        check_pod(object, &request.namespace, given)?;
    }
    Ok(())
}

fn check_pod(pod: &Value, namespace: &str, given: &Objects) -> Result<(), Refusal> {
    limit_checks::check(pod, namespace, given).map_err(|why| forbidden(pod, &why))
}

fn forbidden(pod: &Value, why: &Refusal) -> Refusal {
    Refusal(format!("pods {:?} is forbidden: {why}", name(pod)))
}

/// Taints a node like the plugin `TaintNodesByCondition`: a node is not ready until its controller
/// reports that it is.
fn node_taint(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let Some(node) = node.as_object_mut() else {
        return;
    };
    let spec = node.entry("spec").or_insert_with(|| Map::new().into());
    let is_same = |other: &Value| ["key", "effect"].iter().all(|f| other[f] == taint[f]);
    if let Some(spec) = spec.as_object_mut()
        && !list(spec, "taints").iter().any(is_same)
    {
        push(spec, "taints", taint.clone());
    }
}

/// Adds a finalizer like the plugin `StorageObjectInUseProtection`.
fn finalizer(object: &mut Value, name: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && !list(metadata, "finalizers").iter().any(|f| f == name)
    {
        push(metadata, "finalizers", name.into());
    }
}

fn name(object: &Value) -> &str {
    let text = |field| object["metadata"][field].as_str();
    text("name").or(text("generateName")).unwrap_or_default()
}

/// Returns the text of a field; empty if it is absent.
fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the elements of a field's list; an empty list if the field is absent.
fn list<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    let list = fields.get(name).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// Appends to the list of a field, which is created if the field is absent.
fn push(fields: &mut Map<String, Value>, name: &str, value: Value) {
    let list = fields.entry(name).or_insert_with(|| json!([]));
    if let Some(list) = list.as_array_mut() {
        list.push(value);
    }
}

#[cfg(test)]
mod tests;
