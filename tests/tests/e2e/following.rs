//! Which pods the extender is told of: those that have a node and that an offer may
//! select.

use serde_json::{Value, json};
use tautline_tests::{
    PATIENCE,
    control_plane::ControlPlane,
    eventually,
    objects::{self, post},
    root,
    servers::Server,
};

const PODS: &str = "tautline_watch_events_total{kind=\"pods\"}";

/// A pod that was given its node as it was made.
async fn placed(plane: &ControlPlane, name: &str, app: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    });
    let path = "/api/v1/namespaces/default/pods";
    let said = post(&plane.client, path, &pod).await.unwrap();
    assert_eq!(said.status, 201, "{}", said.message());
}

async fn offer(plane: &ControlPlane, app: &str, more: Value) {
    let rule = json!({"name": "latency", "limit": "20ms"});
    objects::policy(&plane.client, "default", app, rule, more)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_extender_is_told_of_pods_that_offers_may_select() {
    let plane = ControlPlane::start().await.unwrap();
    objects::apply_kustomization_but(&plane.client, &root().join("deploy"), &["Deployment"])
        .await
        .unwrap();
    objects::node(&plane.client, "n1", json!({})).await.unwrap();
    placed(&plane, "web-0", "web").await;
    placed(&plane, "db-0", "db").await;
    let (extender, _) = Server::extender(&plane, &[]).await.unwrap();
    let told = async |pods: f64| {
        let check = async || (extender.metric(PODS).await == pods).then_some(());
        let state = async || {
            let metrics = extender.admin("/metrics").await;
            format!("{metrics:?}\n{}", extender.process.tail())
        };
        eventually(&format!("{pods} pods are told"), PATIENCE, check, state).await;
    };
    let governs = async |app: &str| {
        let known = |rule: &Value| rule["outcome"] != "PolicyMissing";
        extender.knows("default", app, known).await;
    };
    assert_eq!(extender.metric(PODS).await, 0.0, "without an offer");

    offer(&plane, "web", json!({})).await;
    governs("web").await;
    told(1.0).await;
    placed(&plane, "other-0", "other").await;
    placed(&plane, "web-1", "web").await;
    told(2.0).await;

    // Of what is selected only the rest is listed: db-0.
    offer(&plane, "db", json!({})).await;
    governs("db").await;
    told(3.0).await;
    placed(&plane, "other-1", "other").await;
    placed(&plane, "db-1", "db").await;
    told(4.0).await;

    // Its pods have no label in particular, so each counts that has a node: six.
    let any = json!({"targets": [{"apiVersion": "v1", "kind": "Pod", "labelSelector": {
        "matchExpressions": [{"key": "app", "operator": "Exists"}]}}]});
    offer(&plane, "any", any).await;
    governs("other").await;
    told(10.0).await;
}
