//! Certificates from files that another program renews and publishes to the API server, as
//! cert-manager does.

use std::path::Path;

use k8s_openapi::ByteString;
use kube::api::{Patch, PatchParams};
use tautline_tests::loopback;

use super::{gpu_sharing::SLICES, *};

/// Writes a new certificate that is its own CA; returns it as PEM and DER.
fn renew(dir: &Path) -> (String, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(dir.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(dir.join("tls.crt"), made.cert.pem()).unwrap();
    (made.cert.pem(), made.cert.der().to_vec())
}

/// Writes the trusted CAs into the webhook configuration.
async fn inject(world: &AdmissionCluster, ca: &str) {
    let client = json!({"caBundle": ByteString(ca.as_bytes().to_vec())});
    let hook = json!({"name": "gpu-slices.tautline.io", "clientConfig": client});
    Api::<MutatingWebhookConfiguration>::all(world.client().clone())
        .patch(
            SLICES[0],
            &PatchParams::default(),
            &Patch::Strategic(json!({"webhooks": [hook]})),
        )
        .await
        .unwrap();
}

fn sliced(response: &objects::Response) -> bool {
    response.body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu-shared"] == "2"
}

#[tokio::test]
async fn certificate_files_are_reloaded_without_a_lost_request() {
    let plane = ControlPlane::start().await.unwrap();
    let dir = plane.dir.path().to_owned();
    let (first, first_der) = renew(&dir);
    let file = |name: &str| dir.join(name).display().to_string();
    let files = [
        format!("--tls-cert={}", file("tls.crt")),
        format!("--tls-key={}", file("tls.key")),
    ];
    let args = files.each_ref().map(String::as_str);
    let world = AdmissionCluster::on(plane, &args).await.unwrap();
    for document in rendered(SLICES, &world.url()).unwrap() {
        objects::apply_one(world.client(), document).await.unwrap();
    }
    inject(&world, &first).await;
    let optimize = json!({"castops.io/optimize": "true"});
    let pod = gpu_sharing::pod("default", "a", optimize, json!({}));
    gpu_sharing::until(&world, "pods get shares", &pod, sliced).await;
    let served = async || loopback::certificate(world.server.port).await.unwrap();
    assert_eq!(served().await, first_der);

    let must = async |when: &str| {
        let response = gpu_sharing::create(&world, &pod, true).await;
        assert!(sliced(&response), "{when}: {response:?}\n{}", world.state());
    };
    let (second, second_der) = renew(&dir);
    inject(&world, &format!("{first}{second}")).await;
    let check = async || {
        must("both are trusted").await;
        (served().await == second_der).then_some(())
    };
    eventually(
        "the new certificate is served",
        PATIENCE,
        check,
        async || world.state(),
    )
    .await;
    inject(&world, &second).await;
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(2);
    while tokio::time::Instant::now() < until {
        must("the old one is not trusted any more").await;
    }

    // Files that do not load: the last good ones stay.
    std::fs::write(dir.join("tls.crt"), "garbage").unwrap();
    let check = async || {
        must("the file is garbage").await;
        world
            .server
            .process
            .log()
            .contains("keeping the old")
            .then_some(())
    };
    eventually("the server says so", PATIENCE, check, async || {
        world.state()
    })
    .await;
    must("the file is garbage").await;
    // The server wrote nothing of its own.
    assert_eq!(world.bundles().await.unwrap(), [second]);
    let expiry = "tautline_admission_certificate_expiry_timestamp_seconds";
    assert_eq!(world.server.metric(expiry).await, 0.0);
}
