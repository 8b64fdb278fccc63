use k8s_openapi::jiff::Timestamp;
use kube::core::Selector;

use super::age;
use crate::constraint::{
    Compliance, ConstraintPolicyBinding, ConstraintPolicyOffer, OfferTarget, Reference,
    TargetPeers, ViolationPolicy,
};

/// The enforcement of an offer, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enforcement {
    /// The violation policy: `Ignore`, `Mediate` or `Evict`.
    pub violation_policy: String,
    /// The evaluation period, as the offer writes it.
    pub period: String,
    /// The grace time, as the offer writes it.
    pub grace: String,
}

impl Enforcement {
    /// Returns the enforcement of an offer.
    pub fn of(offer: &ConstraintPolicyOffer) -> Self {
        let or = |value: &Option<String>, default: &str| match value {
            Some(value) if !value.is_empty() => value.clone(),
            _ => default.to_owned(),
        };
        let policy = offer.spec.violation_policy.unwrap_or_default();
        Self {
            violation_policy: format!("{policy:?}"),
            period: or(&offer.spec.period, "1m"),
            grace: or(&offer.spec.grace, "0s"),
        }
    }
}

/// Returns the earliest time of the offer's next eviction, while its cool-down lasts.
pub fn next_eviction(offer: &ConstraintPolicyOffer, now: Timestamp) -> Option<Timestamp> {
    if offer.spec.violation_policy != Some(ViolationPolicy::Evict) {
        return None;
    }
    let last = offer.status.as_ref()?.last_eviction.as_ref()?;
    let next = last.next_time.as_ref()?.0;
    (next > now).then_some(next)
}

/// Returns the time of the eviction that a binding in Violation waits for: "in 73s (TIME), after
/// the offer's cool-down".
pub fn eviction_wait(
    binding: &ConstraintPolicyBinding,
    offer: &ConstraintPolicyOffer,
    now: Timestamp,
) -> Option<String> {
    let in_violation = binding.compliance() == Compliance::Violation;
    let next = next_eviction(offer, now).filter(|_| in_violation)?;
    let (wait, time) = (age::since(now, next), age::second(next));
    Some(format!("in {wait} ({time}), after the offer's cool-down"))
}

/// Returns the targets whose pods an offer evicts: "client; pods that end together as a whole".
pub fn evicts(offer: &ConstraintPolicyOffer) -> Option<String> {
    if offer.spec.violation_policy != Some(ViolationPolicy::Evict) {
        return None;
    }
    let targets = offer.spec.evictable_targets().join(", ");
    let groups = offer.spec.evict_groups.unwrap_or_default();
    let targets = match targets.as_str() {
        "" => "no target, as none is a pod",
        targets => targets,
    };
    Some(if groups {
        format!("{targets}; pods that end together as a whole")
    } else {
        targets.to_owned()
    })
}

/// Returns a target as "Pod/client", with its cluster if it has one, and its namespace if that is
/// not `own`.
pub fn reference(target: &Reference, own: &str) -> String {
    let mut text = String::new();
    if !target.cluster.is_empty() {
        text = format!("{}:", target.cluster);
    }
    text.push_str(&target.kind);
    if !target.namespace.is_empty() && target.namespace != own {
        text.push_str(&format!("/{}", target.namespace));
    }
    format!("{text}/{}", target.name)
}

/// Returns the rule by which an offer's pods form groups: "8 pods with one value of label shard".
pub fn group(offer: &ConstraintPolicyOffer) -> Option<String> {
    let rule = offer.spec.group.as_ref()?;
    Some(match (&rule.by, rule.minimum) {
        (Some(by), Some(minimum)) => format!("{minimum} pods with one value of label {by}"),
        (Some(by), None) => {
            format!("pods with one value of label {by}, as many as their controller states")
        }
        (None, Some(minimum)) => format!("{minimum} pods of one controller"),
        (None, None) => "pods of one controller, as many as it states".to_owned(),
    })
}

