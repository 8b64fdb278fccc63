//! Generated certificates: two replicas share them, and a rotation under load loses no request.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use tautline_tests::objects::post;
use tokio::time::Instant;

use super::{gpu_sharing::SLICES, *};

/// Short lifetimes, with time for a busy API server to receive each CA.
const ARGS: &[&str] = &["--certificate-lifetime=24s"];

/// Sets failurePolicy Fail: every request needs an answer.
async fn must(world: &AdmissionCluster, kind: &str, name: &str, resource: &str) {
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "webhooks": [{"name": resource, "failurePolicy": "Fail"}]});
    let patch = kube::api::Patch::Strategic(hook);
    let params = kube::api::PatchParams::default();
    let client = world.client().clone();
    let patched = match kind {
        "MutatingWebhookConfiguration" => Api::<MutatingWebhookConfiguration>::all(client)
            .patch(name, &params, &patch)
            .await
            .map(|_| ()),
        _ => Api::<ValidatingWebhookConfiguration>::all(client)
            .patch(name, &params, &patch)
            .await
            .map(|_| ()),
    };
    patched.unwrap();
}

/// The CA of the newest certificate in the Secret.
async fn newest(world: &AdmissionCluster) -> String {
    let secrets: Api<Secret> = Api::namespaced(world.client().clone(), "tautline-system");
    let secret = secrets.get("tautline-admission-tls").await.unwrap();
    let json: Value = serde_json::from_slice(&secret.data.unwrap()["generations.json"].0).unwrap();
    let all = json.as_array().unwrap();
    all.last().unwrap()["ca"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn certificate_rotation_loses_no_request() {
    let world = AdmissionCluster::start(SLICES, ARGS).await.unwrap();
    let other = Server::admission(&world.plane, "admission-b", ARGS)
        .await
        .unwrap();
    let url = format!("https://127.0.0.1:{}", other.port);
    world
        .install_webhooks(&["tautline-own-resources"], &url)
        .await
        .unwrap();
    must(
        &world,
        "MutatingWebhookConfiguration",
        SLICES[0],
        "gpu-slices.tautline.io",
    )
    .await;
    must(
        &world,
        "ValidatingWebhookConfiguration",
        "tautline-own-resources",
        "validate.constraint.tautline.io",
    )
    .await;
    let annotations = json!({"castops.io/optimize": "true"});
    let pod = gpu_sharing::pod("default", "stream", annotations, json!({}));
    let policy = json!({"apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
        "metadata": {"name": "stream", "namespace": "default"}, "spec": {"rules": [{"name": "far"}]}});
    let policies =
        "/apis/constraint.ciena.com/v1alpha1/namespaces/default/constraintpolicies?dryRun=All";
    // The API server opens new connections for each new CA.
    let mut seen = vec![newest(&world).await];
    let (mut created, deadline) = (0, Instant::now() + PATIENCE * 3);
    while seen.len() < 4 {
        assert!(
            Instant::now() < deadline,
            "{} certificates\n{}",
            seen.len(),
            world.state()
        );
        let response = gpu_sharing::create(&world, &pod, true).await;
        let shared =
            &response.body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu-shared"];
        assert_eq!(
            *shared,
            "2",
            "after {created}: {response:?}\n{}",
            world.state()
        );
        let response = post(world.client(), policies, &policy).await.unwrap();
        assert_eq!(
            response.status,
            201,
            "after {created}: {response:?}\n{}",
            other.process.tail()
        );
        created += 1;
        let now = newest(&world).await;
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let made = "tautline_admission_certificate_rotations_total{result=\"made\"}";
    let both = world.server.metric(made).await + other.metric(made).await;
    assert!(both >= 4.0, "{both}");
    // The replicas never generated the same certificate twice.
    assert!(both <= 5.0, "{both}");
}
