//! The `authorizer` of expressions, with a cache of decisions. It is off by default.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tautline_cel::{AccessCheck, Decision, EvaluationError, Subject};
use tautline_mutating_policy::Request;
use tokio::runtime::Handle;

use crate::access;

const CACHE_TTL: Duration = Duration::from_secs(10);
const MAX_CACHED_DECISIONS: usize = 4096;

pub(crate) struct Authorizer {
    client: Client,
    cache: Mutex<HashMap<String, (Decision, Instant)>>,
}

impl Authorizer {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            cache: Mutex::default(),
        }
    }

    /// Returns a decision. The call blocks, so it must be on a thread that may block.
    pub(crate) fn authorize(
        &self,
        request: &Request,
        check: &AccessCheck,
        verb: &str,
    ) -> Result<Decision, EvaluationError> {
        let spec = spec(request, check, verb)?;
        let key = spec.to_string();
        let now = Instant::now();
        if let Some((known, until)) = self.cache.lock().get(&key)
            && now < *until
        {
            return Ok(known.clone());
        }
        let decision = Handle::current().block_on(self.review(spec))?;
        let mut known = self.cache.lock();
        if known.len() >= MAX_CACHED_DECISIONS {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() < MAX_CACHED_DECISIONS {
            known.insert(key, (decision.clone(), now + CACHE_TTL));
        }
        Ok(decision)
    }

    async fn review(&self, spec: Value) -> Result<Decision, EvaluationError> {
        let answer = access::subject_access_review(&self.client, spec).await;
        let status = answer.map_err(|e| {
            EvaluationError::failed(format!("cannot check access: {}", e.message()))
        })?;
        Ok(Decision {
            allowed: status.allowed,
            reason: status.reason.unwrap_or_default(),
            error: status.evaluation_error.filter(|e| !e.is_empty()),
        })
    }
}

fn spec(request: &Request, check: &AccessCheck, verb: &str) -> Result<Value, EvaluationError> {
    let (subject, field, attributes) = match check {
        AccessCheck::Path { subject, path } => (
            subject,
            "nonResourceAttributes",
            json!({"path": &**path, "verb": verb}),
        ),
        AccessCheck::Resource(r) => {
            let mut attributes = json!({
                "group": &*r.group, "version": "*", "resource": &*r.resource,
                "subresource": &*r.subresource, "namespace": &*r.namespace, "name": &*r.name,
                "verb": verb,
            });
            let selectors = [
                ("fieldSelector", &r.field_selector),
                ("labelSelector", &r.label_selector),
            ];
            for (field, selector) in selectors.into_iter().filter(|(_, s)| !s.is_empty()) {
                attributes[field] = json!({"rawSelector": &**selector});
            }
            (&r.subject, "resourceAttributes", attributes)
        }
        AccessCheck::Group { .. } => {
            return Err(EvaluationError::failed(
                "an access check names a resource or a path",
            ));
        }
    };
    let mut spec = match &**subject {
        Subject::Requester => access::requester(&request.user_info),
        Subject::ServiceAccount { namespace, name } => json!({
            "user": format!("system:serviceaccount:{namespace}:{name}"),
            "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"),
                       "system:authenticated"],
        }),
    };
    spec[field] = attributes;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::authorization::v1::SubjectAccessReview;
    use tautline_cel::ResourceCheck;

    use super::*;

    #[test]
    fn checks_become_subject_access_reviews() {
        let request = Request {
            user_info: json!({"username": "ann", "groups": ["dev"]}),
            ..Request::default()
        };
        let path = AccessCheck::Path {
            subject: Arc::new(Subject::Requester),
            path: "/healthz".into(),
        };
        let review = spec(&request, &path, "get").unwrap();
        assert_eq!(review["user"], "ann");
        assert_eq!(
            review["nonResourceAttributes"],
            json!({"path": "/healthz", "verb": "get"})
        );
        let account = Subject::ServiceAccount {
            namespace: "shop".into(),
            name: "bot".into(),
        };
        let resource = AccessCheck::Resource(ResourceCheck {
            subject: Arc::new(account),
            group: "apps".into(),
            resource: "deployments".into(),
            subresource: "".into(),
            namespace: "shop".into(),
            name: "".into(),
            field_selector: "".into(),
            label_selector: "a=b".into(),
        });
        let review = spec(&request, &resource, "list").unwrap();
        assert_eq!(review["user"], "system:serviceaccount:shop:bot");
        let attributes = &review["resourceAttributes"];
        assert_eq!(attributes["labelSelector"], json!({"rawSelector": "a=b"}));
        assert!(
            serde_json::from_value::<SubjectAccessReview>(json!({"metadata": {}, "spec": review}))
                .is_ok()
        );
    }
}
