//! Converts an offer.

use std::{sync::Arc, time::Duration};

use tautline_core::{
    dns, duration,
    group::MAX_MEMBERS,
    model::{GroupRule, Offer, Target, TargetKind},
    reference,
    remote::RemoteTarget,
    selector::Selector,
    text,
};

use super::{ConvertError, bad, created_unix, name, namespace, selector};
use crate::constraint::{ConstraintPolicyOffer, ConstraintPolicyOfferSpec, OfferTarget};

/// The default period of an offer.
pub const DEFAULT_PERIOD: Duration = Duration::from_secs(60);

const MAX_NAME_CHARS: usize = 253;

/// Converts an offer.
///
/// # Errors
/// A duration, selector, API version or cluster is malformed, two targets have one name, all are of
/// other clusters, or `spec.evict` names no target or one that is not a pod of this cluster.
pub fn offer(offer: &ConstraintPolicyOffer) -> Result<Offer, ConvertError> {
    let spec = &offer.spec;
    let duration = |field: &str, text: &Option<String>, default| match text {
        None => Ok(default),
        Some(text) => duration::parse(text).map_err(|e| bad(format!("spec.{field}"), e)),
    };
    let (mut targets, mut remote_targets) = (Vec::new(), Vec::new());
    for (i, t) in spec.targets.iter().enumerate() {
        let field = format!("spec.targets[{i}]");
        let name: Arc<str> = t.role().into();
        if spec.targets[..i].iter().any(|other| *other.role() == *name) {
            let what = format!("{name:?} is taken; give every target a name of its own");
            return Err(bad(format!("{field}.name"), what));
        }
        let api_version = t.api_version.clone().unwrap_or_default();
        if !api_version.is_empty() {
            let wrong = |e| bad(format!("{field}.apiVersion"), e);
            reference::check_api_version(&api_version).map_err(wrong)?;
        }
        // Without a selector, Turnbuckle selects every object of the kind.
        let selector = match &t.label_selector {
            Some(s) => selector(&format!("{field}.labelSelector"), s)?,
            None => Selector::default(),
        };
        if let Some(cluster) = &t.cluster {
            check_cluster(&field, t, cluster)?;
            remote_targets.push(RemoteTarget {
                name,
                cluster: cluster.as_str().into(),
                selector,
            });
        } else {
            targets.push(Target {
                name,
                kind: t.kind,
                api_version,
                selector,
            });
        }
    }
    if targets.is_empty() && !remote_targets.is_empty() {
        let what =
            "are all of other clusters; add one without cluster, for the pods that are placed";
        return Err(bad("spec.targets", what));
    }
    check_evict(spec)?;
    let group = group(spec, &mut targets)?;
    Ok(Offer {
        namespace: namespace(&offer.metadata),
        name: name(&offer.metadata),
        uid: offer.metadata.uid.as_deref().unwrap_or_default().into(),
        generation: offer.metadata.generation.unwrap_or_default(),
        created_unix: created_unix(&offer.metadata),
        terminating: offer.metadata.deletion_timestamp.is_some(),
        targets,
        remote_targets,
        policies: spec.policies.iter().map(|p| policy_name(p)).collect(),
        period: duration("period", &spec.period, DEFAULT_PERIOD)?,
        grace: duration("grace", &spec.grace, Duration::ZERO)?,
        violation_policy: spec.violation_policy.unwrap_or_default(),
        evict: spec
            .evictable_targets()
            .into_iter()
            .map(Into::into)
            .collect(),
        evict_groups: spec.evict_groups.unwrap_or_default(),
        group,
        provider_unavailable: spec.provider_unavailable,
    })
}

/// Checks a target that selects objects of another cluster.
fn check_cluster(field: &str, target: &OfferTarget, cluster: &str) -> Result<(), ConvertError> {
    let cluster_field = format!("{field}.cluster");
    if !dns::is_label(cluster) {
        let what = format!(
            "{cluster:?} is no name of a cluster; write 1 to 63 lower-case letters, digits and \
             hyphens, a letter or digit first and last"
        );
        return Err(bad(cluster_field, what));
    }
    if target.kind != TargetKind::Pod {
        let what = format!(
            "is {cluster}, and the target's kind is {:?}; only pods of other clusters are \
             selected, so use kind: Pod, or leave out cluster",
            target.kind
        );
        return Err(bad(cluster_field, what));
    }
    if target.peers.is_some() {
        let what = format!(
            "is {cluster}, and peers: group selects pods of this cluster; leave out cluster"
        );
        return Err(bad(cluster_field, what));
    }
    match target.api_version.as_deref() {
        None | Some("" | "v1") => Ok(()),
        Some(other) => {
            let what = format!("is {other}, and that of pods is v1; write it, or leave it out");
            Err(bad(format!("{field}.apiVersion"), what))
        }
    }
}

