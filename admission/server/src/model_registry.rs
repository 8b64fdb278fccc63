//! The handlers for the kinds of Kthena's model registry, an adapter to the crate
//! `tautline-model-registry`.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kube::{
    Api, Client,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
};
use tautline_core::dns;
use tautline_model_registry::{
    FieldError, Kind, defaults, message, missing_policy, policy_ref, review,
};
use tautline_runtime::error_text::error_text;

use crate::{
    handler::{Handler, Route, Routes, SyncHandler},
    response::Response,
    review::Request,
};

const LOOKUP_DEADLINE: Duration = Duration::from_secs(3);

/// Adds the routes of Kthena's former and current paths.
pub(crate) fn routes(client: &Client, routes: &mut Routes) {
    let validate: Arc<dyn Handler> = Arc::new(Validate {
        client: client.clone(),
    });
    let mutate: Arc<dyn Handler> = Arc::new(SyncHandler(set_defaults));
    let validated = [
        "/validate-registry-volcano-sh-v1alpha1-model",
        "/validate-registry-volcano-sh-v1alpha1-autoscalingpolicy",
        "/validate-registry-volcano-sh-v1alpha1-autoscalingpolicybinding",
        "/validate/modelbooster",
        "/validate/autoscalingpolicy",
        "/validate/autoscalingpolicybinding",
    ];
    let mutated = [
        "/mutate-registry-volcano-sh-v1alpha1-model",
        "/mutate-registry-volcano-sh-v1alpha1-autoscalingpolicy",
        "/mutate/modelbooster",
        "/mutate/autoscalingpolicy",
    ];
    let jobs = [
        ("validate-models", &validate, &validated[..]),
        ("mutate-models", &mutate, &mutated[..]),
    ];
    for (name, handler, paths) in jobs {
        for path in paths {
            let handler = Arc::clone(handler);
            routes.insert(path, Route { name, handler });
        }
    }
}

fn other_kind(request: &Request) -> Response {
    let text = format!("{} is not a kind of the model registry", request.kind[2]);
    Response::bypass("OtherKind", text)
}

fn set_defaults(request: &Request) -> Response {
    let Some(kind) = Kind::named(&request.kind[2]) else {
        return other_kind(request);
    };
    if request.object.is_null() {
        return Response::allow("Deleted", "");
    }
    let old = Some(&*request.old_object).filter(|o| !o.is_null());
    let errors = review(kind, &request.object, old).err().unwrap_or_default();
    if errors.iter().any(FieldError::is_malformed) {
        return Response::malformed(message(&errors));
    }
    let patch = defaults(kind, &request.object);
    let paths: Vec<&str> = patch.iter().filter_map(|op| op["path"].as_str()).collect();
    if paths.is_empty() {
        Response::allow("Complete", "")
    } else {
        Response::mutate("Defaulted", paths.join(", "), &patch)
    }
}

struct Validate {
    client: Client,
}

impl Handler for Validate {
    fn review(self: Arc<Self>, request: Arc<Request>) -> BoxFuture<'static, Response> {
        Box::pin(async move { self.judge(&request).await })
    }
}

impl Validate {
    async fn judge(&self, request: &Request) -> Response {
        let Some(kind) = Kind::named(&request.kind[2]) else {
            return other_kind(request);
        };
        if request.object.is_null() {
            return Response::allow("Deleted", "");
        }
        let old = Some(&*request.old_object).filter(|o| !o.is_null());
        let mut errors = review(kind, &request.object, old).err().unwrap_or_default();
        if errors.iter().any(FieldError::is_malformed) {
            return Response::malformed(message(&errors));
        }
        let mut response = Response::allow("Valid", "");
        let name = policy_ref(&request.object);
        let known = old.is_some_and(|old| policy_ref(old) == name);
        if kind == Kind::AutoscalingPolicyBinding && !name.is_empty() && !known {
            match self.policy_exists(request, name).await {
                Some(true) => {}
                Some(false) => errors.push(missing_policy(&request.object)),
                None => {
                    let text = format!("cannot check whether AutoscalingPolicy {name} exists");
                    response = response.warn(text);
                }
            }
        }
        if errors.is_empty() {
            response
        } else {
            Response::refuse("Invalid", message(&errors))
        }
    }

    async fn policy_exists(&self, request: &Request, name: &str) -> Option<bool> {
        if !dns::is_subdomain(name) {
            return Some(false);
        }
        let [group, version, _] = &request.kind;
        let gvk = GroupVersionKind::gvk(group, version, "AutoscalingPolicy");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "autoscalingpolicies");
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &request.namespace, &resource);
        match tokio::time::timeout(LOOKUP_DEADLINE, api.get_metadata(name)).await {
            Ok(Ok(_)) => Some(true),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                // If the kind is not served, the response does not name an object.
                let details = status.details.as_ref();
                details.is_some_and(|d| d.name == name).then_some(false)
            }
            Ok(Err(error)) => {
                let error = error_text(&error);
                tracing::debug!(error, name, "cannot look up an AutoscalingPolicy");
                None
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::response::ResponseKind;

    #[test]
    fn malformed_objects_get_no_defaults() {
        let kind = ["registry.volcano.sh", "v1alpha1", "AutoscalingPolicy"].map(str::to_owned);
        let request = Request {
            kind,
            operation: "CREATE".into(),
            object: json!({"spec": {"metrics": [], "behavior": "fast"}}).into(),
            ..Request::default()
        };
        let response = set_defaults(&request);
        assert_eq!(response.kind, ResponseKind::Malformed);
        assert!(response.text.contains("spec.behavior"), "{}", response.text);
        // The removal of finalizers must succeed.
        let mut dying = (*request.object).clone();
        dying["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let dying = Request {
            old_object: Arc::clone(&request.object),
            object: dying.into(),
            ..request.clone()
        };
        assert_ne!(set_defaults(&dying).kind, ResponseKind::Malformed);
        let gone = Request {
            object: json!(null).into(),
            ..request
        };
        assert_eq!(set_defaults(&gone).kind, ResponseKind::Allow);
    }

    #[test]
    fn defaults_are_patched_and_other_kinds_bypassed() {
        let request = |kind: &str, spec| Request {
            kind: ["registry.volcano.sh".into(), "v1alpha1".into(), kind.into()],
            operation: "CREATE".into(),
            object: json!({"spec": spec}).into(),
            ..Request::default()
        };
        let filled = set_defaults(&request("AutoscalingPolicy", json!({"metrics": []})));
        assert_eq!(
            (filled.kind, filled.code),
            (ResponseKind::Mutate, "Defaulted")
        );
        assert_eq!(
            set_defaults(&request("Model", json!({"backends": []}))).code,
            "Complete"
        );
        assert_eq!(
            set_defaults(&request("Pod", json!({}))).kind,
            ResponseKind::Bypass
        );
    }
}
