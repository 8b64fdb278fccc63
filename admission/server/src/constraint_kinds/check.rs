//! Validates objects of Tautline's kinds, whose schemas the API server has checked before.

use serde::Deserialize;
use serde_json::Value;
use tautline_api::{
    ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer, Metadata,
    convert::{self, ConvertError},
};
use tautline_core::{Snapshot, trust::TrustedNamespaces};
use tautline_mutating_policy::Request;

use super::warnings;
use crate::{mutations, response::Response};

pub(super) const VALID: &str = "Valid";

pub(crate) fn validate(
    request: &Request,
    snapshot: &Snapshot,
    trusted: &TrustedNamespaces,
) -> Response {
    let (object, old) = (&request.object, &request.old_object);
    if object.is_null() {
        return Response::allow("Deleted", "");
    }
    // The removal of finalizers must never fail.
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Response::allow("Terminating", "");
    }
    if !old.is_null() && object["spec"] == old["spec"] {
        return Response::allow("SpecUnchanged", "");
    }
    let namespace = request.namespace.as_str();
    let checked = match request.kind.kind.as_str() {
        "ConstraintPolicy" => policy(object, namespace, snapshot, trusted),
        "ConstraintPolicyOffer" => offer(object, namespace, snapshot, trusted),
        "ConstraintPolicyBinding" => binding(object, namespace, snapshot),
        "MutationPolicy" | "MutationPolicyBinding" => mutation(object),
        kind => return Response::bypass("OtherKind", format!("{kind} is not a kind of Tautline")),
    };
    match checked {
        Ok(warnings) => {
            let allowed = Response::allow(VALID, "");
            warnings.into_iter().fold(allowed, Response::warn)
        }
        Err(error) => Response::refuse("Invalid", super::message(request, &error.to_string())),
    }
}

/// The reason why an object is invalid.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Convert(#[from] ConvertError),
    #[error("{0}")]
    Invalid(String),
}

type Checked = Result<Vec<String>, CheckError>;

fn in_namespace(meta: &mut Metadata, namespace: &str) {
    meta.namespace = Some(namespace.to_owned());
}

fn policy(
    object: &Value,
    namespace: &str,
    snapshot: &Snapshot,
    trusted: &TrustedNamespaces,
) -> Checked {
    let mut policy = ConstraintPolicy::deserialize(object)?;
    in_namespace(&mut policy.metadata, namespace);
    let policy = convert::policy(&policy)?;
    Ok(warnings::policy(&policy, snapshot, trusted))
}

fn offer(
    object: &Value,
    namespace: &str,
    snapshot: &Snapshot,
    trusted: &TrustedNamespaces,
) -> Checked {
    let mut offer = ConstraintPolicyOffer::deserialize(object)?;
    in_namespace(&mut offer.metadata, namespace);
    let converted = convert::offer(&offer)?;
    let mut warnings = warnings::offer(&offer.spec, &converted, snapshot, trusted);
    warnings.extend(warnings::groups(&converted, snapshot));
    warnings.extend(warnings::targets(&offer.spec.targets));
    warnings.extend(warnings::evictions(&offer.spec));
    Ok(warnings)
}

fn binding(object: &Value, namespace: &str, snapshot: &Snapshot) -> Checked {
    let binding = ConstraintPolicyBinding::deserialize(object)?;
    let spec = &binding.spec;
    let invalid = |text: &str| Err(CheckError::Invalid(text.to_owned()));
    if spec.offer.is_empty() {
        return invalid("spec.offer: is empty; name the ConstraintPolicyOffer");
    }
    if spec.targets.is_empty() {
        return invalid("spec.targets: is empty; name an object for each target of the offer");
    }
    for (name, target) in &spec.targets {
        let parts = [("kind", &target.kind), ("name", &target.name)];
        if let Some((field, _)) = parts.iter().find(|(_, text)| text.is_empty()) {
            return invalid(&format!("spec.targets[{name}].{field}: is empty"));
        }
    }
    Ok(warnings::binding(&spec.offer, namespace, snapshot))
}

