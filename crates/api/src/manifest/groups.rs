//! Finds groups that are never complete, or not made of the pods that the offer's author means.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1;
use tautline_core::{
    group::{GroupKey, Membership, SIZE_ANNOTATIONS},
    model::{GroupRule, Offer},
    selector::Labels,
};

use super::{FieldPath, Item, Workload, fields::Wrong, object_name};
use crate::{ConstraintPolicyOffer, convert};

/// The maximum number of objects that a finding names.
const MAX_NAMES: usize = 3;

/// The offers whose pods form groups, and the pods of the manifests.
#[derive(Default)]
pub(super) struct Groups {
    /// The offers, in the order in which they count: sorted by namespace and name.
    offers: Vec<Offer>,
    pods: Vec<Pods>,
}

/// Pods of one template of a workload, or one other pod.
struct Pods {
    /// The workload or the pod, as `Kind namespace/name`.
    object: String,
    namespace: String,
    labels: Labels,
    owner: u64,
    count: usize,
    /// True if a controller or an annotation states the number of the group's pods.
    is_stated: bool,
}

impl Groups {
    /// Reads the offers and, if one of them makes groups, the pods.
    pub(super) fn of<'a>(items: impl Iterator<Item = &'a Item> + Clone) -> Self {
        let offers = items.clone().filter_map(|item| match item {
            Item::Offer(offer) => convert::offer(offer).ok(),
            _ => None,
        });
        let mut offers: Vec<Offer> = offers.filter(|offer| offer.group.is_some()).collect();
        if offers.is_empty() {
            return Self::default();
        }
        offers.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let mut workloads = BTreeMap::<&str, Vec<&Workload>>::new();
        let mut pods = Vec::new();
        for item in items.clone() {
            if let Item::Workload(workload) = item
                && workload.replicas() > 0
            {
                let namespace = workload.namespace();
                workloads.entry(namespace).or_default().push(workload);
                pods.extend(workload.running().map(|(labels, count)| Pods {
                    object: workload.to_string(),
                    namespace: namespace.to_owned(),
                    labels,
                    owner: convert::owner_hash(&workload.to_string()),
                    count,
                    is_stated: true,
                }));
            }
        }
        let others = items.filter_map(|item| match item {
            Item::Pod(pod) => Pods::one(pod, &workloads),
            _ => None,
        });
        pods.extend(others);
        Self { offers, pods }
    }

    /// Returns the problems of an offer's groups.
    pub(super) fn offer(&self, offer: &ConstraintPolicyOffer) -> Vec<Wrong> {
        let namespace = offer.metadata.namespace.as_deref().unwrap_or("default");
        let name = offer.metadata.name.as_deref().unwrap_or_default();
        let mut offers = self.offers.iter();
        let offer = offers.find(|o| *o.namespace == *namespace && *o.name == *name);
        let Some((offer, rule)) = offer.and_then(|o| Some((o, o.group.as_ref()?))) else {
            return Vec::new();
        };
        let (mut groups, mut unnamed) = (BTreeMap::<GroupKey, Vec<&Pods>>::new(), Vec::new());
        for pods in self.pods.iter().filter(|pods| pods.namespace == namespace) {
            match pods.membership(offer) {
                Some(Membership::Member(key, _)) => groups.entry(key).or_default().push(pods),
                Some(Membership::Unnamed(..)) => unnamed.push(pods),
                None => {}
            }
        }
        let at = FieldPath::from_keys(["spec", "group"]);
        let wrong = [
            ("minimum", size(rule, &groups)),
            ("by", without_label(rule, &groups, &unnamed)),
            ("by", self.other_namespace(offer, rule, &groups)),
            ("", self.other_offer(offer)),
        ];
        let wrong = wrong.into_iter().filter_map(|(field, what)| {
            let at = match field {
                "" => at.clone(),
                field => at.key(field),
            };
            Some((at, what?))
        });
        wrong.collect()
    }

    /// Finds pods of another namespace that have the label of a group, and are in no group there.
    fn other_namespace(
        &self,
        offer: &Offer,
        rule: &GroupRule,
        groups: &BTreeMap<GroupKey, Vec<&Pods>>,
    ) -> Option<String> {
        let by = rule.by.as_ref()?;
        let is_apart = |pods: &&Pods| match pods.membership(offer) {
            Some(Membership::Member(key, _)) => {
                *pods.namespace != *offer.namespace
                    && groups.contains_key(&key)
                    && self.offers_of(pods).next().is_none()
            }
            _ => false,
        };
        let apart: Vec<&Pods> = self.pods.iter().filter(is_apart).collect();
        let (others, namespace) = (names(&apart), &offer.namespace);
        (!apart.is_empty()).then(|| {
            format!(
                "label {by} of {others} names a group of namespace {namespace}, and a group is in \
                 one namespace; move the pods to {namespace}, or write another value"
            )
        })
    }

    /// Finds pods that are in a group of another offer, which counts before `offer`.
    fn other_offer(&self, offer: &Offer) -> Option<String> {
        let own = self
            .pods
            .iter()
            .filter(|pods| pods.namespace == *offer.namespace && pods.membership(offer).is_some());
        let first = |pods: &Pods| self.offers_of(pods).next().map(|o| Arc::clone(&o.name));
        let shared: Vec<_> = own
            .filter_map(|pods| Some((pods, first(pods).filter(|name| *name != offer.name)?)))
            .collect();
        let (_, other) = shared.first()?;
        let pods: Vec<&Pods> = shared.iter().map(|(pods, _)| *pods).collect();
        Some(format!(
            "makes no group of {}, which offer {other} selects for its groups; let one offer with \
             group select them",
            names(&pods)
        ))
    }

    /// Returns the offers of which the pods are members, in the order in which they count.
    fn offers_of<'a>(&'a self, pods: &'a Pods) -> impl Iterator<Item = &'a Offer> {
        let offers = self.offers.iter();
        offers.filter(|o| *o.namespace == *pods.namespace && pods.membership(o).is_some())
    }
}

