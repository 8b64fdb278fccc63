//! Reviews requests to `/mutate-v1-pod`, as an adapter to the crate `tautline-gpu-sharing`.

mod policy_store;

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tautline_gpu_sharing::{Decision, Names, Source, Unchanged, decide};
use tautline_mutating_policy::Request;

pub(crate) use policy_store::{Gauges, MAP, PolicyStore};

use crate::{
    response::Response,
    review::{Handler, sync_handler},
};

/// The prefix of the counters' names.
pub(crate) const PREFIX: &str = "castslice";

tautline_runtime::metrics! {
    pub(crate) struct Counters {
        enforced: Counter => "policy_enforced",
            "Pods changed because a rule of the policy matched, not an annotation";
        mutations: Counter => "mutations", "Pods changed";
        refusals: Counter => "refusals", "Pods refused";
    }
}

pub(crate) fn handler(names: Names, policy: Arc<PolicyStore>, counters: Counters) -> Handler {
    sync_handler(move |request| {
        let response = review(&names, &policy, request);
        // A dry run does not create a pod.
        if !request.dry_run {
            count(&counters, &response);
        }
        response
    })
}

fn count(counters: &Counters, response: &Response) {
    match response.code {
        BY_RULE => {
            counters.enforced.inc();
            counters.mutations.inc();
        }
        BY_ANNOTATION => _ = counters.mutations.inc(),
        REFUSED => _ = counters.refusals.inc(),
        _ => {}
    }
}

const BY_RULE: &str = "SlicedByRule";
const BY_ANNOTATION: &str = "SlicedByAnnotation";
const REFUSED: &str = "BadRatio";

fn review(names: &Names, store: &PolicyStore, request: &Request) -> Response {
    let is_creation = request.operation == "CREATE" && request.sub_resource.is_empty();
    if request.kind.kind != "Pod" || !is_creation {
        return Response::bypass("NotAPod", "only the creation of pods is reviewed");
    }
    let loaded = store.current();
    match decide(
        names,
        loaded.policy.as_deref(),
        &request.namespace,
        &request.object,
    ) {
        Decision::Unchanged(why) => {
            let text = why.to_string();
            match (why, &loaded.fault) {
                (Unchanged::NoCards, _) => Response::allow("NoCards", text),
                (Unchanged::OptedOut(_), _) => Response::allow("OptedOut", text),
                // A rule of the unusable policy could have matched.
                (Unchanged::NotAsked { .. }, Some(fault)) if loaded.policy.is_none() => {
                    Response::bypass("PolicyUnusable", format!("the slice policy: {fault}"))
                }
                (Unchanged::NotAsked { unclear: None }, _) => Response::allow("NotAsked", text),
                (Unchanged::NotAsked { unclear: Some(_) }, _) => {
                    Response::allow("NotAsked", text.clone()).warn(text)
                }
            }
        }
        Decision::Refuse(refusal) => Response::refuse(REFUSED, refusal.to_string()),
        Decision::Mutate(mutation) => {
            let code = if mutation.policy_enforced() {
                BY_RULE
            } else {
                BY_ANNOTATION
            };
            let source = match mutation.source {
                Source::Annotation(_) => "annotation",
                Source::RuleRatio(_) => "rule-ratio",
                Source::RuleWorkload(_) => "rule-workload",
                Source::Default => "default",
            };
            let changes: Vec<String> = mutation
                .changes
                .iter()
                .map(|c| format!("{} {} -> {}", c.container, c.cards, c.units))
                .collect();
            let response = Response::mutate(code, changes.join(", "), &mutation.patch);
            let details = mutation.audit().into_iter();
            details
                .fold(response, |v, (key, value)| v.detail(key, value))
                .detail("source", source)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tautline_runtime::events::Events;

    use super::*;
    use crate::response::ResponseKind;

    fn request(namespace: &str, annotations: Value) -> Request {
        Request {
            kind: tautline_mutating_policy::Kind {
                kind: "Pod".into(),
                ..tautline_mutating_policy::Kind::default()
            },
            namespace: namespace.into(),
            operation: "CREATE".into(),
            object: json!({"metadata": {"annotations": annotations}, "spec": {"containers": [
                {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}})
            .into(),
            ..Request::default()
        }
    }

    fn store(json: Option<&str>) -> PolicyStore {
        let store = PolicyStore::new(Events::new().0, Gauges::default());
        let map = json!({"metadata": {"name": MAP, "namespace": "tautline-system", "uid": "u"},
                         "data": json.map(|j| json!({"policy.json": j}))});
        store.update(serde_json::from_value(map).ok());
        store
    }

    fn review(store: &PolicyStore, request: &Request) -> Response {
        super::review(&Names::default(), store, request)
    }

    #[test]
    fn every_decision_has_a_code() {
        let rules = r#"{"rules": [{"namespaces": ["ml"], "sliceRatio": 4}, {"namespaces": ["bad"], "sliceRatio": 99}]}"#;
        let store = store(Some(rules));
        let optimize = json!({"castops.io/optimize": "true", "castops.io/slice-ratio": "3"});
        let cases = [
            (request("shop", json!({})), "NotAsked", ResponseKind::Allow),
            (request("ml", json!({})), BY_RULE, ResponseKind::Mutate),
            (
                request("shop", optimize),
                BY_ANNOTATION,
                ResponseKind::Mutate,
            ),
            (request("bad", json!({})), REFUSED, ResponseKind::Refuse),
            (
                request("ml", json!({"castops.io/optimize": "false"})),
                "OptedOut",
                ResponseKind::Allow,
            ),
        ];
        let counters = Counters::default();
        for (request, code, outcome) in cases {
            let response = review(&store, &request);
            assert_eq!(
                (response.code, response.kind),
                (code, outcome),
                "{response:?}"
            );
            count(&counters, &response);
        }
        assert_eq!(
            (
                counters.enforced.get(),
                counters.mutations.get(),
                counters.refusals.get()
            ),
            (1, 2, 1)
        );
        let response = review(&store, &request("ml", json!({})));
        assert_eq!(response.details["ratio"], "4");
        assert_eq!(response.text, "main 2 -> 8");
    }

    #[test]
    fn unusable_policy_bypasses_pods() {
        let broken = store(Some("{"));
        assert_eq!(
            review(&broken, &request("ml", json!({}))).code,
            "PolicyUnusable"
        );
        let optimize = json!({"castops.io/optimize": "true"});
        assert_eq!(
            review(&broken, &request("ml", optimize)).code,
            BY_ANNOTATION
        );
        assert_eq!(
            review(&store(None), &request("ml", json!({}))).code,
            "NotAsked"
        );
    }
}
