//! Detects likely mistakes in kinds and API versions.

use tautline_core::names::{API_VERSION, GROUP};

/// The kinds whose API version is checked, with the right API version.
const KNOWN: [(&str, &str); 15] = [
    ("ConstraintPolicy", API_VERSION),
    ("ConstraintPolicyOffer", API_VERSION),
    ("ConstraintPolicyBinding", API_VERSION),
    ("CostProvider", "constraint.ciena.com/v1"),
    ("RuleProvider", "constraint.ciena.com/v1"),
    ("Pod", "v1"),
    ("Node", "v1"),
    ("Service", "v1"),
    ("ConfigMap", "v1"),
    ("EndpointSlice", "discovery.k8s.io/v1"),
    ("Deployment", "apps/v1"),
    ("StatefulSet", "apps/v1"),
    ("DaemonSet", "apps/v1"),
    ("ReplicaSet", "apps/v1"),
    ("Job", "batch/v1"),
];

/// The other kinds of the API groups whose names have no dot.
const BUILT_IN: [&str; 24] = [
    "Binding",
    "ComponentStatus",
    "ControllerRevision",
    "CronJob",
    "Endpoints",
    "Event",
    "Eviction",
    "HorizontalPodAutoscaler",
    "LimitRange",
    "List",
    "Namespace",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "PodTemplate",
    "ReplicationController",
    "ResourceQuota",
    "Scale",
    "Secret",
    "ServiceAccount",
    "Ingress",
    "NetworkPolicy",
    "PodSecurityPolicy",
    "Status",
];

/// The API groups of Kubernetes whose names have no dot.
const GROUPS: [&str; 6] = ["", "apps", "batch", "autoscaling", "policy", "extensions"];

/// Returns whether an object's kind and API version are a Kubernetes kind, or meant to be one. Other
/// tools write both fields too: a custom resource's group has a dot, and `skaffold/v4beta1` has none.
pub(super) fn is_meant(version: &str, kind: &str) -> bool {
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    let is_version = version
        .strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let is_known = KNOWN.iter().any(|(known, _)| *known == kind);
    is_known || (is_version && (group.contains('.') || GROUPS.contains(&group)))
}

/// Checks a kind and its API version. Returns the wrong field, and the problem with its fix; `None`
/// if there is no problem, and for other API groups.
pub(super) fn check(version: &str, kind: &str) -> Option<(&'static str, String)> {
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let built_in = !group.contains('.');
    if let Some((_, right)) = KNOWN.iter().find(|(known, _)| *known == kind) {
        let right_group = right.rsplit_once('/').map_or("", |(group, _)| group);
        // Other API groups have kinds of the same name, such as Service.
        let meant = built_in || group == right_group || kind.starts_with("Constraint");
        let what = || format!("{version:?} has no {kind}, so it is ignored; write {right}");
        return (version != *right && meant).then(|| ("apiVersion", what()));
    }
    if group == GROUP {
        let own = KNOWN.iter().filter(|(_, v)| v.starts_with(GROUP));
        let own: Vec<&str> = own.map(|(kind, _)| *kind).collect();
        let own = own.join(", ");
        let what = format!("{kind:?} is unknown, so it is ignored; {GROUP} has {own}");
        return Some(("kind", what));
    }
    (built_in && !BUILT_IN.contains(&kind)).then(|| {
        let what = format!(
            "{kind:?} is not a kind that is read, so it is ignored; correct kind or apiVersion"
        );
        ("kind", what)
    })
}

#[cfg(test)]
mod tests {
    use super::{check, is_meant};

    #[test]
    fn files_of_other_tools_are_no_objects() {
        for (version, kind) in [
            ("v1", "Podd"),
            ("", "Pod"),
            ("app/v1", "Deployment"),
            ("apps/v1", ""),
            ("example.com/v1", "Thing"),
        ] {
            assert!(is_meant(version, kind), "{version} {kind}");
        }
        for (version, kind) in [
            ("", ""),
            ("", "pipeline"),
            ("", "eslint"),
            ("skaffold/v4beta1", "Config"),
            ("1", ""),
        ] {
            assert!(!is_meant(version, kind), "{version} {kind}");
        }
    }

    #[test]
    fn kinds_check_accepts_foreign_kinds() {
        for (version, kind) in [
            ("v1", "Pod"),
            ("constraint.ciena.com/v1alpha1", "ConstraintPolicyBinding"),
            ("apps/v1", "ControllerRevision"),
            ("v1", "Secret"),
            ("serving.knative.dev/v1", "Service"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole"),
            ("argoproj.io/v1alpha1", "Rollout"),
            ("example.com/v1", "RuleProvider"),
        ] {
            assert_eq!(check(version, kind), None, "{version} {kind}");
        }
        for (version, kind, field, part) in [
            (
                "constraint.ciena.com/v1",
                "ConstraintPolicyOffer",
                "apiVersion",
                "constraint.ciena.com/v1alpha1",
            ),
            (
                "example.com/v1",
                "ConstraintPolicy",
                "apiVersion",
                "constraint.ciena.com/v1alpha1",
            ),
            (
                "v1alpha1",
                "CostProvider",
                "apiVersion",
                "constraint.ciena.com/v1",
            ),
            ("apps/v1", "Pod", "apiVersion", "write v1"),
            (
                "discovery.k8s.io/v1beta1",
                "EndpointSlice",
                "apiVersion",
                "discovery.k8s.io/v1",
            ),
            (
                "constraint.ciena.com/v1alpha1",
                "ConstraintPolicyOfer",
                "kind",
                "ConstraintPolicyOffer",
            ),
            ("v1", "Podd", "kind", "correct kind"),
            ("apps/v1", "Deploymnet", "kind", "correct kind"),
        ] {
            let (at, what) = check(version, kind).unwrap();
            assert!(
                at == field && what.contains(part),
                "{version} {kind}: {at}: {what}"
            );
        }
    }
}
