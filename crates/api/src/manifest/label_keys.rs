//! Merges `matchLabelKeys` and `mismatchLabelKeys` of inter-pod affinity into the selectors. The
//! API server does this for a new pod, and kube-scheduler reads only the selectors.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Pod, PodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement,
};

/// Merges the keys of the pod's required terms, as the API server does when it creates the pod. A
/// pod with a UID exists, so that its keys are merged already.
pub(super) fn merge(pod: &mut Pod) {
    let Some(affinity) = pod.spec.as_mut().and_then(|s| s.affinity.as_mut()) else {
        return;
    };
    if pod.metadata.uid.is_some() {
        return;
    }
    let near = affinity.pod_affinity.as_mut();
    let near = near.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_mut()
    });
    let away = affinity.pod_anti_affinity.as_mut();
    let away = away.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_mut()
    });
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    for term in [near, away].into_iter().flatten().flatten() {
        merge_term(term, &labels);
    }
}

fn merge_term(term: &mut PodAffinityTerm, labels: &BTreeMap<String, String>) {
    // Without a selector the term selects no pod, whatever its keys are.
    let Some(selector) = &mut term.label_selector else {
        return;
    };
    let expressions = selector.match_expressions.get_or_insert_default();
    for (keys, operator) in [
        (&term.match_label_keys, "In"),
        (&term.mismatch_label_keys, "NotIn"),
    ] {
        for key in keys.iter().flatten() {
            expressions.extend(labels.get(key).map(|value| LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.to_owned(),
                values: Some(vec![value.clone()]),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::manifest::{Item, parse};

    fn expressions(metadata: serde_json::Value, kind: &str) -> Vec<(String, String, Vec<String>)> {
        let spec = json!({"containers": [], "affinity": {kind: {
            "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "web"}},
                "matchLabelKeys": ["pod-template-hash", "absent"],
                "mismatchLabelKeys": ["tenant"]}]}}});
        let text = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        let Some(Item::Pod(pod)) = parse(&text.to_string()).unwrap().pop() else {
            panic!("no pod");
        };
        let affinity = pod.spec.unwrap().affinity.unwrap();
        let near = affinity
            .pod_affinity
            .and_then(|a| a.required_during_scheduling_ignored_during_execution);
        let away = affinity
            .pod_anti_affinity
            .and_then(|a| a.required_during_scheduling_ignored_during_execution);
        let selector = near.or(away).unwrap().remove(0).label_selector.unwrap();
        let all = selector.match_expressions.unwrap_or_default().into_iter();
        all.map(|e| (e.key, e.operator, e.values.unwrap()))
            .collect()
    }

    #[test]
    fn keys_are_merged_into_the_selectors_of_new_pods() {
        let labels = json!({"app": "web", "pod-template-hash": "bbb", "tenant": "t"});
        let merged = [
            ("pod-template-hash".into(), "In".into(), vec!["bbb".into()]),
            ("tenant".into(), "NotIn".into(), vec!["t".into()]),
        ];
        for kind in ["podAffinity", "podAntiAffinity"] {
            let new = json!({"name": "p", "labels": labels});
            assert_eq!(expressions(new, kind), merged);
            // The API server has merged what the pod's labels were then.
            let existing = json!({"name": "p", "labels": labels, "uid": "u"});
            assert_eq!(expressions(existing, kind), []);
        }
    }
}
