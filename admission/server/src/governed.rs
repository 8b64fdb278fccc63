//! Reviews requests to `/mutate-governed`: directs governed pods to a scheduler that calls the
//! extender. They then request an extended resource for which the scheduler calls the extender, or
//! name the scheduler, or both.

mod ungated_pods;

use serde_json::{Value, json};
use tautline_core::{
    Snapshot,
    constraints::{self, PodIdentity},
    names::{DEFAULT_SCHEDULER, GATE_RESOURCE},
};
use tautline_mutating_policy::Request;

use crate::response::{Response, add_operation, pointer_segment};

pub(crate) use ungated_pods::UngatedPods;

/// The changes to a governed pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// True to add a request for [`GATE_RESOURCE`].
    pub gate: bool,
    /// The `schedulerName` to set, unless the pod names a scheduler itself.
    pub scheduler_name: Option<String>,
}

pub(crate) fn review(request: &Request, snapshot: &Snapshot, changes: &Changes) -> Response {
    let pod = &request.object;
    if request.kind.kind != "Pod" || request.operation != "CREATE" {
        return Response::bypass("NotAPod", "only the creation of pods is reviewed");
    }
    let labels = pod["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten();
    let subject = PodIdentity {
        namespace: request.namespace.clone(),
        name: request.name.clone(),
        labels: labels.filter_map(|(k, v)| Some((k, v.as_str()?))).collect(),
        ..PodIdentity::default()
    };
    if !constraints::is_governed(snapshot, &subject) {
        return Response::allow("Ungoverned", "no offer selects the pod");
    }
    let Some(first) = containers(pod).next() else {
        return Response::allow("NoContainers", "");
    };
    let mut patch = Vec::new();
    if changes.gate && !containers(pod).any(requests_gate) {
        patch.extend(gate_patch(first));
    }
    if let Some(name) = &changes.scheduler_name {
        match pod["spec"]["schedulerName"].as_str().unwrap_or_default() {
            "" | DEFAULT_SCHEDULER => {
                patch.push(add_operation("/spec/schedulerName".to_owned(), json!(name)));
            }
            own if own == name || !patch.is_empty() => {}
            own => {
                let text = format!("the pod names the scheduler {own} itself");
                return Response::allow("OtherScheduler", text);
            }
        }
    }
    if patch.is_empty() {
        return Response::allow("Unchanged", "the pod already has what governed pods get");
    }
    let mut offers: Vec<String> = constraints::pod_constraints(snapshot, &subject)
        .iter()
        .map(|a| a.offer.name.to_string())
        .collect();
    offers.truncate(8);
    let why = format!("governed by {}", offers.join(", "));
    Response::mutate("Governed", why, &patch)
}

fn requests_gate(container: &Value) -> bool {
    !container["resources"]["requests"][GATE_RESOURCE].is_null()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["containers"].as_array().into_iter().flatten()
}

/// Returns the patch that requests the gate resource. Extended resources need equal requests and
/// limits.
fn gate_patch(container: &Value) -> Vec<Value> {
    let at = "/spec/containers/0/resources";
    let resources = &container["resources"];
    let mut patch = Vec::new();
    if !resources.is_object() {
        patch.push(add_operation(at.to_owned(), json!({})));
    }
    for side in ["requests", "limits"] {
        if resources[side].is_object() {
            let path = format!("{at}/{side}/{}", pointer_segment(GATE_RESOURCE));
            patch.push(add_operation(path, json!("1")));
        } else {
            patch.push(add_operation(
                format!("{at}/{side}"),
                json!({GATE_RESOURCE: "1"}),
            ));
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use tautline_core::{
        Index,
        index::Object,
        model::{Offer, Target, TargetKind},
        selector::Selector,
    };

    use super::*;

    pub(super) fn offer() -> Offer {
        Offer {
            namespace: "shop".into(),
            name: "near".into(),
            uid: "u".into(),
            created_unix: 0,
            terminating: false,
            targets: vec![Target {
                name: "default".into(),
                kind: TargetKind::Pod,
                api_version: "v1".into(),
                selector: Selector {
                    match_labels: vec![("app".into(), "web".into())],
                    match_expressions: Vec::new(),
                },
            }],
            policies: vec!["near".into()],
            period: std::time::Duration::from_secs(60),
            grace: std::time::Duration::ZERO,
            ..Offer::default()
        }
    }

    fn snapshot() -> Snapshot {
        let mut index = Index::default();
        index.apply(Object::Offer(offer()));
        index.snapshot()
    }

    fn review(namespace: &str, app: &str, container: Value) -> Response {
        let gate = Changes {
            gate: true,
            ..Changes::default()
        };
        super::review(&request(namespace, app, container), &snapshot(), &gate)
    }

    fn request(namespace: &str, app: &str, container: Value) -> Request {
        Request {
            kind: tautline_mutating_policy::Kind {
                kind: "Pod".into(),
                ..tautline_mutating_policy::Kind::default()
            },
            namespace: namespace.into(),
            operation: "CREATE".into(),
            object:
                json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [container]}})
                    .into(),
            ..Request::default()
        }
    }

    fn operations(response: &Response) -> Vec<Value> {
        serde_json::from_str(&response.patch).unwrap()
    }

    #[test]
    fn governed_pods_get_the_request() {
        assert_eq!(review("shop", "db", json!({})).code, "Ungoverned");
        assert_eq!(review("other", "web", json!({})).code, "Ungoverned");
        let requested = json!({"resources": {"requests": {GATE_RESOURCE: "1"}, "limits": {GATE_RESOURCE: "1"}}});
        assert_eq!(review("shop", "web", requested).code, "Unchanged");
        let bare = review("shop", "web", json!({"name": "main"}));
        assert_eq!(bare.text, "governed by near");
        let at = "/spec/containers/0/resources";
        assert_eq!(
            operations(&bare),
            [
                add_operation(at.into(), json!({})),
                add_operation(format!("{at}/requests"), json!({GATE_RESOURCE: "1"})),
                add_operation(format!("{at}/limits"), json!({GATE_RESOURCE: "1"})),
            ]
        );
        let half = review(
            "shop",
            "web",
            json!({"resources": {"requests": {"cpu": "1"}}}),
        );
        let requests = format!("{at}/requests/constraint.ciena.com~1governed");
        assert_eq!(operations(&half)[0], add_operation(requests, json!("1")));
    }
    #[test]
    fn governed_pods_get_the_scheduler_unless_they_name_one() {
        let named = |app: &str, own: Option<&str>, gate: bool| {
            let mut request = request("shop", app, json!({"name": "main"}));
            let mut pod = request.object.as_ref().clone();
            if let Some(own) = own {
                pod["spec"]["schedulerName"] = json!(own);
            }
            request.object = pod.into();
            let changes = Changes {
                gate,
                scheduler_name: Some("tautline-scheduler".into()),
            };
            super::review(&request, &snapshot(), &changes)
        };
        let set = add_operation("/spec/schedulerName".into(), json!("tautline-scheduler"));
        for own in [None, Some(""), Some("default-scheduler")] {
            assert_eq!(
                operations(&named("web", own, false)),
                std::slice::from_ref(&set)
            );
        }
        assert_eq!(named("db", None, false).code, "Ungoverned");
        let ours = named("web", Some("tautline-scheduler"), false);
        assert_eq!(ours.code, "Unchanged");
        let other = named("web", Some("volcano"), false);
        assert_eq!(other.code, "OtherScheduler");
        assert!(other.text.contains("volcano"), "{}", other.text);
        assert_eq!(operations(&named("web", None, true)).len(), 4);
        assert_eq!(operations(&named("web", Some("volcano"), true)).len(), 3);
    }
}
