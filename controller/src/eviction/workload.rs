//! Checks that a pod's workload or group is ready and that disruption budgets allow the eviction,
//! before the pod is evicted.

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::core::{Selector, SelectorExt};
use tautline_core::dns;

use super::{Refusal, owner::controller_of};

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

/// Refuses if a budget allows fewer disruptions than the number of the group's pods that it covers.
/// The pods are evicted together; for a single pod the Eviction API checks the budgets.
pub(crate) fn check_budgets(
    group: &str,
    pods: &[Pod],
    budgets: &[PodDisruptionBudget],
) -> Result<(), Refusal> {
    for budget in budgets {
        let covered = pods.iter().filter(|pod| covers(budget, pod)).count();
        let status = budget.status.as_ref();
        let allowed = status.and_then(|s| s.disruptions_allowed);
        let allowed = allowed.map_or(0, |n| usize::try_from(n).unwrap_or(0));
        if covered > allowed {
            let name = budget.metadata.name.as_deref().unwrap_or_default();
            let text = format!(
                "PodDisruptionBudget {name} allows {allowed} disruptions now, and covers {covered} \
                 pods of {group}, which go together"
            );
            return Err(Refusal::new("DisruptionBudget", text));
        }
    }
    Ok(())
}

/// Returns whether a budget covers the pod; true if the budget's selector is invalid.
fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|s| s.selector.clone());
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    // A budget without a selector covers no pod.
    selector.is_some_and(|s| Selector::try_from(s).map_or(true, |s| s.matches(&labels)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pods(count: usize) -> Vec<Pod> {
        let pod = json!({"metadata": {"labels": {"app": "train"}}});
        vec![serde_json::from_value(pod).unwrap(); count]
    }

    fn checked(selector: Value, allowed: i32) -> Result<(), String> {
        let budget = json!({
            "metadata": {"name": "keep"}, "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 0, "desiredHealthy": 0,
                       "expectedPods": 0},
        });
        let budget = serde_json::from_value(budget).unwrap();
        check_budgets("JobSet train", &pods(3), &[budget]).map_err(|r| r.to_string())
    }

    #[test]
    fn budget_must_allow_all_its_pods_of_the_group() {
        let own = || json!({"matchLabels": {"app": "train"}});
        assert_eq!(checked(own(), 3), Ok(()));
        assert_eq!(
            checked(own(), 2).unwrap_err(),
            "DisruptionBudget: PodDisruptionBudget keep allows 2 disruptions now, and covers 3 \
             pods of JobSet train, which go together"
        );
        assert_eq!(checked(json!({"matchLabels": {"app": "web"}}), 0), Ok(()));
        assert!(checked(json!({}), 2).is_err(), "selects every pod");
        assert_eq!(checked(Value::Null, 0), Ok(()), "selects none");
    }
}
