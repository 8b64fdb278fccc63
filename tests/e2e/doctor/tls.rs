//! Broken certificates and webhooks.

use k8s_openapi::{ByteString, jiff::Timestamp};
use serde_json::json;
use tautline_tests::{servers::Server, workloads::scale};

use super::installation::{DEPLOYMENT, EXTENDER, Installation, NAMESPACE, certificate as generate};

async fn certificate_of(i: &Installation, check: &str, level: &str, text: &str) {
    let object = "Secret tautline-system/tautline-extender-tls";
    i.finds(level, check, object, text, "docs/extender.md")
        .await;
    i.certificate(EXTENDER, 2100).await;
    i.mended(check, object).await;
}

pub async fn certificate(i: &Installation) {
    i.delete("v1", "Secret", "tautline-extender-tls").await;
    certificate_of(i, "CertificateMissing", "problem", "does not exist").await;

    let (cert, key) = generate(EXTENDER, 2100, 1, 1);
    i.secret(json!({"tls.crt": cert})).await;
    certificate_of(i, "CertificateIncomplete", "problem", "has no tls.key").await;

    let (other, _) = generate(EXTENDER, 2100, 1, 1);
    i.secret(json!({"tls.crt": other, "tls.key": key})).await;
    certificate_of(
        i,
        "CertificateInvalid",
        "problem",
        "tls.key does not fit tls.crt",
    )
    .await;

    i.certificate(EXTENDER, 2021).await;
    certificate_of(
        i,
        "CertificateExpired",
        "problem",
        "the certificate expired",
    )
    .await;

    let soon = Timestamp::now().as_second() + 6 * 24 * 3600;
    let soon = Timestamp::from_second(soon).unwrap();
    let date = |format: &str| soon.strftime(format).to_string();
    let year = date("%Y").parse().unwrap();
    let (month, day) = (date("%m").parse().unwrap(), date("%d").parse().unwrap());
    let (cert, key) = generate(EXTENDER, year, month, day);
    i.secret(json!({"tls.crt": cert, "tls.key": key})).await;
    certificate_of(i, "CertificateExpiring", "warning", "expires in 5 days").await;

    i.certificate("other.example", 2100).await;
    let text = "is for other.example, not for tautline-extender.tautline-system.svc";
    certificate_of(i, "CertificateName", "problem", text).await;
}

/// The last of all: the API server does not reach the webhooks' Service here.
pub async fn webhooks(i: &Installation) {
    const KIND: &str = "ValidatingWebhookConfiguration";
    let client = &i.plane.client;
    let name = "tautline-own-resources";
    let object = format!("{KIND} {name}");
    for file in [
        "own-resources",
        "gpu-slices",
        "mutation-policies",
        "model-registry",
    ] {
        i.apply(&format!("webhooks/{file}.yaml")).await;
    }
    let logs = "kubectl -n tautline-system logs deploy/tautline-admission";
    i.finds("problem", "WebhookWithoutCa", &object, "no caBundle", logs)
        .await;
    let secret = "Secret tautline-system/tautline-admission-tls";
    i.finds(
        "problem",
        "CertificateMissing",
        secret,
        "no certificate",
        logs,
    )
    .await;

    // The real server makes its certificate and writes the caBundles.
    let server = Server::admission(&i.plane, "admission", &[]).await.unwrap();
    i.mended("WebhookWithoutCa", "").await;
    i.mended("CertificateMissing", secret).await;
    i.healthy().await;
    drop(server);

    let bundle = i.ca_bundle(KIND, name).await;
    let (other, _) = generate("ca", 2100, 1, 1);
    i.set_ca_bundle(KIND, name, json!(ByteString(other.into_bytes())))
        .await;
    let text = "has no CA of the Secret tautline-system/tautline-admission-tls";
    i.finds("problem", "WebhookCaMismatch", &object, text, logs)
        .await;
    i.set_ca_bundle(KIND, name, bundle).await;
    i.mended("WebhookCaMismatch", &object).await;

    scale(client, NAMESPACE, "tautline-admission", 0)
        .await
        .unwrap();
    let slices = "MutatingWebhookConfiguration tautline-gpu-slices";
    i.finds(
        "problem",
        "WebhookNotReady",
        &object,
        "refuses its objects",
        "get pods",
    )
    .await;
    i.finds(
        "warning",
        "WebhookNotReady",
        slices,
        "the webhook is skipped",
        "get pods",
    )
    .await;
    scale(client, NAMESPACE, "tautline-admission", 2)
        .await
        .unwrap();
    i.mended("WebhookNotReady", "").await;

    i.delete("v1", "Service", "tautline-admission").await;
    let text = "the Service tautline-system/tautline-admission does not exist";
    i.finds(
        "problem",
        "WebhookServiceMissing",
        &object,
        text,
        "kubectl apply",
    )
    .await;
    i.delete(DEPLOYMENT.0, DEPLOYMENT.1, "tautline-admission")
        .await;
    let text = "webhook configurations name it";
    i.finds(
        "problem",
        "ComponentMissing",
        "admission server",
        text,
        "kubectl apply",
    )
    .await;
    i.apply("base/admission.yaml").await;
    i.mended("WebhookServiceMissing", &object).await;
    i.mended("ComponentMissing", "admission server").await;
}