impl Pods {
    /// Returns a pod, unless it has ended or is counted with one of the workloads.
    fn one(pod: &v1::Pod, workloads: &BTreeMap<&str, Vec<&Workload>>) -> Option<Self> {
        let metadata = &pod.metadata;
        let namespace = super::workload::namespace_of(metadata);
        let mut known = workloads.get(namespace).into_iter().flatten();
        if known.any(|workload| workload.made(metadata) || workload.owns(metadata)) {
            return None;
        }
        let converted = convert::pod(pod);
        let annotations = metadata.annotations.as_ref();
        let is_stated = converted.owner != 0
            || annotations.is_some_and(|all| SIZE_ANNOTATIONS.iter().any(|a| all.contains_key(*a)));
        let name = metadata.name.as_deref().unwrap_or_default();
        (!converted.finished).then(|| Self {
            object: object_name("Pod", namespace, name),
            namespace: namespace.to_owned(),
            labels: converted.labels,
            owner: converted.owner,
            count: 1,
            is_stated,
        })
    }

    fn membership(&self, offer: &Offer) -> Option<Membership> {
        Membership::by(offer, &self.labels, self.owner)
    }
}

/// Finds a group that has fewer pods than the minimum, or one pod, or pods of which no controller
/// states the number.
fn size(rule: &GroupRule, groups: &BTreeMap<GroupKey, Vec<&Pods>>) -> Option<String> {
    groups.values().find_map(|pods| {
        let count = pods
            .iter()
            .map(|pods| pods.count)
            .fold(0, usize::saturating_add);
        let (has, names) = (has(pods, count), names(pods));
        match rule.minimum {
            Some(minimum) if count < minimum as usize => Some(if count == 1 {
                format!(
                    "is {minimum}, and {names} {has}, which needs no group; raise its replicas, or \
                     let no target select it"
                )
            } else {
                format!(
                    "is {minimum}, and {names} {has}, so the group is never complete; write \
                     {count}, or raise the replicas"
                )
            }),
            None if !pods.iter().any(|pods| pods.is_stated) => Some(format!(
                "is not set, and no controller of {names} states a number; write it"
            )),
            None if count == 1 => Some(format!(
                "is 1 by the replicas of {names}, and one pod needs no group; raise them, or let \
                 no target select it"
            )),
            _ => None,
        }
    })
}

/// Finds pods without the label that names groups.
fn without_label(
    rule: &GroupRule,
    groups: &BTreeMap<GroupKey, Vec<&Pods>>,
    unnamed: &[&Pods],
) -> Option<String> {
    let by = rule.by.as_ref().filter(|_| !unnamed.is_empty())?;
    let some = if groups.is_empty() { "no" } else { "not every" };
    Some(format!(
        "{some} pod of the target has label {by}, and those without it are refused \
         (group/NoLabel); add it to {}",
        names(unnamed)
    ))
}

/// Returns "has 1 pod" for the pods of one object, or "have 6 pods".
fn has(pods: &[&Pods], count: usize) -> String {
    let mut objects = pods.iter().map(|pods| &pods.object);
    let first = objects.next();
    let verb = if objects.all(|object| Some(object) == first) {
        "has"
    } else {
        "have"
    };
    let noun = if count == 1 { "pod" } else { "pods" };
    format!("{verb} {count} {noun}")
}

/// Returns the names of the first objects: "Job shop/a, Job shop/b and 2 more".
fn names(pods: &[&Pods]) -> String {
    let mut names: Vec<&str> = pods.iter().map(|pods| &*pods.object).collect();
    names.dedup();
    let shown = names[..names.len().min(MAX_NAMES)].join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