/// Returns a target's selector as kubectl writes it, with the cluster if it is another one:
/// "app=db of cluster east".
pub fn selector(target: &OfferTarget) -> String {
    if target.peers == Some(TargetPeers::Group) {
        return "the other pods of the group".into();
    }
    let text: String = match target.label_selector.clone().map(Selector::try_from) {
        None => "none, so every object of its kind".into(),
        Some(Ok(parsed)) if parsed.selects_all() => "everything".into(),
        Some(Ok(parsed)) => parsed.to_string(),
        Some(Err(error)) => return format!("not valid: {error}"),
    };
    match &target.cluster {
        None => text,
        Some(cluster) => format!("{text} of cluster {cluster}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offer(policy: &str, more: serde_json::Value) -> ConstraintPolicyOffer {
        let mut spec = json!({"targets": [{"name": "client", "kind": "Pod"}, {"name": "server",
                                           "kind": "Pod"}], "violationPolicy": policy});
        if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        let offer = json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
            "metadata": {"name": "o", "namespace": "shop"}, "spec": spec,
            "status": {"lastEviction": {
                "pod": "p", "uid": "u", "node": "n", "binding": "b",
                "time": "2026-01-02T11:59:00Z", "nextTime": "2026-01-02T12:01:13Z"}},
        });
        serde_json::from_value(offer).unwrap()
    }

    #[test]
    fn eviction_wait_is_of_bindings_in_violation_during_the_cool_down() {
        let wait = |compliance: &str, policy: &str, now: &str| {
            let binding = json!({
                "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyBinding",
                "metadata": {"name": "b"}, "spec": {"offer": "o", "targets": {}},
                "status": {"compliance": compliance},
            });
            let binding = serde_json::from_value(binding).unwrap();
            eviction_wait(&binding, &offer(policy, json!({})), now.parse().unwrap())
        };
        let noon = "2026-01-02T12:00:00Z";
        assert_eq!(
            wait("Violation", "Evict", noon).unwrap(),
            "in 73s (2026-01-02T12:01:13Z), after the offer's cool-down"
        );
        assert_eq!(wait("Limit", "Evict", noon), None);
        assert_eq!(wait("Violation", "Mediate", noon), None);
        assert_eq!(wait("Violation", "Evict", "2026-01-02T12:01:13Z"), None);
    }

    #[test]
    fn evicts_names_the_targets() {
        let text = |policy, more| evicts(&offer(policy, more));
        assert_eq!(text("Ignore", json!({})), None);
        assert_eq!(text("Evict", json!({})).unwrap(), "client");
        let both = json!({"evict": ["client", "server"], "evictGroups": true});
        assert_eq!(
            text("Evict", both).unwrap(),
            "client, server; pods that end together as a whole"
        );
    }

    #[test]
    fn group_is_one_line() {
        let text = |rule| group(&offer("Ignore", json!({ "group": rule })));
        assert_eq!(group(&offer("Ignore", json!({}))), None);
        let by_label = json!({"by": "shard", "minimum": 8});
        let expected = "8 pods with one value of label shard";
        assert_eq!(text(by_label).unwrap(), expected);
        let expected = "pods with one value of label shard, as many as their controller states";
        assert_eq!(text(json!({"by": "shard"})).unwrap(), expected);
        let expected = "4 pods of one controller";
        assert_eq!(text(json!({"minimum": 4})).unwrap(), expected);
        let expected = "pods of one controller, as many as it states";
        assert_eq!(text(json!({})).unwrap(), expected);
    }

    #[test]
    fn selector_of_peers_is_the_group() {
        let text = |target| selector(&serde_json::from_value(target).unwrap());
        let peers = json!({"kind": "Pod", "peers": "group"});
        assert_eq!(text(peers), "the other pods of the group");
        let all = json!({"kind": "Pod"});
        assert_eq!(text(all), "none, so every object of its kind");
    }

    #[test]
    fn selector_names_another_cluster() {
        let text = |selector| {
            let target = json!({"kind": "Pod", "cluster": "east", "labelSelector": selector});
            super::selector(&serde_json::from_value(target).unwrap())
        };
        let db = json!({"matchLabels": {"app": "db"}});
        assert_eq!(text(db), "app=db of cluster east");
        assert_eq!(text(json!({})), "everything of cluster east");
        let every = "none, so every object of its kind of cluster east";
        assert_eq!(text(json!(null)), every);
        let is = json!({"matchExpressions": [{"key": "a", "operator": "Is"}]});
        assert!(text(is).starts_with("not valid: "));
    }

    #[test]
    fn reference_names_other_namespaces_and_clusters() {
        let of = |cluster: &str, namespace: &str| {
            let target = Reference {
                cluster: cluster.into(),
                namespace: namespace.into(),
                kind: "Pod".into(),
                name: "web".into(),
                ..Reference::default()
            };
            reference(&target, "shop")
        };
        assert_eq!(of("", "shop"), "Pod/web");
        assert_eq!(of("", ""), "Pod/web");
        assert_eq!(of("", "other"), "Pod/other/web");
        assert_eq!(of("east", "other"), "east:Pod/other/web");
    }
}
