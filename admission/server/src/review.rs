//! Decodes requests, passes them to the handlers of their paths, and encodes responses, in the form
//! of AdmissionReviews (`admission.k8s.io/v1`).
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-request-and-response>

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    sync::Arc,
};

use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::json;
use tautline_mutating_policy::Request;

use crate::response::{Response, ResponseKind};

const API_VERSION: &str = "admission.k8s.io/v1";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error("the body is not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "the body is {api_version:?} {kind:?}; expected admission.k8s.io/v1 AdmissionReview: \
         set admissionReviewVersions: [v1] in the webhook configuration"
    )]
    Kind { api_version: String, kind: String },
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
}

/// Reviews requests, whose content is untrusted user input.
pub(crate) type Handler = Arc<dyn Fn(Arc<Request>) -> BoxFuture<'static, Response> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Route {
    pub name: &'static str,
    pub handler: Handler,
}

/// The routes by the paths of the webhooks.
pub(crate) type Routes = BTreeMap<&'static str, Route>;

/// Returns a handler that does not wait.
pub(crate) fn sync_handler(
    review: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> Handler {
    Arc::new(move |request: Arc<Request>| Box::pin(ready(review(&request))))
}

/// Returns a handler that bypasses requests in exempt namespaces.
pub(crate) fn except_in(exempt: BTreeSet<String>, handler: Handler) -> Handler {
    Arc::new(move |request| {
        if !exempt.contains(&request.namespace) {
            return handler(request);
        }
        let text = format!("{} is exempt", request.namespace);
        Box::pin(ready(Response::bypass("ExemptNamespace", text)))
    })
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Envelope {
    api_version: String,
    kind: String,
    request: Request,
}

/// Decodes the request of an AdmissionReview.
pub(crate) fn decode(body: &[u8]) -> Result<Request, ReviewError> {
    let Envelope {
        api_version,
        kind,
        request,
    } = serde_json::from_slice(body)?;
    if api_version != API_VERSION || kind != "AdmissionReview" {
        return Err(ReviewError::Kind { api_version, kind });
    }
    if request.uid.is_empty() || request.operation.is_empty() {
        return Err(ReviewError::NoRequest);
    }
    Ok(request)
}

/// Returns the object's name as `namespace/name`, without the namespace if there is none. An object
/// without a name is shown as `generateName*`.
pub(crate) fn object_name(request: &Request) -> String {
    let meta = &request.object["metadata"];
    let name = match request.name.as_str() {
        "" => meta["name"].as_str().unwrap_or_default(),
        name => name,
    };
    let name = match name {
        "" => format!("{}*", meta["generateName"].as_str().unwrap_or_default()),
        name => name.to_owned(),
    };
    match request.namespace.as_str() {
        "" => name,
        namespace => format!("{namespace}/{name}"),
    }
}

pub(crate) fn encode(uid: &str, response: &Response) -> Result<Vec<u8>, serde_json::Error> {
    let allowed = !matches!(
        response.kind,
        ResponseKind::Refuse | ResponseKind::Malformed
    );
    let mut body = json!({"allowed": allowed, "auditAnnotations": response.audit(), "uid": uid});
    match response.kind {
        ResponseKind::Mutate => {
            body["patch"] = json!(ByteString(response.patch.clone().into_bytes()));
            body["patchType"] = "JSONPatch".into();
        }
        ResponseKind::Refuse => {
            let (code, reason) = response.status;
            body["status"] = json!({"status": "Failure", "code": code, "reason": reason,
                "message": response.text});
        }
        _ => {}
    }
    if !response.warnings.is_empty() {
        body["warnings"] = json!(response.warnings);
    }
    let review = json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": body});
    serde_json::to_vec(&review)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn body(request: Value) -> Vec<u8> {
        json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request})
            .to_string()
            .into_bytes()
    }

    fn encoded(uid: &str, response: &Response) -> Value {
        serde_json::from_slice(&encode(uid, response).unwrap()).unwrap()
    }

    #[test]
    fn request_keeps_all_fields() {
        let request = decode(&body(json!({
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "shop", "operation": "CREATE", "subResource": "status",
            "object": {"metadata": {"generateName": "web-"}}, "oldObject": null,
            "dryRun": true, "userInfo": {"username": "ann"},
        })))
        .unwrap();
        let kind = &request.kind;
        assert_eq!(
            [&*kind.group, &*kind.version, &*kind.kind],
            ["", "v1", "Pod"]
        );
        assert!(request.dry_run && request.old_object.is_null());
        assert_eq!(object_name(&request), "shop/web-*");
        assert_eq!(request.user_info["username"], "ann");
        assert_eq!(request.sub_resource, "status");
    }

    #[test]
    fn other_bodies_are_refused() {
        let cases = [
            (&b"{"[..], "not an AdmissionReview"),
            (b"1", "not an AdmissionReview"),
            (
                br#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#,
                "admissionReviewVersions",
            ),
            (
                br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
                "no request with a uid",
            ),
        ];
        for (bytes, expected) in cases {
            let error = decode(bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn exempt_namespaces_are_bypassed() {
        let allow = sync_handler(|_| Response::allow("Ok", ""));
        let handler = except_in(["shop".to_owned()].into(), allow);
        for (namespace, code) in [("shop", "ExemptNamespace"), ("other", "Ok")] {
            let request = Request {
                namespace: namespace.to_owned(),
                ..Request::default()
            };
            assert_eq!(handler(Arc::new(request)).await.code, code);
        }
    }

    #[test]
    fn responses_of_each_kind() {
        let patch = [json!({"op": "remove", "path": "/a"})];
        let verdicts = [
            Response::allow("NotOptedIn", "no annotation").warn("look out".into()),
            Response::mutate("Annotation", "ratio 4", &patch),
            Response::refuse("BadRatio", "castops.io/slice-ratio: 65 is above 64"),
            Response::bypass("Exempt", "kube-system"),
        ];
        let answers: Vec<Value> = verdicts.iter().map(|v| encoded("u", v)).collect();
        let text = serde_json::to_string_pretty(&answers).unwrap();
        insta::assert_snapshot!("answers", text);
    }

    proptest! {
        #[test]
        fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            _ = decode(&bytes);
        }

        #[test]
        fn response_has_the_uid_of_the_request(uid in "\\PC{1,40}") {
            let request = decode(&body(json!({"uid": uid, "operation": "CREATE"}))).unwrap();
            let answer = encoded(&request.uid, &Response::allow("X", ""));
            prop_assert_eq!(answer["response"]["uid"].as_str(), Some(uid.as_str()));
        }
    }
}