/// Reads the rule of groups, and gives the target with `peers: group` the selector of the target
/// whose pods form groups. `targets` are those of this cluster.
fn group(
    spec: &ConstraintPolicyOfferSpec,
    targets: &mut [Target],
) -> Result<Option<GroupRule>, ConvertError> {
    // Errors name positions in the spec; the rule has positions in `targets`.
    let local: Vec<(usize, &OfferTarget)> = spec.local_targets().collect();
    let mut with_peers = (0..).zip(&local).filter(|(_, (_, t))| t.peers.is_some());
    let (peers, second) = (with_peers.next(), with_peers.next());
    if let Some((_, (i, _))) = second {
        let what = "is the second target with peers; one has all pods of the group";
        return Err(bad(format!("spec.targets[{i}].peers"), what));
    }
    let Some(rule) = &spec.group else {
        return match peers {
            None => Ok(None),
            Some((_, (i, _))) => {
                let what = "is group, and the offer has no group; add spec.group";
                Err(bad(format!("spec.targets[{i}].peers"), what))
            }
        };
    };
    let forms_groups = |t: &OfferTarget| t.kind == TargetKind::Pod && t.peers.is_none();
    let Some(of) = local.iter().position(|(_, t)| forms_groups(t)) else {
        let what = "needs a target of kind Pod with a selector, whose pods form groups";
        return Err(bad("spec.group", what));
    };
    if let Some((at, (i, target))) = peers {
        let what = match (target.kind, &target.label_selector) {
            (TargetKind::Pod, None) => None,
            (TargetKind::Pod, Some(_)) => Some(
                "is group, so the target selects the pods of the group; leave out labelSelector",
            ),
            (..) => Some("is group, which are pods; use kind: Pod"),
        };
        if let Some(what) = what {
            return Err(bad(format!("spec.targets[{i}].peers"), what));
        }
        targets[at].selector = targets[of].selector.clone();
    }
    if let Some(minimum @ (0 | 1)) = rule.minimum {
        let what =
            format!("is {minimum}: one pod needs no group; write 2 or more, or leave out group");
        return Err(bad("spec.group.minimum", what));
    }
    if let Some(minimum) = rule.minimum.filter(|n| *n as usize > MAX_MEMBERS) {
        let what = format!("is {minimum}; at most {MAX_MEMBERS} pods are placed together");
        return Err(bad("spec.group.minimum", what));
    }
    Ok(Some(GroupRule {
        by: rule.by.as_deref().map(Into::into),
        minimum: rule.minimum,
        of,
        peers: peers.map(|(at, _)| at),
    }))
}

/// Checks that the targets of `spec.evict` are pods of the offer, of this cluster.
fn check_evict(spec: &ConstraintPolicyOfferSpec) -> Result<(), ConvertError> {
    let Some(names) = &spec.evict else {
        return Ok(());
    };
    if names.is_empty() {
        let what = "is empty; name a target, or leave it out";
        return Err(bad("spec.evict", what));
    }
    for (i, name) in names.iter().enumerate() {
        let target = spec.targets.iter().find(|t| t.role() == name);
        let what = match target.map(|t| (t.kind, &t.cluster)) {
            Some((TargetKind::Pod, None)) => continue,
            Some((_, Some(cluster))) => format!(
                "target {name:?} is of cluster {cluster}; only pods of this cluster are evicted"
            ),
            Some((kind, None)) => format!("target {name:?} is a {kind:?}; only pods are evicted"),
            None => {
                let all: Vec<&str> = spec.targets.iter().map(OfferTarget::role).collect();
                format!("{name:?} is no target; the targets are {}", all.join(", "))
            }
        };
        return Err(bad(format!("spec.evict[{i}]"), what));
    }
    Ok(())
}

