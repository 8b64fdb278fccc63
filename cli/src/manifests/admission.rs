//! Completes the pods of manifests that no API server has admitted yet, by the RuntimeClasses,
//! LimitRanges and PriorityClasses of the manifests.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};
use tautline_api::manifest::Item;
use tautline_mutating_policy::{Kind, Refusal, StaticCluster, defaults};

use super::pod_namespace;

/// The reason in the status of a pod that the API server would refuse.
const FORBIDDEN: &str = "Forbidden";

/// Completes new pods as the API server does. A pod that it would refuse gets no node.
pub(crate) fn admit(items: &mut [Item]) {
    let given: Vec<Value> = items.iter().filter_map(given).collect();
    if given.is_empty() {
        return;
    }
    let given = StaticCluster::from_iter(given);
    let daemons = items.iter().filter_map(|item| match item {
        Item::Workload(w) if w.is_per_node() => Some(w.to_string()),
        _ => None,
    });
    let daemons: HashSet<String> = daemons.collect();
    for item in items {
        if let Item::Pod(pod) = item
            && is_new(pod, &daemons)
            && let Err(refusal) = complete(pod, &given)
        {
            let spec = pod.spec.get_or_insert_default();
            spec.node_name = None;
            pod.status = Some(PodStatus {
                reason: Some(FORBIDDEN.to_owned()),
                message: Some(refusal.to_string()),
                ..PodStatus::default()
            });
        }
    }
}

/// Returns why the API server would refuse a pod of manifests.
pub(crate) fn refusal(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let is_refused =
        pod.metadata.creation_timestamp.is_none() && status.reason.as_deref() == Some(FORBIDDEN);
    status.message.as_deref().filter(|_| is_refused)
}

/// Returns an object that decides about new pods.
fn given(item: &Item) -> Option<Value> {
    let Item::Admission(object) = item else {
        return None;
    };
    let mut object = (**object).clone();
    if object["kind"] == "LimitRange" && object["metadata"]["namespace"].is_null() {
        object["metadata"]["namespace"] = json!("default");
    }
    Some(object)
}

/// Returns whether a pod is still to be created. One with a node runs, unless it is of a DaemonSet
/// of the manifests.
fn is_new(pod: &Pod, daemons: &HashSet<String>) -> bool {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let has_node = spec.is_some_and(|s| s.node_name.as_ref().is_some_and(|n| !n.is_empty()));
    pod.metadata.creation_timestamp.is_none()
        && (!has_node || owners.iter().any(|owner| daemons.contains(&owner.uid)))
}

fn complete(pod: &mut Pod, given: &StaticCluster) -> Result<(), Refusal> {
    let kind = Kind {
        version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        ..Kind::default()
    };
    // A pod that has been read can be written.
    let Ok(mut value) = serde_json::to_value(&*pod) else {
        return Ok(());
    };
    defaults::complete(&kind, &mut value);
    given.complete_pod(pod_namespace(pod), &mut value)?;
    if let Ok(completed) = serde_json::from_value(value) {
        *pod = completed;
    }
    Ok(())
}
