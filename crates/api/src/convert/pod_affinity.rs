//! The required inter-pod affinity of a pod.

use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec};
use tautline_core::pod_affinity::PodTerm;

/// The terms of a pod in `namespace`. Malformed ones, which the API server refuses, are left out.
pub(super) fn terms(spec: &PodSpec, namespace: &str) -> Vec<PodTerm> {
    let Some(affinity) = &spec.affinity else {
        return Vec::new();
    };
    let near = affinity.pod_affinity.as_ref();
    let near = near.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let away = affinity.pod_anti_affinity.as_ref();
    let away = away.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let of = |terms: Option<&Vec<PodAffinityTerm>>, anti| -> Vec<PodTerm> {
        let terms = terms.into_iter().flatten();
        terms.filter_map(|t| term(t, namespace, anti)).collect()
    };
    [of(near, false), of(away, true)].concat()
}

fn term(term: &PodAffinityTerm, namespace: &str, anti: bool) -> Option<PodTerm> {
    // Without a selector it selects no pod.
    let selector = super::selector("labelSelector", term.label_selector.as_ref()?).ok()?;
    let all = term.namespace_selector.as_ref().is_some_and(|s| {
        let labels = s.match_labels.as_ref().is_none_or(|l| l.is_empty());
        labels && s.match_expressions.as_ref().is_none_or(|e| e.is_empty())
    });
    let listed = term.namespaces.iter().flatten().map(|n| n.as_str());
    let own = (term.namespace_selector.is_none() && term.namespaces.iter().flatten().count() == 0)
        .then_some(namespace);
    Some(PodTerm {
        anti,
        selector,
        namespaces: (!all).then(|| listed.chain(own).map(Into::into).collect()),
        topology_key: term.topology_key.as_str().into(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn only(term: serde_json::Value) -> Option<PodTerm> {
        let spec = json!({"containers": [], "affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        terms(&spec, "shop").pop()
    }

    #[test]
    fn namespaces_are_the_own_one_the_listed_ones_or_all() {
        let of = |extra: serde_json::Value| {
            let mut term = json!({"labelSelector": {}, "topologyKey": "zone"});
            term.as_object_mut()
                .unwrap()
                .extend(extra.as_object().unwrap().clone());
            only(term).unwrap().namespaces
        };
        let list = |names: &[&str]| Some(names.iter().map(|n| (*n).into()).collect());
        assert_eq!(of(json!({})), list(&["shop"]));
        assert_eq!(of(json!({"namespaces": ["a", "b"]})), list(&["a", "b"]));
        assert_eq!(of(json!({"namespaceSelector": {}})), None);
        let labels = json!({"namespaceSelector": {"matchLabels": {"team": "x"}}});
        assert_eq!(of(labels), list(&[]));
    }

    #[test]
    fn term_without_a_selector_selects_nothing() {
        assert_eq!(only(json!({"topologyKey": "zone"})), None);
        let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}});
        let term = only(term).unwrap();
        assert!(term.anti);
        assert_eq!(term.selector.match_labels, [("app".into(), "db".into())]);
        assert_eq!(&*term.topology_key, "zone");
    }
}
