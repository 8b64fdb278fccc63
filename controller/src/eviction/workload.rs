//! Checks that a pod's workload or group is ready before the pod is evicted.

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use tautline_core::dns;

use super::{owner::controller_of, refusal::Refusal};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OwnerRef<'a> {
    ReplicaSet(&'a str),
    StatefulSet(&'a str),
    /// An owner of a kind whose number of replicas is not known.
    Other,
}

impl<'a> OwnerRef<'a> {
    pub(crate) fn new(owner: &'a OwnerReference) -> Result<Self, Refusal> {
        Ok(match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("apps/v1", "ReplicaSet") => Self::ReplicaSet(checked_name(owner)?),
            ("apps/v1", "StatefulSet") => Self::StatefulSet(checked_name(owner)?),
            _ => Self::Other,
        })
    }
}

/// Returns the number of replicas that a spec asks for, which defaults to 1.
pub(crate) fn desired_replicas(replicas: Option<i32>) -> Option<i32> {
    Some(replicas.unwrap_or(1))
}

/// Returns the owner's name if it is valid. The author of the pod chooses the name, and it becomes
/// part of a URL.
pub(crate) fn checked_name(owner: &OwnerReference) -> Result<&str, Refusal> {
    if dns::is_subdomain(&owner.name) {
        return Ok(&owner.name);
    }
    let (kind, name) = (&owner.kind, &owner.name);
    let text = format!("the pod's owner is {kind} {name:?}, which no object can be called");
    Err(Refusal::new("Failed", text))
}

/// Refuses unless every other pod of the owner is ready and there are `desired` pods, `pod`
/// included. `pods` contains all pods of the owner and possibly others.
pub(crate) fn check_ready(
    pod: &Pod,
    owner: &OwnerReference,
    desired: Option<i32>,
    pods: &[Pod],
) -> Result<(), Refusal> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let owned = |p: &&Pod| controller_of(&p.metadata).is_some_and(|o| o.uid == owner.uid);
    let (mut ready, mut not_ready) = (0, None);
    for other in pods.iter().filter(owned).filter(|p| !is_finished(p)) {
        if other.metadata.uid == pod.metadata.uid || is_ready(other) {
            ready += 1;
        } else {
            not_ready = other.metadata.name.as_deref();
        }
    }
    if let Some(name) = not_ready {
        let text = format!("pod {namespace}/{name} of the same workload is not ready");
        return Err(Refusal::new("ReplicaDown", text));
    }
    match desired {
        Some(desired) if ready < desired => {
            let workload = format!("{} {}", owner.kind, owner.name);
            let text = format!("{ready} of the {desired} pods of {workload} are up");
            Err(Refusal::new("ReplicaDown", text))
        }
        _ => Ok(()),
    }
}

/// Refuses unless every other pod of the group is ready.
pub(crate) fn check_group(name: &str, others: &[Pod]) -> Result<(), Refusal> {
    let Some(down) = others.iter().find(|pod| !is_ready(pod)) else {
        return Ok(());
    };
    let pod = down.metadata.name.as_deref().unwrap_or_default();
    let text = format!("pod {pod} of {name} is not ready");
    Err(Refusal::new("ReplicaDown", text))
}

pub(crate) fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let ready =
        conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    pod.metadata.deletion_timestamp.is_none() && ready
}
