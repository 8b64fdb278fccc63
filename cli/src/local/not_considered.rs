//! Names the fields of a pod, and its peers, that could change its node and that plans do not
//! consider.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::{
    core::v1::{Affinity, Pod, PodSpec},
    resource::v1::{CELDeviceSelector, ResourceClaimSpec},
};
use tautline_api::{convert, manifest::Item};
use tautline_core::{Snapshot, names::DEFAULT_SCHEDULER, volumes::PodVolumes};
use tautline_gpu_placement::dra;

use super::{claims::namespace_and_name, other_clusters};

/// The schedulers whose part is played here, the second by Tautline's manifests.
const SCHEDULERS: [&str; 2] = [DEFAULT_SCHEDULER, "tautline-scheduler"];

/// The objects of manifests that decide what a plan does not consider.
#[derive(Debug, Default)]
pub(super) struct UnreadKinds {
    /// The RuntimeClasses, by which new pods have been completed.
    runtime_classes: HashSet<String>,
    csi_nodes: bool,
    /// The templates of claims by namespace and name, from which the pods' claims have been made.
    claim_templates: HashSet<(String, String)>,
    /// The ResourceClaims by namespace and name, with the reason why they are not fully considered.
    claims: HashMap<(String, String), Option<&'static str>>,
}

impl UnreadKinds {
    pub(super) fn new(items: &[Item]) -> Self {
        let mut found = Self::default();
        for item in items {
            match item {
                Item::Admission(object) if object["kind"] == "RuntimeClass" => {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    found.runtime_classes.insert(name.to_owned());
                }
                Item::Other(name) => found.csi_nodes |= name.starts_with("CSINode/"),
                Item::ResourceClaim(claim) => {
                    let reason = unread_part(&claim.spec);
                    found
                        .claims
                        .insert(namespace_and_name(&claim.metadata), reason);
                }
                Item::ResourceClaimTemplate(template) => {
                    found
                        .claim_templates
                        .insert(namespace_and_name(&template.metadata));
                }
                _ => {}
            }
        }
        found
    }
}

/// The answer to one pod, as far as it decides which fields matter.
pub(super) struct Answer<'a> {
    /// The number of nodes that all rules admit.
    pub(super) usable: usize,
    /// The rules that Tautline evaluated.
    pub(super) rules: Vec<&'a str>,
}

/// Returns the fields and peers of the pod that were not considered and could change the answer.
pub(super) fn fields(
    pod: &Pod,
    snapshot: &Snapshot,
    unread: &UnreadKinds,
    answer: &Answer<'_>,
) -> Vec<String> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let mut found = malformed(spec);
    // Preferences decide only between several nodes.
    if answer.usable > 1 {
        found.extend(preferences(spec));
    }
    if let Some(name) = spec.scheduler_name.as_deref()
        && !name.is_empty()
        && !SCHEDULERS.contains(&name)
    {
        found.push(format!("schedulerName {name}"));
    }
    // Admission writes what these fields stand for into pods as they are created.
    if pod.metadata.creation_timestamp.is_none() {
        found.extend(before_admission(spec, unread));
    }
    let priority = spec.priority.unwrap_or_default();
    if answer.usable == 0 && has_lower_priority(snapshot, priority) {
        found.push(format!("priority {priority} (preemption)"));
    }
    // Only this rule counts the devices of drivers.
    if answer.rules.contains(&"gpu-slice") {
        found.extend(unknown_templates(pod, unread));
        found.extend(unread_claims(pod, unread));
    } else {
        if spec.resource_claims.as_ref().is_some_and(|c| !c.is_empty()) {
            found.push("resourceClaims".to_owned());
        }
        if let Some(resource) = snapshot.requested_of_class(&convert::requests(pod)) {
            found.push(format!("{resource} (devices of a DeviceClass)"));
        }
    }
    if spec.scheduling_group.is_some() {
        found.push("schedulingGroup".to_owned());
    }
    let of_pod = convert::pod_volumes(pod);
    found.extend(volumes(snapshot, &of_pod));
    if unread.csi_nodes && !of_pod.claims.is_empty() {
        found.push("volumes (limits of CSINodes)".to_owned());
    }
    found.extend(other_clusters::peers(pod, snapshot));
    found
}

/// Returns the parts that are malformed: the API server would refuse the pod.
fn malformed(spec: &PodSpec) -> Vec<String> {
    let mut found = Vec::new();
    for (i, toleration) in spec.tolerations.iter().flatten().enumerate() {
        let operator = toleration.operator.as_deref().unwrap_or_default();
        if !["", "Exists", "Equal", "Lt", "Gt"].contains(&operator) {
            found.push(format!(
                "tolerations[{i}] (operator {operator:?} is unknown)"
            ));
        }
    }
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let terms = required.into_iter().flat_map(|r| &r.node_selector_terms);
    for expression in terms.flat_map(|t| t.match_expressions.iter().flatten()) {
        let operator = expression.operator.as_str();
        if !["In", "NotIn", "Exists", "DoesNotExist", "Lt", "Gt"].contains(&operator) {
            found.push(format!(
                "affinity.nodeAffinity (operator {operator:?} is unknown)"
            ));
        }
    }
    found
}

