//! The fuzz target: parses bytes as a review and runs every pure check of objects.

use std::sync::OnceLock;

use serde_json::json;
use tautline_gpu_sharing::{Names, Policy, decide};
use tautline_model_registry::{Kind, defaults, review as review_model};
use tautline_mutating_policy::{Policies, Settings, StaticCluster};
use tautline_structured_merge::Schemas;

use crate::review;

pub(crate) fn review(data: &[u8]) {
    let Ok(request) = review::decode(data) else {
        return;
    };
    _ = review::object_name(&request);
    let (object, old) = (&*request.object, &*request.old_object);
    let rules =
        r#"{"rules": [{"labelSelector": {"a": "b"}, "sliceRatio": 4}, {"workloadType": "x"}]}"#;
    let policy = Policy::parse(rules).ok();
    _ = decide(
        &Names::default(),
        policy.as_ref(),
        &request.namespace,
        object,
    );
    for kind in [
        Kind::Model,
        Kind::AutoscalingPolicy,
        Kind::AutoscalingPolicyBinding,
    ] {
        _ = review_model(kind, object, Some(old).filter(|o| !o.is_null()));
        _ = defaults(kind, object);
    }
    for (group, version, kind) in [("", "v1", "Pod"), ("apps", "v1", "Deployment")] {
        if let Some(schema) = Schemas::bundled().kind(group, version, kind) {
            _ = tautline_structured_merge::apply(&schema, object, old);
        }
    }
    _ = policies().mutate(&request, &StaticCluster::default(), &Settings::default());
}

fn policies() -> &'static Policies {
    static POLICIES: OnceLock<Policies> = OnceLock::new();
    POLICIES.get_or_init(|| {
        let mutations = [
            ("ApplyConfiguration", "applyConfiguration", "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"),
            ("ApplyConfiguration", "applyConfiguration", "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, env: [Object.spec.containers.env{name: 'A', value: 'b'}]})}}"),
            ("JSONPatch", "jsonPatch", "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}, JSONPatch{op: 'copy', from: '/spec', path: '/metadata/annotations/x'}]"),
        ];
        let mutations = mutations.map(|(kind, field, expression)| json!({"patchType": kind, field: {"expression": expression}}));
        let of = |kind, spec| json!({"apiVersion": "tautline.io/v1alpha1", "kind": kind, "metadata": {"name": "p"}, "spec": spec});
        let policy = of("MutationPolicy", json!({"failurePolicy": "Ignore", "reinvocationPolicy": "IfNeeded", "mutations": mutations,
            "matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]}}));
        let binding = of("MutationPolicyBinding", json!({"policyName": "p"}));
        Policies::load([&policy, &binding]).0
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_does_not_panic() {
        assert!(super::policies().len() == 1, "the policy is not active");
        let corpus = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fuzz/corpus/admission_review"
        );
        let mut replayed = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            super::review(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= 5, "{corpus} has {replayed} files");
    }
}