/// Sanitizes a policy's name, because reasons and events show it even if there is no such policy.
fn policy_name(name: &str) -> Arc<str> {
    text::sanitize(name, MAX_NAME_CHARS).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_rejects_api_versions_unsafe_in_urls() {
        let convert = |api_version: &str| {
            let json = serde_json::json!({
                "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
                "metadata": {"name": "o", "namespace": "shop"},
                "spec": {"targets": [{"kind": "Pod"}, {"name": "c", "kind": "Cluster", "apiVersion": api_version}]},
            });
            offer(&serde_json::from_value(json).unwrap())
        };
        for good in ["", "v1", "fleet.example.com/v1"] {
            assert_eq!(convert(good).unwrap().targets[1].api_version, good);
        }
        let error = convert("v1/namespaces/kube-system")
            .unwrap_err()
            .to_string();
        let expected = "spec.targets[1].apiVersion: \"v1/namespaces/kube-system\" is no API version; \
                        write VERSION or GROUP/VERSION";
        assert!(error.starts_with(expected), "{error}");
        assert!(convert("../api/v1").is_err());
    }

    fn offer_of(spec: serde_json::Value) -> Result<Offer, String> {
        let json = serde_json::json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
            "metadata": {"name": "o", "namespace": "shop"}, "spec": spec,
        });
        offer(&serde_json::from_value(json).unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn offer_evicts_pods_of_its_first_pod_target_unless_it_names_others() {
        let evicts = |evict: serde_json::Value| {
            let mut spec = serde_json::json!({"targets": [
                {"name": "site", "kind": "Cluster", "apiVersion": "fleet.example.com/v1"},
                {"name": "client", "kind": "Pod"}, {"kind": "Pod"}]});
            spec["evict"] = evict;
            offer_of(spec).map(|offer| offer.evict)
        };
        assert_eq!(evicts(serde_json::Value::Null).unwrap(), ["client".into()]);
        let both = serde_json::json!(["default", "client"]);
        assert_eq!(evicts(both).unwrap(), ["default".into(), "client".into()]);
        for (evict, text) in [
            (
                serde_json::json!([]),
                "spec.evict: is empty; name a target, or leave it out",
            ),
            (
                serde_json::json!(["client", "server"]),
                "spec.evict[1]: \"server\" is no target; the targets are site, client, default",
            ),
            (
                serde_json::json!(["site"]),
                "spec.evict[0]: target \"site\" is a Cluster; only pods are evicted",
            ),
        ] {
            assert_eq!(evicts(evict).unwrap_err(), text);
        }
    }

    #[test]
    fn offer_evicts_groups_only_if_it_says_so() {
        let groups = |spec| offer_of(spec).unwrap().evict_groups;
        let targets = serde_json::json!([{"kind": "Pod"}]);
        assert!(!groups(serde_json::json!({"targets": targets})));
        assert!(groups(
            serde_json::json!({"targets": targets, "evictGroups": true})
        ));
    }

    #[test]
    fn offer_separates_targets_of_other_clusters() {
        let offer = offer_of(serde_json::json!({"evict": ["web"], "targets": [
            {"name": "db", "kind": "Pod", "apiVersion": "v1", "cluster": "east",
             "labelSelector": {"matchLabels": {"app": "db"}}},
            {"name": "web", "kind": "Pod"},
            {"name": "cache", "kind": "Pod", "cluster": "0-west"}]}));
        let offer = offer.unwrap();
        let names: Vec<&str> = offer.targets.iter().map(|t| &*t.name).collect();
        assert_eq!(names, ["web"]);
        let remote = |i: usize| {
            let target = &offer.remote_targets[i];
            (&*target.name, &*target.cluster, target.selector.clone())
        };
        let db = Selector {
            match_labels: vec![("app".into(), "db".into())],
            ..Selector::default()
        };
        assert_eq!(remote(0), ("db", "east", db));
        assert_eq!(remote(1), ("cache", "0-west", Selector::default()));
        assert_eq!(offer.remote_targets.len(), 2);
        assert_eq!(offer.evict, ["web".into()]);
    }

    #[test]
    fn offer_evicts_pods_of_this_cluster_by_default() {
        let offer = offer_of(serde_json::json!({"targets": [
            {"name": "db", "kind": "Pod", "cluster": "east"}, {"name": "web", "kind": "Pod"}]}));
        assert_eq!(offer.unwrap().evict, ["web".into()]);
    }

    #[test]
    fn offer_refuses_targets_of_other_clusters_that_it_cannot_select() {
        let web = serde_json::json!({"name": "web", "kind": "Pod"});
        let of = |target: serde_json::Value, more: serde_json::Value| {
            let mut spec = serde_json::json!({"targets": [web, target]});
            let fields = more.as_object().unwrap().clone();
            spec.as_object_mut().unwrap().extend(fields);
            offer_of(spec).unwrap_err()
        };
        let none = || serde_json::json!({});
        let east = |more: serde_json::Value| {
            let mut target = serde_json::json!({"name": "db", "kind": "Pod", "cluster": "east"});
            let fields = more.as_object().unwrap().clone();
            target.as_object_mut().unwrap().extend(fields);
            target
        };
        let at = "spec.targets[1]";
        for name in ["", "East", "a.b", "-a", "a/b"] {
            let error = of(east(serde_json::json!({"cluster": name})), none());
            let text = format!("{at}.cluster: {name:?} is no name of a cluster; write 1 to 63");
            assert!(error.starts_with(&text), "{error}");
        }
        assert_eq!(
            of(east(serde_json::json!({"kind": "Endpoint"})), none()),
            "spec.targets[1].cluster: is east, and the target's kind is Endpoint; only pods of \
             other clusters are selected, so use kind: Pod, or leave out cluster"
        );
        let group = serde_json::json!({"group": {}});
        assert_eq!(
            of(east(serde_json::json!({"peers": "group"})), group),
            "spec.targets[1].cluster: is east, and peers: group selects pods of this cluster; \
             leave out cluster"
        );
        assert_eq!(
            of(east(serde_json::json!({"apiVersion": "apps/v1"})), none()),
            "spec.targets[1].apiVersion: is apps/v1, and that of pods is v1; write it, or leave it \
             out"
        );
        assert_eq!(
            of(east(serde_json::json!({"name": "web"})), none()),
            "spec.targets[1].name: \"web\" is taken; give every target a name of its own"
        );
        assert_eq!(
            of(east(none()), serde_json::json!({"evict": ["web", "db"]})),
            "spec.evict[1]: target \"db\" is of cluster east; only pods of this cluster are evicted"
        );
        let alone = serde_json::json!({"targets": [east(none())]});
        assert_eq!(
            offer_of(alone).unwrap_err(),
            "spec.targets: are all of other clusters; add one without cluster, for the pods that \
             are placed"
        );
    }

    #[test]
    fn group_has_positions_among_the_targets_of_this_cluster() {
        let db = serde_json::json!({"name": "db", "kind": "Pod", "cluster": "east"});
        let site = serde_json::json!({"name": "site", "kind": "Cluster"});
        let app = serde_json::json!({"matchLabels": {"app": "web"}});
        let web = serde_json::json!({"name": "web", "kind": "Pod", "labelSelector": app});
        let peers = serde_json::json!({"name": "peers", "kind": "Pod", "peers": "group"});
        let mut spec = serde_json::json!({"group": {}, "targets": [db, site, web, db, peers]});
        spec["targets"][3]["name"] = "cache".into();
        let offer = offer_of(spec.clone()).unwrap();
        let rule = offer.group.as_ref().unwrap();
        assert_eq!((rule.of, rule.peers), (1, Some(2)));
        assert_eq!(&*offer.targets[rule.of].name, "web");
        assert_eq!(offer.targets[2].selector, offer.targets[rule.of].selector);
        assert_eq!(offer.targets[2].selector.match_labels.len(), 1);

        let faulty = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut spec = spec.clone();
            change(&mut spec);
            offer_of(spec).unwrap_err()
        };
        let error = faulty(&|spec| spec["targets"][4]["labelSelector"] = app.clone());
        assert!(
            error.starts_with("spec.targets[4].peers: is group, so"),
            "{error}"
        );
        let error = faulty(&|spec| spec["group"] = serde_json::Value::Null);
        assert!(
            error.starts_with("spec.targets[4].peers: is group, and"),
            "{error}"
        );
        let error = faulty(&|spec| {
            spec["targets"][2] = serde_json::json!({"kind": "Pod", "peers": "group"});
        });
        assert!(
            error.starts_with("spec.targets[4].peers: is the second"),
            "{error}"
        );
        let no_pods = serde_json::json!({"group": {}, "targets": [db, site]});
        let error = offer_of(no_pods).unwrap_err();
        assert!(error.starts_with("spec.group: needs a target"), "{error}");
    }

    #[test]
    fn convert_sanitizes_policy_names() {
        assert_eq!(&*policy_name("near"), "near");
        assert_eq!(&*policy_name("near\u{1b}[2J\nx"), "near\u{fffd}[2J x");
    }
}
