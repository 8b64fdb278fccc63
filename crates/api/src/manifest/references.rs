//! Checks references between objects of several manifests.

use std::collections::{BTreeMap, HashMap, HashSet};

use tautline_core::{
    model::{Target, TargetKind},
    selector::Labels,
};

use super::{Finding, Item, Workload, path::FieldPath};
use crate::{ConstraintPolicyOffer, Metadata, convert};

const NO_SELECTOR: &str = "no labelSelector, so the target selects every object of its kind in \
                           the namespace; write one, or {} if you mean all";

/// Finds offers without effect and workloads without their pods; `W` locates each object.
pub fn check_references<W: Copy>(objects: &[(W, Item)]) -> Vec<(W, Finding)> {
    let known = Known::of(objects.iter().map(|(_, item)| item));
    let mut findings = Vec::new();
    for (place, item) in objects {
        let (object, wrong) = match item {
            Item::Offer(offer) => (named("ConstraintPolicyOffer", offer), known.offer(offer)),
            Item::Workload(workload) => (workload.to_string(), known.workload(workload)),
            _ => continue,
        };
        findings.extend(wrong.into_iter().map(|(field, what)| {
            let object = object.clone();
            (
                *place,
                Finding {
                    object,
                    field,
                    message: what,
                },
            )
        }));
    }
    findings
}

fn named(kind: &str, offer: &ConstraintPolicyOffer) -> String {
    super::object_name(
        kind,
        offer.metadata.namespace.as_deref().unwrap_or_default(),
        offer.metadata.name.as_deref().unwrap_or_default(),
    )
}

fn namespace(metadata: &Metadata) -> &str {
    metadata.namespace.as_deref().unwrap_or("default")
}

#[derive(Default)]
struct Known<'a> {
    policies: HashSet<(&'a str, &'a str)>,
    pods: HashMap<&'a str, Vec<(Labels, &'a Metadata)>>,
    templates: HashMap<&'a str, Vec<Labels>>,
    slices: HashMap<&'a str, Vec<Labels>>,
}

impl<'a> Known<'a> {
    fn of(items: impl Iterator<Item = &'a Item>) -> Self {
        let mut known = Self::default();
        for item in items {
            match item {
                Item::Policy(p) => {
                    let name = p.metadata.name.as_deref().unwrap_or_default();
                    known.policies.insert((namespace(&p.metadata), name));
                }
                Item::Pod(p) => {
                    let labels = convert::labels(p.metadata.labels.as_ref());
                    let pods = known.pods.entry(namespace(&p.metadata)).or_default();
                    pods.push((labels, &p.metadata));
                }
                Item::EndpointSlice(s) => {
                    let labels = convert::labels(s.metadata.labels.as_ref());
                    let slices = known.slices.entry(namespace(&s.metadata)).or_default();
                    slices.push(labels);
                }
                Item::Workload(w) => {
                    let labels = convert::labels(Some(&w.pod_labels));
                    let templates = known.templates.entry(w.namespace_or_default()).or_default();
                    templates.push(labels);
                }
                _ => {}
            }
        }
        known
    }

    fn offer(&self, offer: &ConstraintPolicyOffer) -> Vec<super::fields::Wrong> {
        let mut wrong = Vec::new();
        let namespace = namespace(&offer.metadata);
        let spec = FieldPath::from_keys(["spec"]);
        if offer.spec.policies.is_empty() {
            let what = "no policy, so the offer asks nothing; name a ConstraintPolicy of its \
                        namespace";
            wrong.push((spec.key("policies"), what.to_owned()));
        }
        for (i, policy) in offer.spec.policies.iter().enumerate() {
            if !self.policies.contains(&(namespace, policy)) {
                let what = format!(
                    "there is no ConstraintPolicy {namespace}/{policy}; correct the name, or add \
                     its manifest"
                );
                wrong.push((spec.key("policies").index(i), what));
            }
        }
        let targets = spec.key("targets");
        if offer.spec.targets.is_empty() {
            let what = "no target, so the offer selects nothing; write one with a labelSelector";
            wrong.push((targets.clone(), what.to_owned()));
        }
        // An offer that cannot be converted is an error already.
        let converted = convert::offer(offer).map(|o| o.targets);
        for (i, target) in converted.unwrap_or_default().iter().enumerate() {
            let written = offer.spec.targets.get(i);
            let what = match written.is_some_and(|t| t.label_selector.is_none()) {
                true => Some(NO_SELECTOR.to_owned()),
                false => self.target(namespace, target),
            };
            if let Some(what) = what {
                wrong.push((targets.index(i).key("labelSelector"), what));
            }
        }
        wrong
    }

    fn target(&self, namespace: &str, target: &Target) -> Option<String> {
        let selector = &target.selector;
        let pods = self.pods.get(namespace).into_iter().flatten();
        let templates = self.templates.get(namespace).into_iter().flatten();
        let slices = self.slices.get(namespace).into_iter().flatten();
        let (selects, what) = match target.kind {
            TargetKind::Pod => {
                let mut labels = pods.map(|(labels, _)| labels).chain(templates);
                (labels.any(|l| selector.matches(l)), "Pod")
            }
            TargetKind::Endpoint => {
                let mut labels = slices;
                (labels.any(|l| selector.matches(l)), "EndpointSlice")
            }
            // Those are not in manifests.
            TargetKind::Cluster | TargetKind::NetworkService => (true, ""),
        };
        (!selects).then(|| {
            format!(
                "selects no {what} of namespace {namespace}; correct the selector or the \
                 namespace, or add the manifest"
            )
        })
    }

    fn workload(&self, workload: &Workload) -> Vec<super::fields::Wrong> {
        let pods = self.pods.get(workload.namespace_or_default());
        let mut pods = pods.into_iter().flatten();
        if !workload.has_pods || pods.any(|(labels, meta)| workload.owns(labels, meta)) {
            return Vec::new();
        }
        let what = "its pods are not in the manifests, and only pods are placed; add them, for \
                    instance from kubectl get pods -o yaml";
        vec![(FieldPath::from_keys(["spec", "template"]), what.to_owned())]
    }
}

impl Workload {
    fn namespace_or_default(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    fn owns(&self, labels: &Labels, pod: &Metadata) -> bool {
        let mut owners = pod.owner_references.iter().flatten();
        let carries = |l: &BTreeMap<String, String>| {
            !l.is_empty() && l.iter().all(|(k, v)| labels.get(k) == Some(v.as_str()))
        };
        owners.any(|o| o.kind == self.kind && o.name == self.name) || carries(&self.pod_labels)
    }
}
