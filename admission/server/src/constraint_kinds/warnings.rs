//! Warns about objects that are valid but doubtful.

use std::collections::BTreeSet;

use tautline_api::constraint::{ConstraintPolicyOfferSpec, OfferTarget, ViolationPolicy};
use tautline_core::{
    Snapshot,
    group::{Membership, stated_size},
    model::{Offer, Pod, Policy, Prefer, Rule, TargetKind},
    providers,
    trust::TrustedNamespaces,
};

pub(crate) fn policy(
    policy: &Policy,
    snapshot: &Snapshot,
    trusted: &TrustedNamespaces,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut names = BTreeSet::new();
    for (i, rule) in policy.rules.iter().enumerate() {
        warnings.extend(
            ineffective_preference(rule).map(|why| {
                format!("spec.rules[{i}].prefer: has no effect: {why}; remove the field")
            }),
        );
        if !names.insert(&*rule.name) {
            let name = &rule.name;
            warnings.push(format!(
                "spec.rules[{i}]: {name} is a duplicate; the first rule of this name counts"
            ));
        }
    }
    warnings.extend(
        names
            .into_iter()
            .filter_map(|rule| unprovided(rule, &policy.namespace, snapshot, trusted)),
    );
    warnings
}

/// Returns the reason why a rule's preference has no effect. The server does not ask providers for
/// this check; `tautline plan --strict` does.
fn ineffective_preference(rule: &Rule) -> Option<&'static str> {
    match (&*rule.name, rule.prefer) {
        ("gpu-slice", Some(Prefer::WithinRequest)) => {
            Some("each usable node has all that a gpu-slice rule requests")
        }
        (_, Some(Prefer::WithinRequest)) if rule.request.is_empty() => {
            Some("the rule has no request")
        }
        _ => None,
    }
}

/// Warns about a doubtful offer, which has been converted from `spec`.
pub(crate) fn offer(
    spec: &ConstraintPolicyOfferSpec,
    offer: &Offer,
    snapshot: &Snapshot,
    trusted: &TrustedNamespaces,
) -> Vec<String> {
    let namespace = &*offer.namespace;
    let mut warnings = Vec::new();
    if offer.policies.is_empty() {
        warnings.push("spec.policies: is empty; the offer has no effect".to_owned());
    }
    let mut rules = BTreeSet::new();
    for (i, name) in offer.policies.iter().enumerate() {
        match snapshot.policy(namespace, name) {
            Some(policy) => rules.extend(policy.rules.iter().map(|r| &*r.name)),
            None => warnings.push(format!(
                "spec.policies[{i}]: ConstraintPolicy {name} does not exist in {namespace} yet"
            )),
        }
    }
    warnings.extend(
        rules
            .into_iter()
            .filter_map(|rule| unprovided(rule, namespace, snapshot, trusted)),
    );
    if !offer.targets.iter().any(|t| t.kind == TargetKind::Pod) {
        warnings.push(if offer.remote_targets.is_empty() {
            "spec.targets: no target has the kind Pod; the offer governs no pod".to_owned()
        } else {
            "spec.targets: no target of this cluster has the kind Pod; the offer governs no pod"
                .to_owned()
        });
    }
    // Pods of other clusters are not known here.
    let positions = spec.local_targets().map(|(position, _)| position);
    for (position, (i, target)) in positions.zip(offer.targets.iter().enumerate()) {
        let at = format!("spec.targets[{position}] ({})", target.name);
        // Peers are the pods of another target.
        let are_peers = offer
            .group
            .as_ref()
            .is_some_and(|group| group.peers == Some(i));
        let is_listed = matches!(target.kind, TargetKind::Pod | TargetKind::Endpoint);
        if is_listed && !are_peers && !snapshot.selects_any(namespace, target) {
            warnings.push(format!("{at}: selects nothing in {namespace} now"));
        }
        if target.api_version.is_empty()
            && !matches!(target.kind, TargetKind::Pod | TargetKind::Endpoint)
        {
            warnings.push(format!("{at}: needs its apiVersion to be found"));
        }
    }
    warnings
}

