//! Our manifests, and those made for Turnbuckle, on the real API server.

use serde_json::{Value, json};
use tautline_tests::{control_plane::ControlPlane, objects, root};

/// The five examples of Turnbuckle's README.
const TURNBUCKLE: &str = include_str!("../../turnbuckle-manifests.yaml");

#[tokio::test]
async fn deploy_and_turnbuckles_examples_apply_and_bad_ones_are_refused() {
    let _alone = crate::ALONE.lock().await;
    let plane = ControlPlane::start().await.unwrap();
    let client = &plane.client;
    objects::apply_kustomization(client, &root().join("deploy"))
        .await
        .unwrap();
    objects::apply(client, TURNBUCKLE).await.unwrap();
    let files = ["3-policies.yaml", "2-providers.yaml"];
    objects::apply_one(
        client,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}),
    )
    .await
    .unwrap();
    for file in files {
        let path = root().join("examples/edge-inference").join(file);
        objects::apply(client, &std::fs::read_to_string(path).unwrap())
            .await
            .unwrap();
    }

    let offer = |spec: Value| {
        json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
               "metadata": {"name": "bad", "namespace": "default"}, "spec": spec})
    };
    let target = |name: Value| json!({"name": name, "apiVersion": "v1", "kind": "Pod"});
    let refused = [
        (
            offer(json!({"targets": [target(json!("a"))], "policies": ["p"], "grace": "10"})),
            "must be a duration",
        ),
        (
            offer(json!({"targets": [target(json!("a"))], "policies": ["p"], "period": "-5s"})),
            "must be a duration",
        ),
        (
            offer(json!({"targets": [target(json!("a")), target(json!("a"))]})),
            "target names must be unique",
        ),
        (
            offer(json!({"targets": [{"kind": "Pod"}, target(json!("default"))]})),
            "target names must be unique",
        ),
        (
            offer(json!({"targets": [{"name": "a", "kind": "Podd"}]})),
            "Unsupported value",
        ),
        (offer(json!({"targets": []})), "at least 1"),
        (
            offer(json!({"targets": [target(json!("a"))], "violationPolicy": "Punish"})),
            "Unsupported value",
        ),
        (
            json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
                   "metadata": {"name": "bad", "namespace": "default"}, "spec": {"rules": []}}),
            "at least 1",
        ),
    ];
    for (object, expected) in refused {
        let error = objects::apply_one(client, object.clone())
            .await
            .unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains(expected),
            "{object}\nwas refused with: {text}"
        );
    }
    let good = ["0", "1h30m", "500us", "1.5h", "10m"];
    for grace in good {
        let spec = json!({"targets": [target(json!("a"))], "grace": grace});
        objects::apply_one(client, offer(spec)).await.unwrap();
    }
}
