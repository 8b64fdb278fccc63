use serde_json::{Value, json};

use crate::{Decision, Mutation, Names, Policy, decide};

pub(crate) const POLICY: &str = r#"{"rules": [
    {"namespaces": ["ml-team", "gpu-lab"], "workloadType": "training"},
    {"labelSelector": {"cast-slice/workload": "inference"}, "workloadType": "inference"},
    {"namespaces": ["dev"], "labelSelector": {"gpu": "shared"}, "sliceRatio": 8}
]}"#;

pub(crate) fn pod(cards: &str) -> Value {
    json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "main", "resources": {
            "limits": {"nvidia.com/gpu": cards, "cpu": "1"},
            "requests": {"nvidia.com/gpu": cards},
        }}]},
    })
}

pub(crate) fn annotated(annotations: &Value) -> Value {
    let mut pod = pod("1");
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

pub(crate) fn policy(text: &str) -> Policy {
    Policy::parse(text).unwrap()
}

pub(crate) fn of(policy: Option<&Policy>, pod: &Value) -> Decision {
    decide(&Names::default(), policy, "default", pod)
}

pub(crate) fn mutation(decision: Decision) -> Mutation {
    match decision {
        Decision::Mutate(mutation) => mutation,
        other => panic!("no mutation: {other:?}"),
    }
}

pub(crate) fn refusal(decision: Decision) -> String {
    match decision {
        Decision::Refuse(refusal) => refusal.to_string(),
        other => panic!("no refusal: {other:?}"),
    }
}

pub(crate) fn patched(pod: &Value, mutation: &Mutation) -> Value {
    let patch: json_patch::Patch =
        serde_json::from_value(Value::Array(mutation.patch.clone())).unwrap();
    let mut out = pod.clone();
    json_patch::patch(&mut out, &patch).unwrap();
    out
}
