//! An object as the API server has it before validation: webhooks are called after all mutating
//! policies, with their result converted and defaulted. This webhook refuses everything, and its
//! refusal contains the object.

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use kube::Client;
use serde_json::{Value, json};
use tautline_runtime::{
    http,
    tls::{ServerPem, ServerTls},
};
use tautline_tests::objects;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The code of its refusals, which nothing else has.
pub const CODE: u16 = 418;

/// Serves the objects of a rule, those in namespaces only of `namespace`, until the returned value
/// is dropped.
pub async fn serve(client: &Client, namespace: &str, rule: Value) -> Result<DropGuard> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let alpn = &["http/1.1"];
    let (cert, key) = (cert.as_str(), key.as_str());
    let tls = ServerTls::from_pem(ServerPem {
        cert,
        key,
        client_ca: None,
        alpn,
    })?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}/", listener.local_addr()?);
    let stop = CancellationToken::new();
    let handle = |request| async {
        match http::read_body(request, 32 << 20).await {
            Ok(body) => match answer(&body) {
                Ok(answer) => http::respond(200, "application/json", answer.to_string()),
                Err(error) => http::text(400, format!("{error:#}")),
            },
            Err(refusal) => refusal,
        }
    };
    let limits = http::Limits::default();
    let port = http::Port::new(limits, 32 << 20, http::PortMetrics::default());
    tokio::spawn(http::serve(listener, Some(tls), handle, port, stop.clone()));
    let webhook = json!({"name": "seen.tautline.io", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url, "caBundle": ByteString(cert.as_bytes().to_vec())},
        "rules": [rule], "sideEffects": "None", "failurePolicy": "Fail",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}});
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration", "metadata": {"name": "seen"}, "webhooks": [webhook]});
    objects::apply_one(client, configuration).await?;
    Ok(stop.drop_guard())
}

fn answer(body: &[u8]) -> Result<Value> {
    let mut review: Value = serde_json::from_slice(body)?;
    let request = review["request"].as_object_mut().context("no request")?;
    let object = request.remove("object").unwrap_or_default();
    Ok(
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
        "uid": request.get("uid"), "allowed": false,
        "status": {"code": CODE, "message": object.to_string()}}}),
    )
}

/// The object in the webhook's refusal.
pub fn object(message: &str) -> Option<Value> {
    let (_, object) = message.split_once("denied the request: ")?;
    serde_json::from_str(object).ok()
}
