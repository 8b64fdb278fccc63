//! Checks disruption budgets for a group, whose pods are evicted together. For a single pod the
//! Eviction API does so.

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::core::{Selector, SelectorExt};

use super::refusal::Refusal;

/// Refuses if a budget allows fewer disruptions than the number of the group's pods that it covers.
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
