//! The pod watch of `gpu-slice`. Between two reads it learns nothing, so its answers are valid
//! until the next one.

use std::cell::Cell;

use serde_json::json;
use tautline_proto::ruleprovider::{
    EndpointCostRequest, PolicyRule, rule_provider_client::RuleProviderClient,
};
use tautline_tests::{PATIENCE, control_plane::ControlPlane, eventually, objects, root};

use crate::gpu::{self, CARDS};

#[tokio::test]
async fn gpu_answers_are_valid_until_the_watch_reads_again() {
    let _alone = crate::ALONE.lock().await;
    let plane = ControlPlane::start().await.unwrap();
    objects::apply_kustomization_except(&plane.client, &root().join("deploy"), &["Deployment"])
        .await
        .unwrap();
    let provider = gpu::provider(&plane).await;
    gpu::node(&plane.client, "n1", json!({CARDS: "2"})).await;
    let question = EndpointCostRequest {
        rule: Some(PolicyRule {
            name: "gpu-slice".into(),
            request: "500m".into(),
            ..PolicyRule::default()
        }),
        eligible_nodes: vec!["n1".into()],
        ..EndpointCostRequest::default()
    };
    let pods = Cell::new(0);
    let says = async || {
        let to = format!("http://127.0.0.1:{}", provider.port);
        let mut client = RuleProviderClient::connect(to).await.ok()?;
        client.endpoint_cost(question.clone()).await.ok()?;
        // The watch delivers a pod, and pauses.
        let name = format!("pod-{}", pods.replace(pods.get() + 1));
        on_node(&plane, &name).await;
        for _ in 0..20 {
            let answer = client.endpoint_cost(question.clone()).await.ok()?;
            let answer = answer.into_inner();
            if answer.valid_for_millis > 0 {
                return Some((answer.version, answer.valid_for_millis));
            }
        }
        None
    };
    let state = async || provider.process.tail();
    let what = "an answer is valid until the next read";
    let (version, millis) = eventually(what, PATIENCE, says, state).await;
    assert!(version > 0 && millis <= 30, "{version} {millis} ms");
}

/// A pod created with a node.
async fn on_node(plane: &ControlPlane, name: &str) {
    let mut pod = gpu::gpu_pod(name, "any", json!({}), None);
    pod.spec.as_mut().unwrap().node_name = Some("n1".into());
    gpu::create(&plane.client, &pod).await;
}
