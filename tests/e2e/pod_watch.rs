//! The pods that the extender watches: those with a node that an offer may select.

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use serde_json::{Value, json};
use tautline_tests::{
    PATIENCE,
    control_plane::ControlPlane,
    eventually,
    loopback::insecure_post,
    objects::{self, post},
    root,
    servers::Server,
};

const PODS: &str = "tautline_watch_events_total{kind=\"pods\"}";

/// A pod created with a node.
async fn placed(plane: &ControlPlane, name: &str, app: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    });
    let path = "/api/v1/namespaces/default/pods";
    let response = post(&plane.client, path, &pod).await.unwrap();
    assert_eq!(response.status, 201, "{}", response.message());
}

async fn offer(plane: &ControlPlane, app: &str, more: Value) {
    let rule = json!({"name": "latency", "limit": "20ms"});
    objects::policy(&plane.client, "default", app, rule, more)
        .await
        .unwrap();
}

/// A control plane with two pods on a node, and an extender with its own account.
async fn started() -> (ControlPlane, Server) {
    let plane = ControlPlane::start().await.unwrap();
    objects::apply_kustomization_except(&plane.client, &root().join("deploy"), &["Deployment"])
        .await
        .unwrap();
    objects::node(&plane.client, "n1", json!({})).await.unwrap();
    placed(&plane, "web-0", "web").await;
    placed(&plane, "db-0", "db").await;
    let (extender, _) = Server::extender(&plane, &[]).await.unwrap();
    (plane, extender)
}

/// Waits until the extender knows the offer of that name.
async fn governs(extender: &Server, app: &str) {
    let known = |rule: &Value| rule["outcome"] != "PolicyMissing";
    extender.wait_for_rules("default", app, known).await;
}

#[tokio::test]
async fn extender_watches_only_pods_that_offers_may_select() {
    let (plane, extender) = started().await;
    let expect_events = async |pods: f64| {
        let check = async || (extender.metric(PODS).await == pods).then_some(());
        let state = async || {
            let metrics = extender.admin("/metrics").await;
            format!("{metrics:?}\n{}", extender.process.tail())
        };
        eventually(
            &format!("the watch delivers {pods} pods"),
            PATIENCE,
            check,
            state,
        )
        .await;
    };
    assert_eq!(extender.metric(PODS).await, 0.0, "without an offer");

    offer(&plane, "web", json!({})).await;
    governs(&extender, "web").await;
    expect_events(1.0).await;
    placed(&plane, "other-0", "other").await;
    placed(&plane, "web-1", "web").await;
    expect_events(2.0).await;

    // Only the pods that are new to the selection are listed: db-0.
    offer(&plane, "db", json!({})).await;
    governs(&extender, "db").await;
    expect_events(3.0).await;
    placed(&plane, "other-1", "other").await;
    placed(&plane, "db-1", "db").await;
    expect_events(4.0).await;

    // Its pods need no particular label, so all pods with a node count: six.
    let any = json!({"targets": [{"apiVersion": "v1", "kind": "Pod", "labelSelector": {
        "matchExpressions": [{"key": "app", "operator": "Exists"}]}}]});
    offer(&plane, "any", any).await;
    governs(&extender, "other").await;
    expect_events(10.0).await;
}

/// Gives the extender's role other rules, and waits until they count for its account.
async fn may_list_pods(plane: &ControlPlane, may: bool, role: &ClusterRole) {
    let (roles, mut role) = (Api::<ClusterRole>::all(plane.client.clone()), role.clone());
    role.metadata.resource_version = None;
    if let (false, Some(rules)) = (may, &mut role.rules) {
        rules.retain(|r| r.resources.as_deref() != Some(&["pods".to_owned()]));
    }
    roles
        .replace("tautline-extender", &Default::default(), &role)
        .await
        .unwrap();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "system:serviceaccount:tautline-system:tautline-extender",
                 "resourceAttributes": {"verb": "list", "resource": "pods"}},
    });
    let check = async || {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let response = post(&plane.client, path, &review).await.ok()?;
        (response.body["status"]["allowed"] == may).then_some(())
    };
    let what = format!("it may list pods: {may}");
    eventually(&what, PATIENCE, check, async || "no more is known").await;
}

#[tokio::test]
async fn filter_refuses_pods_of_an_offer_whose_pods_cannot_be_listed() {
    let (plane, extender) = started().await;
    offer(&plane, "web", json!({})).await;
    governs(&extender, "web").await;
    let filtered = async |app: &str| {
        let pod = json!({"metadata": {"name": "p", "namespace": "default", "uid": "p",
                                      "labels": {"app": app}}});
        let body = json!({"Pod": pod, "NodeNames": []}).to_string();
        let url = format!("https://127.0.0.1:{}/filter", extender.port);
        insecure_post(&url, body.as_bytes()).await
    };

    let roles = Api::<ClusterRole>::all(plane.client.clone());
    let role = roles.get("tautline-extender").await.unwrap();
    may_list_pods(&plane, false, &role).await;
    offer(&plane, "db", json!({})).await;
    let check = async || {
        let refused = filtered("db").await.err()?.to_string();
        let start = "status 503: offer default/db selects this pod and does not count yet";
        refused.starts_with(start).then_some(())
    };
    let state = async || extender.process.tail();
    eventually("the offer waits", PATIENCE, check, state).await;
    for app in ["web", "other"] {
        filtered(app).await.unwrap();
    }

    may_list_pods(&plane, true, &role).await;
    governs(&extender, "db").await;
}
