//! Decodes requests and encodes responses in the form of AdmissionReviews (`admission.k8s.io/v1`).
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-request-and-response>

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

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

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Request {
    /// The ID of the request, which is copied into the response.
    pub uid: String,
    /// The group, version and kind of the object.
    pub kind: [String; 3],
    /// The object's namespace; empty for cluster-scoped objects. For a Namespace it is its own
    /// name.
    pub namespace: String,
    /// The object's name; empty for a create with `generateName`.
    pub name: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: String,
    /// The new object; null for a delete.
    pub object: Arc<Value>,
    /// The old object; null for a create.
    pub old_object: Arc<Value>,
    pub dry_run: bool,
    /// The size of the review, in bytes.
    pub bytes: usize,
    /// The fields of the request except the objects.
    pub rest: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    request: Map<String, Value>,
}

impl Request {
    pub fn read(body: &[u8]) -> Result<Self, ReviewError> {
        let Envelope {
            api_version,
            kind,
            mut request,
        } = serde_json::from_slice(body)?;
        if api_version != API_VERSION || kind != "AdmissionReview" {
            return Err(ReviewError::Kind { api_version, kind });
        }
        let (object, old_object) = (request.remove("object"), request.remove("oldObject"));
        let text = |key: &str| text(request.get(key));
        let of_kind = |key: &str| text_at(request.get("kind"), key);
        let read = Self {
            uid: text("uid"),
            kind: ["group", "version", "kind"].map(of_kind),
            namespace: text("namespace"),
            name: text("name"),
            operation: text("operation"),
            subresource: text("subResource"),
            object: Arc::new(object.unwrap_or_default()),
            old_object: Arc::new(old_object.unwrap_or_default()),
            dry_run: request.get("dryRun") == Some(&Value::Bool(true)),
            bytes: body.len(),
            rest: request,
        };
        if read.uid.is_empty() || read.operation.is_empty() {
            return Err(ReviewError::NoRequest);
        }
        Ok(read)
    }

    /// Returns the name as `namespace/name`, without the namespace if there is none. An object
    /// without a name is shown as `generateName*`.
    pub fn object_name(&self) -> String {
        let meta = &self.object["metadata"];
        let name = match self.name.as_str() {
            "" => meta["name"].as_str().unwrap_or_default(),
            name => name,
        };
        let name = match name {
            "" => format!("{}*", meta["generateName"].as_str().unwrap_or_default()),
            name => name.to_owned(),
        };
        match self.namespace.as_str() {
            "" => name,
            namespace => format!("{namespace}/{name}"),
        }
    }
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn text_at(value: Option<&Value>, key: &str) -> String {
    text(value.and_then(|v| v.get(key)))
}

/// The AdmissionReview of a response. Its fields are in alphabetical order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: ResponseBody<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseBody<'a> {
    allowed: bool,
    audit_annotations: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

pub(crate) fn encode(uid: &str, response: &Response) -> Result<Vec<u8>, serde_json::Error> {
    let refused = || {
        json!({"status": "Failure", "code": response.status.0, "reason": response.status.1,
               "message": response.text})
    };
    let patch = (response.kind == ResponseKind::Mutate)
        .then(|| ByteString(response.patch.clone().into_bytes()));
    let response = ResponseBody {
        allowed: !matches!(
            response.kind,
            ResponseKind::Refuse | ResponseKind::Malformed
        ),
        audit_annotations: response.audit(),
        patch_type: patch.is_some().then_some("JSONPatch"),
        patch,
        status: (response.kind == ResponseKind::Refuse).then(refused),
        uid,
        warnings: &response.warnings,
    };
    serde_json::to_vec(&ReviewBody {
        api_version: API_VERSION,
        kind: "AdmissionReview",
        response,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let request = Request::read(&body(json!({
            "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "shop", "operation": "CREATE", "subResource": "status",
            "object": {"metadata": {"generateName": "web-"}}, "oldObject": null,
            "dryRun": true, "userInfo": {"username": "ann"},
        })))
        .unwrap();
        assert_eq!(request.kind, ["", "v1", "Pod"]);
        assert!(request.dry_run && request.old_object.is_null());
        assert_eq!(request.object_name(), "shop/web-*");
        assert_eq!(request.rest["userInfo"]["username"], "ann");
        assert!(!request.rest.contains_key("object"));
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
            let error = Request::read(bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
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
            _ = Request::read(&bytes);
        }

        #[test]
        fn response_has_the_uid_of_the_request(uid in "\\PC{1,40}") {
            let request = Request::read(&body(json!({"uid": uid, "operation": "CREATE"}))).unwrap();
            let answer = encoded(&request.uid, &Response::allow("X", ""));
            prop_assert_eq!(answer["response"]["uid"].as_str(), Some(uid.as_str()));
        }
    }
}
