//! The handler of `/mutate-policies`, an adapter to the crate `tautline-mutating-policy`, which
//! does not access a cluster itself.

mod authorizer;
mod cluster;
mod executor;
mod metrics;
mod objects;
mod params;
mod raw;
mod schemas;
mod store;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use serde::Deserialize;
use tautline_mutating_policy::{Outcome, Verdict};

pub(crate) use cluster::Cluster;
pub(crate) use executor::Executor;
use executor::{EvaluationTask, Stopping};
pub(crate) use metrics::Counters;
pub(crate) use raw::RawObject;
pub(crate) use store::{ActivePolicies, PolicyStore, lines};

use crate::{handler::Handler, response::Response, review::Request};

pub(crate) struct MutationHandler {
    pub store: Arc<PolicyStore>,
    pub cluster: Arc<Cluster>,
    pub exempt: BTreeSet<String>,
    pub counters: Counters,
    pub deadline: Duration,
    pub executor: Executor,
}

impl Handler for MutationHandler {
    fn review(self: Arc<Self>, request: Arc<Request>) -> BoxFuture<'static, Response> {
        Box::pin(async move { self.evaluate(&request).await })
    }
}

impl MutationHandler {
    async fn evaluate(&self, request: &Request) -> Response {
        let deadline = Instant::now() + self.deadline;
        if self.exempt.contains(&request.namespace) {
            let text = format!("{} is exempt", request.namespace);
            return Response::bypass("ExemptNamespace", text);
        }
        let active = self.store.active();
        if active.policies.is_empty() {
            return Response::allow("NoPolicies", "no policy is active");
        }
        let policy_request = match read(request) {
            Ok(request) => request,
            Err(error) => return Response::malformed(format!("the request: {error}")),
        };
        let task = EvaluationTask {
            active,
            cluster: self.cluster.for_request(&policy_request).await,
            request: policy_request,
            bytes: request.bytes,
            deadline,
            may_block: self.cluster.authorizer_enabled(),
        };
        let outcome = match self.executor.evaluate(task).await {
            Ok(outcome) => outcome,
            Err(Stopping) => return Response::bypass("Stopping", "the server is stopping"),
        };
        self.counters.count(&outcome);
        response(outcome)
    }
}

fn read(request: &Request) -> Result<tautline_mutating_policy::Request, serde_json::Error> {
    Ok(tautline_mutating_policy::Request {
        object: Arc::clone(&request.object),
        old_object: Arc::clone(&request.old_object),
        ..tautline_mutating_policy::Request::deserialize(&request.rest)?
    })
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
    use tautline_mutating_policy::{Policies, Settings, StaticCluster};

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
        let request = Request {
            object: json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": "shop"},
                           "spec": {"containers": [{"name": "main", "image": "a"}]}}).into(),
            rest: rest.as_object().cloned().unwrap_or_default(),
            ..Request::default()
        };
        let policy_request = read(&request).unwrap();
        let outcome = policies(expression, failure).mutate(
            &policy_request,
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