fn preferences(spec: &PodSpec) -> Vec<String> {
    let mut found = Vec::new();
    let empty = Affinity::default();
    let affinity = spec.affinity.as_ref().unwrap_or(&empty);
    macro_rules! preferred {
        ($($part:ident: $name:literal),*) => {$(
            let part = affinity.$part.as_ref();
            let terms = part.and_then(|p| p.preferred_during_scheduling_ignored_during_execution.as_ref());
            if terms.is_some_and(|terms| !terms.is_empty()) {
                found.push(concat!("affinity.", $name, " (preferred)").to_owned());
            }
        )*};
    }
    preferred!(node_affinity: "nodeAffinity", pod_affinity: "podAffinity", pod_anti_affinity: "podAntiAffinity");
    let mut spread = spec.topology_spread_constraints.iter().flatten();
    if spread.any(|c| c.when_unsatisfiable == "ScheduleAnyway") {
        found.push("topologySpreadConstraints (ScheduleAnyway)".to_owned());
    }
    found
}

fn before_admission(spec: &PodSpec, unread: &UnreadKinds) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(class) = &spec.runtime_class_name
        && !unread.runtime_classes.contains(class)
    {
        found.push(format!("runtimeClassName {class}"));
    }
    if let Some(class) = spec.priority_class_name.as_ref().filter(|c| !c.is_empty())
        && spec.priority.is_none()
    {
        found.push(format!("priorityClassName {class}"));
    }
    found
}

/// Returns whether a pod with a node has a lower priority. Of pods that were bound before, the
/// priority is not known here, so each may have one.
fn has_lower_priority(snapshot: &Snapshot, priority: i32) -> bool {
    let is_lower = |pod: &tautline_core::model::Pod| match &pod.placement {
        Some(placement) => placement.priority < priority,
        None => priority > 0,
    };
    let mut bound = snapshot.pods().filter(|p| p.node.is_some() && !p.finished);
    bound.any(|pod| is_lower(pod))
}

/// Returns the pod's claims that are not among the manifests, or not fully considered.
fn unread_claims(pod: &Pod, unread: &UnreadKinds) -> Vec<String> {
    let (namespace, _) = namespace_and_name(&pod.metadata);
    let names = convert::pod_claims(pod).names.into_iter();
    let text = |name: String| {
        let claim = unread.claims.get(&(namespace.clone(), name.clone()));
        let what = match claim {
            Some(reason) => (*reason)?,
            None => "it is not known",
        };
        Some(format!("ResourceClaim {name} ({what})"))
    };
    names.filter_map(text).collect()
}

/// Returns the part of a claim that is not considered, if any.
fn unread_part(claim: &ResourceClaimSpec) -> Option<&'static str> {
    let devices = claim.devices.as_ref()?;
    if devices.constraints.as_ref().is_some_and(|c| !c.is_empty()) {
        return Some("its constraints between devices");
    }
    let requests = devices.requests.iter().flatten();
    let mut selectors = requests.flat_map(|request| {
        let exactly = request.exactly.iter().flat_map(|r| &r.selectors);
        let available = request.first_available.iter().flatten();
        exactly
            .chain(available.flat_map(|r| &r.selectors))
            .flatten()
    });
    let is_read = |cel: &CELDeviceSelector| dra::is_readable(&cel.expression);
    let is_unread = selectors.any(|s| s.cel.as_ref().is_some_and(|cel| !is_read(cel)));
    is_unread.then_some("a selector that CEL decides")
}

/// Returns the templates of claims that are not among the manifests; the pod waits for the claims.
fn unknown_templates(pod: &Pod, unread: &UnreadKinds) -> Vec<String> {
    let (namespace, _) = namespace_and_name(&pod.metadata);
    let created = pod.status.iter().flat_map(|s| &s.resource_claim_statuses);
    let created: HashSet<&str> = created.flatten().map(|status| &*status.name).collect();
    let claims = pod.spec.iter().flat_map(|s| &s.resource_claims).flatten();
    let open = claims.filter(|claim| !created.contains(&*claim.name));
    let templates = open.filter_map(|claim| claim.resource_claim_template_name.clone());
    let unknown = templates.filter(|name| {
        !unread
            .claim_templates
            .contains(&(namespace.clone(), name.clone()))
    });
    unknown
        .map(|name| format!("ResourceClaimTemplate {name} (it is not known)"))
        .collect()
}

/// Returns the claims whose volume or storage class is not known.
fn volumes(snapshot: &Snapshot, of: &PodVolumes) -> Vec<String> {
    let storage = snapshot.storage();
    let mut found = Vec::new();
    for name in &of.claims {
        let made = || of.own_claims.iter().find(|claim| claim.name == *name);
        let claim = storage
            .and_then(|s| s.claim(&of.namespace, name))
            .or_else(made);
        // An absent claim keeps the pod pending.
        let Some((storage, claim)) = storage.zip(claim) else {
            continue;
        };
        if let Some(volume) = &claim.volume {
            if storage.volume_of(claim).is_none() {
                found.push(format!(
                    "claim {name} (PersistentVolume {volume} is not known)"
                ));
            }
            continue;
        }
        let class = storage.class_of(claim);
        if class.is_none_or(|class| !class.waits_for_pod) && !claim.is_observed {
            let why = match (&claim.class, class) {
                (Some(class), None) if !class.is_empty() => {
                    format!("StorageClass {class} is not known")
                }
                (None, None) => "the default StorageClass is not known".to_owned(),
                _ => "it is not bound yet".to_owned(),
            };
            found.push(format!("claim {name} ({why})"));
        } else if class.is_none() && claim.class.as_deref() != Some("") {
            found.push(format!("claim {name} (its StorageClass is not known)"));
        }
    }
    found
}

#[cfg(test)]
mod tests;
