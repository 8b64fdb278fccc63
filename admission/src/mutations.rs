//! `/mutate-policies`: mutation policies, as the API server runs its own. An
//! adapter onto `tautline-mutation`, which knows no cluster: what it asks of one
//! is watched or fetched before it runs.

mod metrics;
mod objects;
mod params;
mod raw;
mod schemas;
mod store;
mod world;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use serde_json::Value;
use tautline_mutation::{Outcome, Settings, Verdict as Became};

pub(crate) use metrics::Counters;
pub(crate) use raw::Raw;
pub(crate) use store::{InForce, Store, told};
pub(crate) use world::Cluster;

use crate::{
    job::{Job, Verdict},
    review::Request,
};

/// The job.
pub(crate) struct Mutations {
    pub store: Arc<Store>,
    pub cluster: Arc<Cluster>,
    pub exempt: BTreeSet<String>,
    pub counters: Counters,
    /// For a whole request.
    pub deadline: Duration,
}

impl Job for Mutations {
    fn review(self: Arc<Self>, request: Arc<Request>) -> BoxFuture<'static, Verdict> {
        Box::pin(async move { self.judge(&request).await })
    }
}

impl Mutations {
    async fn judge(&self, request: &Request) -> Verdict {
        let by = Instant::now() + self.deadline;
        if self.exempt.contains(&request.namespace) {
            let text = format!("{} is exempt", request.namespace);
            return Verdict::bypass("ExemptNamespace", text);
        }
        let in_force = self.store.now();
        if in_force.policies.is_empty() {
            return Verdict::allow("NoPolicies", "no policy is in force");
        }
        let asked = match read(request) {
            Ok(asked) => asked,
            Err(error) => return Verdict::malformed(format!("the request: {error}")),
        };
        let world = self.cluster.around(&asked).await;
        let mut settings = Settings::default();
        settings.limits.deadline = Some(by);
        let work = move || in_force.policies.mutate(&asked, &world, &settings);
        let outcome = match tokio::task::spawn_blocking(work).await {
            Ok(outcome) => outcome,
            // It becomes a failed review: HTTP 500 and a log line.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Verdict::bypass("Stopping", "the server is stopping"),
            },
        };
        self.counters.count(&outcome);
        verdict(outcome)
    }
}

fn read(request: &Request) -> Result<tautline_mutation::Request, serde_json::Error> {
    let rest = Value::Object(request.rest.clone());
    Ok(tautline_mutation::Request {
        object: Arc::clone(&request.object),
        old_object: Arc::clone(&request.old_object),
        ..serde_json::from_value(rest)?
    })
}

fn verdict(outcome: Outcome) -> Verdict {
    let annotations = outcome.audit_annotations();
    let ignored = outcome.faults.iter().filter(|f| f.ignored).count();
    let verdict = match outcome.verdict {
        Became::Unchanged if ignored > 0 => {
            let text = format!("{ignored} errors are left out by failurePolicy Ignore");
            Verdict::bypass("ErrorsIgnored", text)
        }
        Became::Unchanged if outcome.invocations.is_empty() => {
            Verdict::allow("NotMatched", "no policy is for it")
        }
        Became::Unchanged => Verdict::allow("Unchanged", "the policies change nothing"),
        Became::Changed { patch, .. } => {
            let operations = serde_json::to_value(patch).unwrap_or_default();
            let operations = operations.as_array().cloned().unwrap_or_default();
            let code = if ignored > 0 {
                "MutatedInPart"
            } else {
                "Mutated"
            };
            Verdict::mutate(code, format!("{} changes", operations.len()), operations)
        }
        Became::Refused(refusal) => Verdict {
            status: (refusal.code, refusal.reason),
            ..Verdict::refuse("PolicyFailed", refusal.message)
        },
    };
    annotations
        .into_iter()
        .fold(verdict, |v, (key, text)| v.detail(key, text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tautline_mutation::{Objects, Policies};

    use super::*;
    use crate::job::Outcome as Ends;

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

    fn review(expression: &str, failure: &str, kind: &str) -> Verdict {
        let rest = json!({"uid": "u", "operation": "CREATE", "namespace": "shop", "userInfo": {},
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": format!("{}s", kind.to_lowercase())}});
        let request = Request {
            object: json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": "shop"},
                           "spec": {"containers": [{"name": "main", "image": "a"}]}}).into(),
            rest: rest.as_object().cloned().unwrap_or_default(),
            ..Request::default()
        };
        let asked = read(&request).unwrap();
        let outcome =
            policies(expression, failure).mutate(&asked, &Objects::default(), &Settings::default());
        verdict(outcome)
    }

    #[test]
    fn outcomes_become_verdicts() {
        let label = "Object{metadata: Object.metadata{labels: {\"a\": object.metadata.name}}}";
        let changed = review(label, "Fail", "Pod");
        assert_eq!((changed.outcome, changed.code), (Ends::Mutate, "Mutated"));
        assert_eq!(changed.details["changed-by"], "p/b");
        assert_eq!(changed.patch[0]["path"], "/metadata/labels");
        assert_eq!(review(label, "Fail", "Node").code, "NotMatched");
        let broken = "Object{metadata: Object.metadata{labels: {\"a\": object.metadata.nothing}}}";
        let refused = review(broken, "Fail", "Pod");
        assert_eq!(refused.outcome, Ends::Refuse);
        assert!(
            refused
                .text
                .contains("policy 'p' with binding 'b' denied request"),
            "{refused:?}"
        );
        let ignored = review(broken, "Ignore", "Pod");
        assert_eq!(
            (ignored.outcome, ignored.code),
            (Ends::Bypass, "ErrorsIgnored")
        );
    }
}
