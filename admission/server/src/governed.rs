//! `/mutate-governed`: governed pods request an extended resource that the scheduler knows.

mod ungated_pods;

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};
use tautline_core::{
    Snapshot,
    constraints::{self, PodIdentity},
    names::GATE_RESOURCE,
};
use tautline_runtime::cluster_store::ClusterStore;

use crate::{
    handler::{Handler, SyncHandler},
    response::{Response, add_operation, pointer_segment},
    review::Request,
};

pub(crate) use ungated_pods::UngatedPods;

pub(crate) fn handler(store: ClusterStore, exempt: BTreeSet<String>) -> Arc<dyn Handler> {
    Arc::new(SyncHandler(move |request: &Request| {
        if exempt.contains(&request.namespace) {
            let text = format!("{} is exempt", request.namespace);
            return Response::bypass("ExemptNamespace", text);
        }
        review(request, &store.snapshot())
    }))
}

fn review(request: &Request, snapshot: &Snapshot) -> Response {
    let pod = &request.object;
    if request.kind[2] != "Pod" || request.operation != "CREATE" {
        return Response::bypass("NotAPod", "only the creation of pods is reviewed");
    }
    let labels = pod["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten();
    let subject = PodIdentity {
        namespace: request.namespace.clone(),
        name: request.name.clone(),
        uid: String::new(),
        labels: labels.filter_map(|(k, v)| Some((k, v.as_str()?))).collect(),
    };
    if !constraints::is_governed(snapshot, &subject) {
        return Response::allow("Ungoverned", "no offer selects the pod");
    }
    if containers(pod).any(|c| !c["resources"]["requests"][GATE_RESOURCE].is_null()) {
        return Response::allow("Asked", format!("the pod already requests {GATE_RESOURCE}"));
    }
    let Some(first) = containers(pod).next() else {
        return Response::allow("NoContainers", "");
    };
    let mut offers: Vec<String> = constraints::pod_constraints(snapshot, &subject)
        .iter()
        .map(|a| a.offer.name.to_string())
        .collect();
    offers.truncate(8);
    let why = format!("governed by {}", offers.join(", "));
    Response::mutate("Governed", why, &patch(first))
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["containers"].as_array().into_iter().flatten()
}

/// Extended resources need equal requests and limits.
fn patch(container: &Value) -> Vec<Value> {
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
        model::{Offer, ProviderUnavailable, Target, TargetKind, ViolationPolicy},
        selector::Selector,
    };

    use super::*;

    pub(super) fn offer() -> Offer {
        Offer {
            namespace: "shop".into(),
            name: "near".into(),
            uid: "u".into(),
            terminating: false,
            targets: vec![Target {
                name: "default".into(),
                kind: TargetKind::Pod,
                api_version: "v1".into(),
                selector: Some(Selector {
                    match_labels: vec![("app".into(), "web".into())],
                    match_expressions: Vec::new(),
                }),
            }],
            policies: vec!["near".into()],
            period: std::time::Duration::from_secs(60),
            grace: std::time::Duration::ZERO,
            violation_policy: ViolationPolicy::Ignore,
            provider_unavailable: None::<ProviderUnavailable>,
        }
    }

    fn snapshot() -> Snapshot {
        let mut index = Index::default();
        index.apply(Object::Offer(offer()));
        index.snapshot()
    }

    fn review(namespace: &str, app: &str, container: Value) -> Response {
        super::review(&request(namespace, app, container), &snapshot())
    }

    #[tokio::test]
    async fn exempt_namespaces_are_bypassed() {
        let handler = |exempt: &str| handler(ClusterStore::default(), [exempt.to_owned()].into());
        let pod = Arc::new(request("shop", "web", json!({})));
        let exempt = handler("shop").review(Arc::clone(&pod)).await;
        assert_eq!(exempt.code, "ExemptNamespace");
        assert_eq!(handler("other").review(pod).await.code, "Ungoverned");
    }

    fn request(namespace: &str, app: &str, container: Value) -> Request {
        Request {
            kind: ["".into(), "v1".into(), "Pod".into()],
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
        assert_eq!(review("shop", "web", requested).code, "Asked");
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
}
