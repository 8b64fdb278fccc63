//! Checks references between objects of several manifests.

use std::collections::{BTreeSet, HashMap, HashSet};

use tautline_core::{
    model::{Target, TargetKind},
    selector::Labels,
};

use super::{Finding, Item, Workload, groups::Groups, path::FieldPath};
use crate::{ConstraintPolicy, ConstraintPolicyOffer, Metadata, constraint::PolicyRule, convert};

const NO_SELECTOR: &str = "no labelSelector, so the target selects every object of its kind in \
                           the namespace; write one, or {} if you mean all";

/// Finds policies and offers without effect, repeated rules, groups that are never complete, and
/// DaemonSets that an offer selects but that have no pods. `W` is the location of an object.
pub fn check_references<W: Copy>(objects: &[(W, Item)]) -> Vec<(W, Finding)> {
    let items = objects.iter().map(|(_, item)| item);
    let (known, groups) = (Known::of(items.clone()), Groups::of(items));
    let mut findings = Vec::new();
    for (place, item) in objects {
        let (object, wrong) = match item {
            Item::Policy(policy) => (named("ConstraintPolicy", &policy.metadata), rules(policy)),
            Item::Offer(offer) => (
                named("ConstraintPolicyOffer", &offer.metadata),
                [known.offer(offer), groups.offer(offer)].concat(),
            ),
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

fn named(kind: &str, metadata: &Metadata) -> String {
    super::object_name(
        kind,
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// Finds the problems of a policy that do not depend on other objects.
fn rules(policy: &ConstraintPolicy) -> Vec<super::fields::Wrong> {
    let at = FieldPath::from_keys(["spec", "rules"]);
    let rules = &policy.spec.rules;
    if rules.is_empty() {
        let what = "no rule, so the policy asks nothing, and the API server refuses it; write one";
        return vec![(at, what.to_owned())];
    }
    let mut names = HashSet::new();
    let again = rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| !names.insert(&rule.name));
    again
        .map(|(i, rule)| {
            let what = format!(
                "{} is a rule of this policy already, and the first one alone counts; write \
                 request and limit in one rule",
                rule.name
            );
            (at.index(i).key("name"), what)
        })
        .collect()
}

fn namespace(metadata: &Metadata) -> &str {
    metadata.namespace.as_deref().unwrap_or("default")
}

/// The objects of the manifests, by namespace.
#[derive(Default)]
struct Known<'a> {
    policies: HashMap<(&'a str, &'a str), &'a [PolicyRule]>,
    pods: HashMap<&'a str, Vec<(Labels, &'a Metadata)>>,
    templates: HashMap<&'a str, Vec<Labels>>,
    slices: HashMap<&'a str, Vec<Labels>>,
    /// The targets of offers whose kind is Pod.
    targets: HashMap<&'a str, Vec<Target>>,
}

impl<'a> Known<'a> {
    fn of(items: impl Iterator<Item = &'a Item>) -> Self {
        let mut known = Self::default();
        for item in items {
            match item {
                Item::Policy(p) => {
                    let name = p.metadata.name.as_deref().unwrap_or_default();
                    let key = (namespace(&p.metadata), name);
                    known.policies.insert(key, &p.spec.rules);
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
                    templates.extend(w.labels());
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
        let mut named = HashMap::new();
        for (i, policy) in offer.spec.policies.iter().enumerate() {
            let at = spec.key("policies").index(i);
            let Some(rules) = self.policies.get(&(namespace, policy.as_str())) else {
                let what = format!(
                    "there is no ConstraintPolicy {namespace}/{policy}; correct the name, or add \
                     its manifest"
                );
                wrong.push((at, what));
                continue;
            };
            let rules: BTreeSet<&str> = rules.iter().map(|rule| &*rule.name).collect();
            for rule in rules {
                let first = *named.entry(rule).or_insert(policy);
                if first != policy {
                    let what = format!(
                        "its rule {rule} is also one of policy {first}, which alone counts when a \
                         pod is placed; keep one of them"
                    );
                    wrong.push((at.clone(), what));
                }
            }
        }
        let targets = spec.key("targets");
        if offer.spec.targets.is_empty() {
            let what = "no target, so the offer selects nothing; write one with a labelSelector";
            wrong.push((targets.clone(), what.to_owned()));
        }
        // An offer that cannot be converted is reported as an error elsewhere.
        let Ok(converted) = convert::offer(offer) else {
            return wrong;
        };
        let mut local = converted.targets.iter();
        for (i, written) in offer.spec.targets.iter().enumerate() {
            // Manifests have no objects of other clusters.
            let target = match written.cluster {
                None => local.next(),
                Some(_) => None,
            };
            if written.peers.is_some() {
                continue;
            }
            let what = if written.label_selector.is_none() {
                Some(NO_SELECTOR.to_owned())
            } else {
                target.and_then(|target| self.target(namespace, target))
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
            // Objects of these kinds are not in manifests.
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
        let namespace = workload.namespace();
        let targets = || self.targets.get(namespace).into_iter().flatten();
        let mut labels = workload.labels();
        let mut pods = self.pods.get(namespace).into_iter().flatten();
        if !workload.is_per_node()
            || !labels.any(|l| targets().any(|t| t.selector.matches(&l)))
            || pods.any(|(_, metadata)| workload.owns(metadata))
        {
            return Vec::new();
        }
        let what = "no node of the manifests admits a pod of this template, so it has no pods; add \
                    nodes, for instance from kubectl get nodes -o yaml";
        let templates = workload.templates();
        templates
            .map(|(at, _)| (at.clone(), what.to_owned()))
            .collect()
    }
}
