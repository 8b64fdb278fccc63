//! The handler of `/mutate-policies`, an adapter to the crate `tautline-mutating-policy`, which
//! does not access a cluster itself.

mod authorizer;
mod cluster;
mod metrics;
mod objects;
mod params;
mod raw;
mod schemas;
mod store;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tautline_mutating_policy::{Outcome, Request, Settings, Verdict};

pub(crate) use cluster::Cluster;
pub(crate) use metrics::Counters;
pub(crate) use raw::RawObject;
pub(crate) use store::{ActivePolicies, PolicyStore, lines, load_warning};

use crate::{response::Response, review::Handler};

pub(crate) struct MutationHandler {
    pub store: Arc<PolicyStore>,
    pub cluster: Arc<Cluster>,
    pub counters: Counters,
    pub deadline: Duration,
}

impl MutationHandler {
    pub(crate) fn handler(self: Arc<Self>) -> Handler {
        Arc::new(move |request| {
            let handler = Arc::clone(&self);
            Box::pin(async move { handler.evaluate(request).await })
        })
    }

    async fn evaluate(&self, request: Arc<Request>) -> Response {
        let mut settings = Settings::default();
        settings.limits.deadline = Some(Instant::now() + self.deadline);
        let active = self.store.active();
        if active.policies.is_empty() {
            return Response::allow("NoPolicies", "no policy is active");
        }
        let cluster = self.cluster.for_request(&request).await;
        // Expressions may take long, and those with an authorizer wait for the API server.
        let evaluate = move || active.policies.mutate(&request, &cluster, &settings);
        let outcome = match tokio::task::spawn_blocking(evaluate).await {
            Ok(outcome) => outcome,
            // The server answers HTTP 500 and logs the panic.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Response::bypass("Stopping", "the server is stopping"),
            },
        };
        self.counters.count(&outcome);
        response(outcome)
    }
}

fn response(outcome: Outcome) -> Response {
    let annotations = outcome.audit_annotations();
    let ignored = outcome.faults.iter().filter(|f| f.ignored).count();
    let response = match outcome.verdict {
        Verdict::Unchanged if ignored > 0 => {
            let text = format!("{ignored} errors are ignored by failurePolicy Ignore");
            Response::bypass("ErrorsIgnored", text)
        }
        Verdict::Unchanged if outcome.invocations.is_empty() => {
            Response::allow("NotMatched", "no policy matches")
        }
        Verdict::Unchanged => Response::allow("Unchanged", "no policy changed the object"),
        Verdict::Changed { patch, .. } => {
            let code = if ignored > 0 {
                "MutatedInPart"
            } else {
                "Mutated"
            };
            Response::mutate(code, format!("{} changes", patch.len()), &patch)
        }
        Verdict::Refused(refusal) => Response {
            status: (refusal.code, refusal.reason),
            ..Response::refuse("PolicyFailed", refusal.message)
        },
    };
    annotations
        .into_iter()
        .fold(response, |v, (key, text)| v.detail(key, text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tautline_mutating_policy::{Policies, StaticCluster};

    use super::*;
    use crate::response::ResponseKind;

    fn policies(expression: &str, failure: &str) -> Policies {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
        let policy = json!({"apiVersion": "tautline.io/v1alpha1", "kind": "MutationPolicy",
            "metadata": {"name": "p"}, "spec": {
                "matchConstraints": {"resourceRules": [rule]}, "failurePolicy": failure,
                "reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": expression}}]}});
        let binding = json!({"apiVersion": "tautline.io/v1alpha1", "kind": "MutationPolicyBinding",
            "metadata": {"name": "b"}, "spec": {"policyName": "p"}});
        let (policies, report) = Policies::load([&policy, &binding]);
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        policies
    }

    fn review(expression: &str, failure: &str, kind: &str) -> Response {
        let rest = json!({"uid": "u", "operation": "CREATE", "namespace": "shop", "userInfo": {},
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": format!("{}s", kind.to_lowercase())}});
        let mut request: Request = serde_json::from_value(rest).unwrap();
        request.object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": "shop"},
                           "spec": {"containers": [{"name": "main", "image": "a"}]}}).into();
        let outcome = policies(expression, failure).mutate(
            &request,
            &StaticCluster::default(),
            &Settings::default(),
        );
        response(outcome)
    }

    #[test]
    fn outcomes_become_responses() {
        let label = "Object{metadata: Object.metadata{labels: {\"a\": object.metadata.name}}}";
        let changed = review(label, "Fail", "Pod");
        assert_eq!(
            (changed.kind, changed.code),
            (ResponseKind::Mutate, "Mutated")
        );
        assert_eq!(changed.details["changed-by"], "p/b");
        // Defaults are set after each mutation, so they follow in the patch.
        let first = r#"[{"op":"add","path":"/metadata/labels","value":{"a":"a"}},"#;
        assert!(changed.patch.starts_with(first), "{}", changed.patch);
        assert_eq!(review(label, "Fail", "Node").code, "NotMatched");
        let broken = "Object{metadata: Object.metadata{labels: {\"a\": object.metadata.nothing}}}";
        let refused = review(broken, "Fail", "Pod");
        assert_eq!(refused.kind, ResponseKind::Refuse);
        assert!(
            refused
                .text
                .contains("policy 'p' with binding 'b' denied request"),
            "{refused:?}"
        );
        let ignored = review(broken, "Ignore", "Pod");
        assert_eq!(
            (ignored.kind, ignored.code),
            (ResponseKind::Bypass, "ErrorsIgnored")
        );
    }
}
