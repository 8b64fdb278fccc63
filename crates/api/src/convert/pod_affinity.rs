//! The required inter-pod affinity of a pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec};
use tautline_core::selector::PodTerm;

/// The maximum size of one pod's terms in the index. The terms of usual pods take hundreds of
/// bytes.
const MAX_TERMS_BYTES: usize = 16 << 10;

/// Returns the anti-affinity terms of a pod in `namespace`, and also its affinity terms if it waits
/// for a node. Leaves out terms that are malformed, which the API server refuses, and terms beyond
/// [`MAX_TERMS_BYTES`]; a waiting pod with such a term fits on no node.
pub(super) fn terms(spec: &PodSpec, namespace: &str, waits: bool) -> Arc<[PodTerm]> {
    let affinity = spec.affinity.as_ref();
    let near = affinity
        .filter(|_| waits)
        .and_then(|a| a.pod_affinity.as_ref())
        .and_then(|a| {
            a.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let away = affinity
        .and_then(|a| a.pod_anti_affinity.as_ref())
        .and_then(|a| {
            a.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let near = near.into_iter().flatten().map(|t| (false, t));
    let away = away.into_iter().flatten().map(|t| (true, t));
    let (mut terms, mut bytes, mut complete) = (Vec::new(), 0, true);
    for (anti, api) in near.chain(away) {
        // A term without a selector selects no pod: anti-affinity allows every node, affinity none.
        match (&api.label_selector, term(api, namespace, anti)) {
            (None, _) if anti => {}
            (Some(_), Some(term)) if bytes + term.bytes() <= MAX_TERMS_BYTES => {
                bytes += term.bytes();
                terms.push(term);
            }
            _ => complete = false,
        }
    }
    if waits && !complete {
        terms.push(PodTerm::unsatisfiable());
    }
    terms.into()
}

fn term(term: &PodAffinityTerm, namespace: &str, anti: bool) -> Option<PodTerm> {
    let selector = super::selector("labelSelector", term.label_selector.as_ref()?).ok()?;
    let of_namespaces = match &term.namespace_selector {
        Some(s) => Some(super::selector("namespaceSelector", s).ok()?),
        None => None,
    };
    let listed = term.namespaces.iter().flatten().map(|n| n.as_str());
    let own = (of_namespaces.is_none() && term.namespaces.iter().flatten().count() == 0)
        .then_some(namespace);
    Some(PodTerm {
        anti,
        selector,
        namespaces: listed.chain(own).map(Into::into).collect(),
        namespace_selector: of_namespaces,
        topology_key: term.topology_key.as_str().into(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tautline_core::selector::Selector;

    use super::*;

    fn of(kind: &str, required: serde_json::Value, waits: bool) -> Arc<[PodTerm]> {
        let spec = json!({"containers": [], "affinity": {kind: {
            "requiredDuringSchedulingIgnoredDuringExecution": required}}});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        terms(&spec, "shop", waits)
    }

    #[test]
    fn namespaces_are_the_own_one_the_listed_ones_or_selected() {
        let of = |extra: serde_json::Value| {
            let mut term = json!({"labelSelector": {}, "topologyKey": "zone"});
            term.as_object_mut()
                .unwrap()
                .extend(extra.as_object().unwrap().clone());
            let term = of("podAntiAffinity", json!([term]), false)[0].clone();
            (term.namespaces, term.namespace_selector)
        };
        let list =
            |names: &[&str]| -> Box<[Box<str>]> { names.iter().map(|n| (*n).into()).collect() };
        assert_eq!(of(json!({})), (list(&["shop"]), None));
        assert_eq!(
            of(json!({"namespaces": ["a", "b"]})),
            (list(&["a", "b"]), None)
        );
        let all = Some(Selector::default());
        assert_eq!(of(json!({"namespaceSelector": {}})), (list(&[]), all));
        let team = Selector {
            match_labels: vec![("team".into(), "x".into())],
            match_expressions: Vec::new(),
        };
        let labels =
            json!({"namespaces": ["a"], "namespaceSelector": {"matchLabels": {"team": "x"}}});
        assert_eq!(of(labels), (list(&["a"]), Some(team)));
    }

    #[test]
    fn term_without_a_selector_selects_nothing() {
        let bare = || json!([{"topologyKey": "zone"}]);
        assert!(of("podAntiAffinity", bare(), true).is_empty());
        // No pod can be near.
        let impossible = [PodTerm::unsatisfiable()];
        assert_eq!(*of("podAffinity", bare(), true), impossible);
        assert!(of("podAffinity", bare(), false).is_empty());
        let malformed = json!([{"topologyKey": "zone", "labelSelector": {"matchExpressions": [
            {"key": "a", "operator": "Is"}]}}]);
        assert_eq!(*of("podAntiAffinity", malformed.clone(), true), impossible);
        assert!(of("podAntiAffinity", malformed, false).is_empty());
        let db = json!([{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}]);
        let terms = of("podAntiAffinity", db, false);
        assert!(terms[0].anti);
        assert_eq!(
            terms[0].selector.match_labels,
            [("app".into(), "db".into())]
        );
        assert_eq!(&*terms[0].topology_key, "zone");
    }

    #[test]
    fn terms_of_a_pod_are_bounded_in_bytes() {
        let one = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}});
        let many = serde_json::Value::Array(vec![one; 4_000]);
        let kept = of("podAntiAffinity", many.clone(), false);
        assert!(!kept.is_empty());
        assert!(kept.iter().map(PodTerm::bytes).sum::<usize>() <= MAX_TERMS_BYTES);
        let kept = of("podAntiAffinity", many, true);
        assert_eq!(kept.last(), Some(&PodTerm::unsatisfiable()));
        let long = json!([{"topologyKey": "zone", "labelSelector": {"matchExpressions": [
            {"key": "app", "operator": "In", "values": vec!["x".repeat(60); 1_000]}]}}]);
        assert!(of("podAntiAffinity", long, false).is_empty());
    }
}
