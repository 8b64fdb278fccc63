//! An API server in this process with the lists that the server under test watches; they never
//! change, so the measured CPU time is only the webhooks'.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use serde_json::{Value, json};

/// An empty list of pods at version 1, in protobuf, as they are watched.
const NO_PODS: &[u8] = b"k8s\0\x12\x05\x0a\x03\x12\x011";

/// A client of that API server.
pub fn client(objects: Vec<Value>) -> Client {
    let objects = Arc::new(objects);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer(&objects, &request);
        async move { Ok::<_, Infallible>(answer) }
    });
    Client::new(service, "default")
}

fn answer(
    objects: &[Value],
    request: &Request<Body>,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let path = request.uri().path();
    let watching = request
        .uri()
        .query()
        .is_some_and(|q| q.contains("watch=true"));
    let whole = |body: Bytes| Response::new(Full::new(body).boxed_unsync());
    let (status, body) = match (request.method().as_str(), path) {
        ("GET", _) if watching => {
            return Response::new(UnsyncBoxBody::new(StreamBody::new(stream::pending())));
        }
        ("GET", "/api/v1/pods") => return whole(Bytes::from_static(NO_PODS)),
        ("GET", "/apis/mutations.example.com/v1") => (
            200,
            discovery(&[("rdmaparams", "RdmaResourcesAndAnnotationsInsertingParam")]),
        ),
        ("GET", "/api/v1") => (200, discovery(&[("namespaces", "Namespace")])),
        ("GET", path) if !path.starts_with("/openapi") => (200, list(objects, path)),
        _ => (
            404,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
            "reason": "NotFound", "message": "not here", "metadata": {}}),
        ),
    };
    let mut response = whole(Bytes::from(body.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response
}

fn discovery(kinds: &[(&str, &str)]) -> Value {
    let resource = |(name, kind): &(&str, &str)| {
        json!({"name": name, "singularName": "", "namespaced": *name != "namespaces", "kind": kind,
            "verbs": ["get", "list", "watch"]})
    };
    let resources: Vec<Value> = kinds.iter().map(resource).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "", "resources": resources})
}

fn list(objects: &[Value], path: &str) -> Value {
    let kind = match path.rsplit('/').next().unwrap_or_default() {
        "mutationpolicies" => "MutationPolicy",
        "mutationpolicybindings" => "MutationPolicyBinding",
        "rdmaparams" => "RdmaResourcesAndAnnotationsInsertingParam",
        "namespaces" => "Namespace",
        "configmaps" => "ConfigMap",
        _ => "",
    };
    let items: Vec<&Value> = objects.iter().filter(|o| o["kind"] == kind).collect();
    json!({"kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
}
