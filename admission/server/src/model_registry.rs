//! The handlers for the kinds of Kthena's model registry, an adapter to the crate
//! `tautline-model-registry`.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;
use tautline_core::dns;
use tautline_model_registry::{
    FieldError, Kind, defaults, message, missing_policy, policy_ref, review,
};
use tautline_mutating_policy::Request;
use tautline_runtime::api_call::{self, ApiCallError};

use crate::{
    response::Response,
    review::{Handler, Route, Routes, sync_handler},
};

const LOOKUP_DEADLINE: Duration = Duration::from_secs(3);

/// Adds the routes of Kthena's former and current paths.
pub(crate) fn routes(client: &Client, routes: &mut Routes) {
    let client = client.clone();
    let validate: Handler = Arc::new(move |request: Arc<Request>| {
        let client = client.clone();
        Box::pin(async move { validate(&client, &request).await })
    });
    let mutate = sync_handler(set_defaults);
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
    let handlers = [
        ("validate-models", &validate, &validated[..]),
        ("mutate-models", &mutate, &mutated[..]),
    ];
    for (name, handler, paths) in handlers {
        for path in paths {
            let handler = Arc::clone(handler);
            routes.insert(path, Route { name, handler });
        }
    }
}

/// Returns the kind and the errors of a new or changed object, or the answer to a request that needs
/// no further review.
fn errors(request: &Request) -> Result<(Kind, Vec<FieldError>), Box<Response>> {
    let Some(kind) = Kind::named(&request.kind.kind) else {
        let text = format!("{} is not a kind of the model registry", request.kind.kind);
        return Err(Response::bypass("OtherKind", text).into());
    };
    if request.object.is_null() {
        return Err(Response::allow("Deleted", "").into());
    }
    let errors = review(kind, &request.object, old(request))
        .err()
        .unwrap_or_default();
    if errors.iter().any(FieldError::is_malformed) {
        return Err(Response::malformed(message(&errors)).into());
    }
    Ok((kind, errors))
}

fn old(request: &Request) -> Option<&Value> {
    Some(&*request.old_object).filter(|o| !o.is_null())
}

fn set_defaults(request: &Request) -> Response {
    let kind = match errors(request) {
        Ok((kind, _)) => kind,
        Err(response) => return *response,
    };
    let patch = defaults(kind, &request.object);
    let paths: Vec<&str> = patch.iter().filter_map(|op| op["path"].as_str()).collect();
    if paths.is_empty() {
        Response::allow("Complete", "")
    } else {
        Response::mutate("Defaulted", paths.join(", "), &patch)
    }
}

async fn validate(client: &Client, request: &Request) -> Response {
    let (kind, mut errors) = match errors(request) {
        Ok(checked) => checked,
        Err(response) => return *response,
    };
    let mut response = Response::allow("Valid", "");
    let name = policy_ref(&request.object);
    let known = old(request).is_some_and(|old| policy_ref(old) == name);
    if kind == Kind::AutoscalingPolicyBinding && !name.is_empty() && !known {
        match policy_exists(client, request, name).await {
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

async fn policy_exists(client: &Client, request: &Request, name: &str) -> Option<bool> {
    if !dns::is_subdomain(name) {
        return Some(false);
    }
    let kind = &request.kind;
    let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, "AutoscalingPolicy");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "autoscalingpolicies");
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &request.namespace, &resource);
    match api_call::within(LOOKUP_DEADLINE, api.get_metadata(name)).await {
        Ok(_) => Some(true),
        Err(ApiCallError::Failed(kube::Error::Api(status))) if status.code == 404 => {
            // If the kind is not served, the response does not name an object.
            let details = status.details.as_ref();
            details.is_some_and(|d| d.name == name).then_some(false)
        }
        Err(error) => {
            tracing::debug!(%error, name, "cannot look up an AutoscalingPolicy");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::response::ResponseKind;

    fn of_kind(kind: &str) -> tautline_mutating_policy::Kind {
        tautline_mutating_policy::Kind {
            group: "registry.volcano.sh".into(),
            version: "v1alpha1".into(),
            kind: kind.into(),
        }
    }

    #[test]
    fn malformed_objects_get_no_defaults() {
        let request = Request {
            kind: of_kind("AutoscalingPolicy"),
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
            kind: of_kind(kind),
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
