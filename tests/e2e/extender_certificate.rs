//! The extender's generated certificate: replicas share it, kube-scheduler trusts the copied CA
//! and shows the client certificate, and a rotation changes neither.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;
use tautline_tests::{
    PATIENCE,
    control_plane::ControlPlane,
    eventually, loopback, objects, root,
    servers::{Server, binary, insecure_post},
};

use crate::placement::gated_pod;

const SECRET: &str = "tautline-extender-generated-tls";

/// The arguments of deploy/with-bind, with a lifetime that the test can wait for.
const ARGS: &[&str] = &[
    "extender",
    "--bind",
    "--tls-secret=tautline-extender-generated-tls",
    "--require-client-cert",
    "--tls-name=127.0.0.1",
    "--certificate-lifetime=24s",
];

async fn secret(plane: &ControlPlane) -> BTreeMap<String, String> {
    let secrets: Api<Secret> = Api::namespaced(plane.client.clone(), "tautline-system");
    let data = secrets.get(SECRET).await.unwrap().data.unwrap();
    let text = |(key, value): (String, k8s_openapi::ByteString)| {
        (key, String::from_utf8(value.0).unwrap())
    };
    data.into_iter().map(text).collect()
}

/// A file with the CA, and with the client's certificate as the first of a chain, beside the key.
fn scheduler_files(plane: &ControlPlane, secret: &BTreeMap<String, String>) -> PathBuf {
    let path = plane.dir.path().join("copied.crt");
    let chain = secret["client.crt"].clone() + &secret["ca.crt"];
    std::fs::write(&path, chain).unwrap();
    std::fs::write(path.with_extension("key"), &secret["client.key"]).unwrap();
    path
}

async fn binds(plane: &ControlPlane, extender: &Server, pod: &str) {
    gated_pod(&plane.client, pod, pod).await;
    let state = async || extender.process.tail() + &plane.logs();
    objects::wait_until_bound(&plane.client, "default", pod, state).await;
}

#[tokio::test]
async fn extender_generates_its_certificate() {
    let mut plane = ControlPlane::start().await.unwrap();
    objects::apply_kustomization(&plane.client, &root().join("deploy/with-bind"))
        .await
        .unwrap();
    plane.start_kwok().await.unwrap();
    objects::node(&plane.client, "n1", json!({})).await.unwrap();
    let binary = binary().unwrap();
    let start = async |name| Server::start_named(&plane, &binary, ("extender", name), ARGS).await;
    let (first, second) = (start("extender-a").await, start("extender-b").await);
    let (first, second) = (first.unwrap(), second.unwrap());
    let made = secret(&plane).await;
    let files = scheduler_files(&plane, &made);

    // Clients without the certificate are refused by both.
    for extender in [&first, &second] {
        let url = format!("https://127.0.0.1:{}/filter", extender.port);
        assert!(insecure_post(&url, b"{}").await.is_err());
    }
    let url = format!("https://127.0.0.1:{}", first.port);
    let sample = Some(("gated-gpu.yaml", url.as_str(), files.as_path()));
    plane.start_scheduler(sample).await.unwrap();
    binds(&plane, &first, "before").await;

    let old = loopback::certificate(first.port).await.unwrap();
    let condition = async || {
        let served = loopback::certificate(first.port).await.ok()?;
        let other = loopback::certificate(second.port).await.ok()?;
        (served != old && served == other).then_some(())
    };
    eventually(
        "both replicas serve the next certificate",
        PATIENCE,
        condition,
        async || first.process.tail() + &second.process.tail(),
    )
    .await;
    let next = secret(&plane).await;
    for key in ["ca.crt", "client.crt", "client.key"] {
        assert_eq!(made[key], next[key], "{key}");
    }
    assert_ne!(made["generations.json"], next["generations.json"]);

    // New connections, with the files from before.
    plane.stop_scheduler();
    plane.start_scheduler(sample).await.unwrap();
    binds(&plane, &first, "after").await;
    let bound = "tautline_extender_binds_total{outcome=\"bound\"}";
    first.wait_for_metric(bound, 2.0).await;
    assert!(first.metric("tautline_extender_certificate_expiry").await > 0.0);
}