/// Warns about pods that the offer's groups leave out, and about a minimum that no group reaches. It
/// examines all pods.
pub(crate) fn groups(offer: &Offer, snapshot: &Snapshot) -> Vec<String> {
    let Some(rule) = &offer.group else {
        return Vec::new();
    };
    let namespace = &*offer.namespace;
    let membership = |of: &Offer, pod: &Pod| Membership::by(of, &pod.labels, pod.owner);
    let pods = snapshot.pods().filter(|pod| {
        *pod.namespace == *namespace && !pod.finished && membership(offer, pod).is_some()
    });
    let mut pods: Vec<&Pod> = pods.map(AsRef::as_ref).collect();
    pods.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let mut warnings = Vec::new();
    let lacks = |pod: &&&Pod| {
        rule.by
            .as_ref()
            .is_some_and(|by| pod.labels.get(by).is_none())
    };
    let lacking = pods.iter().filter(lacks).count();
    if let (Some(by), Some(first)) = (&rule.by, pods.iter().find(lacks)) {
        warnings.push(format!(
            "spec.group.by: {lacking} of {} pods of the target, such as {}, lack label {by} and are \
             refused (group/NoLabel); add it",
            pods.len(),
            first.name
        ));
    }
    let stated = pods
        .iter()
        .filter_map(|pod| Some((&pod.name, stated_size(pod)?)));
    let small = stated.filter_map(|(pod, size)| Some((pod, size, rule.minimum?)));
    let mut small = small.filter(|(_, size, minimum)| size < minimum);
    if let Some((pod, size, minimum)) = small.next() {
        warnings.push(format!(
            "spec.group.minimum: is {minimum}, and the group of pod {pod} has {size} by its \
             annotation, so it is never complete; write {size}"
        ));
    }
    let others = snapshot
        .offers_in(namespace)
        .iter()
        .map(|entry| &entry.offer);
    let mut others = others.filter(|other| other.name != offer.name);
    let shared = others.find_map(|other| {
        let mut pods = pods.iter().filter(|pod| membership(other, pod).is_some());
        Some((&other.name, &pods.next()?.name))
    });
    if let Some((other, pod)) = shared {
        let first = other.min(&offer.name);
        warnings.push(format!(
            "spec.group: ConstraintPolicyOffer {other} makes groups of pod {pod} too, and {first} \
             alone counts; let one offer with group select it"
        ));
    }
    warnings
}

/// Warns about targets that may select more than their author intends.
pub(crate) fn targets(targets: &[OfferTarget]) -> impl Iterator<Item = String> {
    let all = targets.iter().enumerate();
    let all = all.filter(|(_, t)| t.label_selector.is_none() && t.peers.is_none());
    all.map(|(i, target)| {
        let (name, kind) = (target.name.as_deref().unwrap_or("default"), target.kind);
        format!(
            "spec.targets[{i}] ({name}): selects every {kind:?} of the namespace without a \
             labelSelector; write {{}} if you mean that"
        )
    })
}

/// Warns about eviction fields of an offer that does not evict pods.
pub(crate) fn evictions(spec: &ConstraintPolicyOfferSpec) -> impl Iterator<Item = String> {
    let evicts = spec.violation_policy == Some(ViolationPolicy::Evict);
    let fields = [
        ("evict", spec.evict.is_some()),
        ("evictGroups", spec.evict_groups.is_some()),
    ];
    let idle = fields.into_iter().filter(move |(_, set)| *set && !evicts);
    idle.map(|(field, _)| format!("spec.{field}: has no effect without violationPolicy: Evict"))
}

pub(crate) fn binding(offer: &str, namespace: &str, snapshot: &Snapshot) -> Vec<String> {
    match snapshot.offer(namespace, offer) {
        Some(_) => Vec::new(),
        None => vec![format!(
            "spec.offer: ConstraintPolicyOffer {offer} does not exist in {namespace}"
        )],
    }
}

fn unprovided(
    rule: &str,
    namespace: &str,
    snapshot: &Snapshot,
    trusted: &TrustedNamespaces,
) -> Option<String> {
    let none = providers::choose_provider(snapshot, rule, namespace, trusted).is_none();
    none.then(|| {
        format!(
            "rule {rule} has no provider yet: label a Service of {namespace}, or of a trusted \
             namespace ({trusted}), constraint.ciena.com/constraint-{rule}: enabled"
        )
    })
}
