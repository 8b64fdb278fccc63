//! Chooses the pod for which an offer's limits are asked.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use k8s_openapi::{
    api::core::v1::{Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use tautline_api::{convert, manifest::Item};
use tautline_core::{
    model::{self, Offer, Target, TargetKind},
    selector::{Operator, Selector},
};

use crate::manifests::{pod_namespace, pods};

/// The pod to ask for.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) pod: Pod,
    /// The pod in words, for people.
    pub(super) name: String,
}

/// Returns the offer of this name; `None` if it does not exist.
pub(super) fn offer(items: &[Item], namespace: &str, name: &str) -> Result<Option<Offer>> {
    let is_named = |meta: &ObjectMeta| {
        meta.name.as_deref() == Some(name)
            && meta.namespace.as_deref().unwrap_or("default") == namespace
    };
    let found = items.iter().find_map(|item| match item {
        Item::Offer(offer) if is_named(&offer.metadata) => Some(offer),
        _ => None,
    });
    let converted = found.map(|offer| convert::offer(offer));
    converted
        .transpose()
        .with_context(|| format!("offer {namespace}/{name}"))
}

fn first_target(offer: &Offer) -> Option<&Target> {
    offer.targets.iter().find(|t| t.kind == TargetKind::Pod)
}

/// Returns whether the offer's first Pod target selects the pod.
pub(super) fn selects(offer: &Offer, pod: &model::Pod) -> bool {
    pod.namespace == offer.namespace
        && first_target(offer).is_some_and(|target| target.selector.matches(&pod.labels))
}

/// Returns the first pod by name that the offer's first Pod target selects, pending ones first, else
/// a pod made from its selector.
pub(super) fn subject(items: &[Item], offer: &Offer) -> Result<Subject> {
    let (namespace, name) = (&offer.namespace, &offer.name);
    let target = first_target(offer)
        .with_context(|| format!("offer {namespace}/{name} has no target of kind Pod"))?;
    let selected = pods(items)
        .map(|pod| (convert::pod(pod), pod))
        .filter(|(known, _)| !known.finished && selects(offer, known));
    let first = selected
        .map(|(known, pod)| ((!known.waits_for_node(), known.name), pod))
        .min_by(|(a, _), (b, _)| a.cmp(b));
    if let Some(((_, name), pod)) = first {
        return Ok(Subject {
            pod: pod.clone(),
            name: format!("pod {}/{name}", pod_namespace(pod)),
        });
    }
    let Some(labels) = labels(&target.selector) else {
        bail!(
            "offer {namespace}/{name} selects no pod yet, and no labels were found that match the \
             matchExpressions of its target {}; create one of its pods first",
            target.name
        );
    };
    Ok(Subject {
        pod: Pod {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_string()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec::default()),
            ..Pod::default()
        },
        name: "a pod with the labels of its selector, without requests".to_owned(),
    })
}

/// Returns labels that the selector matches, if simple ones do.
fn labels(selector: &Selector) -> Option<BTreeMap<String, String>> {
    let mut labels: BTreeMap<String, String> = selector.match_labels.iter().cloned().collect();
    for expression in &selector.match_expressions {
        if matches!(expression.operator, Operator::In | Operator::Exists) {
            let value = expression.values.first().cloned().unwrap_or_default();
            labels.entry(expression.key.clone()).or_insert(value);
        }
    }
    let is_matched = selector.matches(&labels.iter().collect());
    is_matched.then_some(labels)
}

#[cfg(test)]
mod tests {
    use tautline_api::manifest;

    use super::*;

    fn asked(selector: &str, pods: &str) -> Result<Subject> {
        let text = format!(
            "apiVersion: constraint.ciena.com/v1alpha1\nkind: ConstraintPolicyOffer\n\
             metadata: {{name: web, namespace: shop}}\n\
             spec: {{policies: [near], targets: [{{kind: Pod, labelSelector: {selector}}}]}}\n{pods}"
        );
        let items = manifest::parse(&text).unwrap();
        let offer = offer(&items, "shop", "web").unwrap().unwrap();
        subject(&items, &offer)
    }

    fn pod(name: &str, app: &str, more: &str) -> String {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, \
             labels: {{app: {app}}}}}\n{more}\n"
        )
    }

    #[test]
    fn pending_pods_come_first_by_name() {
        let bound = pod("a", "web", "spec: {containers: [], nodeName: n1}");
        let (other, waits) = (pod("b", "db", ""), pod("d", "web", ""));
        let done = pod("c", "web", "status: {phase: Succeeded}");
        let name = |pods: &[&str]| {
            let asked = asked("{matchLabels: {app: web}}", &pods.concat());
            asked.unwrap().name
        };
        assert_eq!(name(&[&bound, &other, &done, &waits]), "pod shop/d");
        assert_eq!(name(&[&bound, &other, &done]), "pod shop/a");
    }

    #[test]
    fn pods_are_made_from_selectors() {
        let labels = |selector: &str| {
            let made = asked(selector, &pod("b", "db", ""))?;
            anyhow::Ok(made.pod.metadata.labels.unwrap())
        };
        let made = labels(
            "{matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [a, b]}, \
             {key: x, operator: Exists}, {key: z, operator: DoesNotExist}]}",
        );
        let expected = [("app", "web"), ("tier", "a"), ("x", "")];
        let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(made.unwrap(), expected.into());
        let error = labels(
            "{matchExpressions: [{key: a, operator: In, values: [b]}, \
             {key: a, operator: NotIn, values: [b]}]}",
        );
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with("offer shop/web selects no pod"),
            "{error}"
        );
        assert!(error.ends_with("create one of its pods first"), "{error}");
    }
}
