//! Checks references between objects of several manifests.

use std::collections::{HashMap, HashSet};

use tautline_core::{
    model::{Target, TargetKind},
    selector::Labels,
};

use super::{Finding, Item, Workload, path::FieldPath};
use crate::{ConstraintPolicyOffer, Metadata, convert};

const NO_SELECTOR: &str = "no labelSelector, so the target selects every object of its kind in \
                           the namespace; write one, or {} if you mean all";

/// Finds offers without effect, and DaemonSets that an offer selects but that have no pods; `W`
/// locates each object.
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
    /// The targets of offers that are pods.
    targets: HashMap<&'a str, Vec<Target>>,
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
                    let templates = known.templates.entry(w.namespace()).or_default();
                    templates.push(w.labels());
                }
                Item::Offer(o) => {
                    let targets = known.targets.entry(namespace(&o.metadata)).or_default();
                    let converted = convert::offer(o).map(|o| o.targets).unwrap_or_default();
                    let pods = converted.into_iter();
                    targets.extend(pods.filter(|t| t.kind == TargetKind::Pod));
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
        let (namespace, labels) = (workload.namespace(), workload.labels());
        let mut targets = self.targets.get(namespace).into_iter().flatten();
        let mut pods = self.pods.get(namespace).into_iter().flatten();
        if workload.kind() != "DaemonSet"
            || !targets.any(|t| t.selector.matches(&labels))
            || pods.any(|(_, metadata)| workload.owns(metadata))
        {
            return Vec::new();
        }
        let what = "a DaemonSet has a pod on each node, so its template is not planned; add its \
                    pods, for instance from kubectl get pods -o yaml";
        vec![(workload.template_path(), what.to_owned())]
    }
}