fn mutation(object: &Value) -> Checked {
    match tautline_mutating_policy::check(object) {
        Ok((_, warnings)) => Ok(mutations::lines(&warnings)),
        Err(problems) => Err(CheckError::Invalid(mutations::lines(&problems).join("\n"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tautline_core::{
        Index,
        index::Object,
        model::{Pod, Policy, Rule, Service},
    };

    use super::*;
    use crate::response::ResponseKind;

    fn request(kind: &str, spec: Value) -> Request {
        let group = "constraint.ciena.com".to_owned();
        Request {
            kind: tautline_mutating_policy::Kind {
                group,
                version: "v1alpha1".into(),
                kind: kind.into(),
            },
            namespace: "shop".into(),
            name: "x".into(),
            operation: "CREATE".into(),
            object: json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": kind,
                           "metadata": {"name": "x", "namespace": "shop"}, "spec": spec})
            .into(),
            ..Request::default()
        }
    }

    fn validated(kind: &str, spec: Value, snapshot: &Snapshot) -> Response {
        validate(
            &request(kind, spec),
            snapshot,
            &TrustedNamespaces::default(),
        )
    }

    fn pods(expression: Value) -> Value {
        json!([{"kind": "Pod", "labelSelector": {"matchExpressions": [expression]}}])
    }

    #[test]
    fn invalid_objects_are_refused_with_the_field() {
        let is = json!({"key": "a", "operator": "Is", "values": ["b"]});
        let bare = json!({"key": "a", "operator": "In"});
        let all = json!([{"kind": "Pod", "labelSelector": {}}]);
        let twice = json!([{"kind": "Pod"}, {"kind": "Pod", "name": "default"}]);
        let cases = [
            (
                "ConstraintPolicy",
                json!({"rules": [{"name": "r", "weight": -1}]}),
            ),
            ("ConstraintPolicy", json!({"rules": "r"})),
            (
                "ConstraintPolicy",
                json!({"rules": [{"name": "r", "prefer": "Near"}]}),
            ),
            ("ConstraintPolicyOffer", json!({"targets": pods(is)})),
            ("ConstraintPolicyOffer", json!({"targets": pods(bare)})),
            (
                "ConstraintPolicyOffer",
                json!({"targets": all, "grace": "10"}),
            ),
            ("ConstraintPolicyOffer", json!({"targets": twice})),
            (
                "ConstraintPolicyOffer",
                json!({"targets": [{"kind": "Podd"}]}),
            ),
            (
                "ConstraintPolicyOffer",
                json!({"targets": [{"name": "a", "kind": "Pod"}], "evict": ["b"]}),
            ),
            (
                "ConstraintPolicyOffer",
                json!({"targets": [{"kind": "Pod", "peers": "group"}]}),
            ),
            (
                "ConstraintPolicyOffer",
                json!({"targets": all, "group": {"minimum": 1}}),
            ),
            (
                "ConstraintPolicyOffer",
                json!({"targets": [{"kind": "Pod", "name": "a", "labelSelector": {}},
                                   {"kind": "Pod", "labelSelector": {}, "peers": "group"}],
                       "group": {}}),
            ),
            (
                "ConstraintPolicyBinding",
                json!({"offer": "", "targets": {}}),
            ),
            (
                "ConstraintPolicyBinding",
                json!({"offer": "o", "targets": {}}),
            ),
            (
                "ConstraintPolicyBinding",
                json!({"offer": "o", "targets": {"default": {"kind": "Pod"}}}),
            ),
        ];
        let mut messages = String::new();
        for (kind, spec) in cases {
            let response = validated(kind, spec, &Snapshot::default());
            assert_eq!(response.kind, ResponseKind::Refuse, "{response:?}");
            messages += &format!("{}\n", response.text);
        }
        insta::assert_snapshot!("refusals", messages);
    }

    #[test]
    fn doubtful_objects_get_warnings() {
        let mut index = Index::default();
        let empty = validated(
            "ConstraintPolicyOffer",
            json!({"targets": [{"kind": "Pod", "labelSelector": {"matchLabels": {"app": "web"}}}],
                   "policies": ["near"]}),
            &index.snapshot(),
        );
        index.apply(near_policy());
        index.apply(Object::Pod(Pod {
            namespace: "shop".into(),
            name: "p".into(),
            labels: [("app", "web")].into_iter().collect(),
            ..Pod::default()
        }));
        let offer = json!({"targets": [{"kind": "Pod", "labelSelector": {"matchLabels": {"app": "web"}}}],
                           "policies": ["near"]});
        let unprovided = validated("ConstraintPolicyOffer", offer.clone(), &index.snapshot());
        let policy = validated(
            "ConstraintPolicy",
            json!({"rules": [
                {"name": "latency"}, {"name": "latency"}, {"name": "latency", "prefer": "Nearest"},
                {"name": "latency", "prefer": "WithinRequest"},
                {"name": "latency", "request": "5ms", "prefer": "WithinRequest"},
                {"name": "gpu-slice", "request": true, "prefer": "WithinRequest"}]}),
            &index.snapshot(),
        );
        let doubtful = validated(
            "ConstraintPolicyOffer",
            json!({"targets": [{"kind": "Cluster"}, {"name": "b", "kind": "Pod"}],
                   "evict": ["b"], "evictGroups": true}),
            &index.snapshot(),
        );
        let binding = validated(
            "ConstraintPolicyBinding",
            json!({"offer": "o", "targets": {"default": {"kind": "Pod", "name": "p"}}}),
            &index.snapshot(),
        );
        index.apply(latency_provider());
        let good = validated("ConstraintPolicyOffer", offer, &index.snapshot());
        assert_eq!(good.warnings, Vec::<String>::new());
        let all = [empty, unprovided, policy, doubtful, binding];
        assert!(all.iter().all(|v| v.kind == ResponseKind::Allow), "{all:?}");
        let messages: Vec<String> = all.iter().map(|v| v.warnings.join("\n")).collect();
        insta::assert_snapshot!("warnings", messages.join("\n\n"));
    }

    fn near_policy() -> Object {
        let rule = Rule {
            name: "latency".into(),
            ..Rule::default()
        };
        Object::Policy(Policy {
            namespace: "shop".into(),
            name: "near".into(),
            rules: vec![rule],
        })
    }

    fn latency_provider() -> Object {
        Object::Service(Service {
            namespace: "tautline-system".into(),
            name: "prober".into(),
            rules: vec!["latency".into()],
            ..Service::default()
        })
    }

    #[test]
    fn groups_get_warnings() {
        let mut index = Index::default();
        let target = json!({"kind": "Pod", "labelSelector": {"matchLabels": {"app": "web"}}});
        let peers = json!({"name": "peers", "kind": "Pod", "peers": "group"});
        let offer = |group: Value| json!({"policies": ["near"], "group": group, "targets": [target.clone(), peers.clone()]});
        index.apply(near_policy());
        index.apply(latency_provider());
        let mut pod = |name: &str, labels: Value| {
            let annotations = json!({"kueue.x-k8s.io/pod-group-total-count": "2"});
            let pod = json!({"metadata": {"name": name, "namespace": "shop", "labels": labels,
                                          "annotations": annotations}, "spec": {"containers": []}});
            let pod = serde_json::from_value(pod).unwrap();
            index.apply(Object::Pod(convert::pod(&pod)));
        };
        pod("a", json!({"app": "web", "shard": "x"}));
        pod("b", json!({"app": "web", "shard": "x"}));
        let of = |group: Value, snapshot: &Snapshot| {
            validated("ConstraintPolicyOffer", offer(group), snapshot).warnings
        };
        let good = of(json!({"by": "shard", "minimum": 2}), &index.snapshot());
        assert_eq!(good, [""; 0]);
        let small = of(json!({"by": "shard", "minimum": 8}), &index.snapshot());
        let expected = "spec.group.minimum: is 8, and the group of pod a has 2 by its annotation, so \
                        it is never complete; write 2";
        assert_eq!(small, [expected]);
        let half = of(json!({"by": "zone"}), &index.snapshot());
        let expected = "spec.group.by: 2 of 2 pods of the target, such as a, lack label zone and are \
                        refused (group/NoLabel); add it";
        assert_eq!(half, [expected]);
        let other = json!({"metadata": {"name": "other", "namespace": "shop"},
                           "apiVersion": "constraint.ciena.com/v1alpha1",
                           "kind": "ConstraintPolicyOffer", "spec": offer(json!({}))});
        let other = serde_json::from_value(other).unwrap();
        index.apply(Object::Offer(convert::offer(&other).unwrap()));
        let shared = of(json!({}), &index.snapshot());
        let expected = "spec.group: ConstraintPolicyOffer other makes groups of pod a too, and other \
                        alone counts; let one offer with group select it";
        assert_eq!(shared, [expected]);
    }

    #[test]
    fn warnings_name_positions_in_the_spec() {
        let targets = json!([
            {"name": "db", "kind": "Pod", "cluster": "east", "labelSelector": {}},
            {"name": "web", "kind": "Pod", "labelSelector": {"matchLabels": {"app": "web"}}},
            {"name": "cache", "kind": "Pod", "cluster": "west"}]);
        let mut index = Index::default();
        index.apply(near_policy());
        index.apply(latency_provider());
        let spec = json!({"policies": ["near"], "targets": targets});
        let doubtful = validated("ConstraintPolicyOffer", spec.clone(), &index.snapshot());
        assert_eq!(
            doubtful.warnings,
            [
                "spec.targets[1] (web): selects nothing in shop now",
                "spec.targets[2] (cache): selects every Pod of the namespace without a \
                 labelSelector; write {} if you mean that",
            ]
        );
        let mut sites = spec;
        sites["targets"][1] = json!({"name": "site", "kind": "Cluster", "labelSelector": {}});
        let no_pods = validated("ConstraintPolicyOffer", sites, &index.snapshot());
        assert_eq!(
            no_pods.warnings[..2],
            [
                "spec.targets: no target of this cluster has the kind Pod; the offer governs no pod",
                "spec.targets[1] (site): needs its apiVersion to be found",
            ]
        );
    }

    #[test]
    fn unchanged_and_terminating_objects_are_allowed() {
        let bad = json!({"rules": [{"name": "r", "weight": -1}]});
        let mut same = request("ConstraintPolicy", bad.clone());
        same.old_object = same.object.clone();
        std::sync::Arc::make_mut(&mut same.object)["metadata"]["labels"] = json!({"a": "b"});
        let mut going = request("ConstraintPolicy", bad);
        std::sync::Arc::make_mut(&mut going.object)["metadata"]["deletionTimestamp"] =
            "2026-01-01T00:00:00Z".into();
        for (request, code) in [(same, "SpecUnchanged"), (going, "Terminating")] {
            assert_eq!(
                validate(
                    &request,
                    &Snapshot::default(),
                    &TrustedNamespaces::default()
                )
                .code,
                code
            );
        }
    }
}
