//! Objects that the tests of tables and descriptions share.

// The lint does not see helpers as tests.
#![allow(clippy::unwrap_used)]

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tautline_api::{ConstraintPolicy, ConstraintPolicyBinding, ConstraintPolicyOffer};

use tautline_api::display::EventSummary;

pub(crate) fn now() -> Timestamp {
    "2026-01-02T12:00:00Z".parse().unwrap()
}

fn pod(name: &str) -> Value {
    json!({"namespace": "vision", "apiVersion": "v1", "kind": "Pod", "name": name})
}

pub(crate) fn binding(
    namespace: &str,
    name: &str,
    status: Option<Value>,
) -> ConstraintPolicyBinding {
    let offer = name.split('-').next().unwrap();
    let mut value = json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyBinding",
        "metadata": {
            "namespace": namespace, "name": name, "creationTimestamp": "2025-12-31T12:00:00Z",
        },
        "spec": {"offer": offer, "targets": {
            "source": pod(&format!("{name}-0")), "destination": pod("gateway"),
        }},
    });
    if let Some(status) = status {
        value["status"] = status;
    }
    serde_json::from_value(value).unwrap()
}

/// One of each compliance, and one of the same name in another namespace.
pub(crate) fn bindings() -> Vec<ConstraintPolicyBinding> {
    let status = |compliance: &str, reason: &str, changed: &str, details: Value| {
        Some(json!({
            "compliance": compliance, "firstReason": reason, "details": details,
            "lastComplianceChangeTimestamp": changed,
        }))
    };
    let good = || status("Compliant", "", "2026-01-02T03:00:00Z", json!([]));
    let far = "31ms to north-1 > 20ms";
    let mut violated = status(
        "Violation",
        far,
        "2026-01-02T11:55:00Z",
        json!([{
            "policy": "near", "compliance": "Violation", "reason": far,
            "ruleDetails": [
                {"rule": "latency", "compliance": "Violation", "reason": far,
                 "provider": "vision/latency-table"},
                {"rule": "jitter", "compliance": "Compliant"},
            ],
        }]),
    );
    if let Some(status) = &mut violated {
        status["lastMitigatedTimestamp"] = json!("2026-01-02T11:58:00Z");
        status["conditions"] = json!([{
            "type": "Compliant", "status": "False", "reason": "Violation", "message": far,
            "lastTransitionTime": "2026-01-02T11:54:00Z",
        }]);
    }
    let odd = "no provider of the rule colour\n\u{1b}[31mwas found, in this namespace or in any other one; label a Service";
    vec![
        binding("vision", "detectors-a", good()),
        binding("shop", "detectors-a", good()),
        binding("vision", "detectors-b", good()),
        binding(
            "vision",
            "detectors-limit",
            status("Limit", "19ms", "2026-01-02T11:59:48Z", json!([])),
        ),
        binding("vision", "detectors-violation", violated),
        binding("vision", "trackers-new", None),
        binding(
            "vision",
            "trackers-error",
            status(
                "Error",
                odd,
                "2026-01-02T11:30:00Z",
                json!([{"policy": "shade", "compliance": "Error", "reason": odd}]),
            ),
        ),
    ]
}

/// An offer with all fields, and one with the required fields only.
pub(crate) fn offers() -> Vec<ConstraintPolicyOffer> {
    let full = json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
        "metadata": {
            "namespace": "vision", "name": "detectors",
            "creationTimestamp": "2025-12-30T12:00:00Z",
        },
        "spec": {
            "targets": [
                {"name": "source", "kind": "Pod", "labelSelector": {
                    "matchLabels": {"app": "detector"},
                    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["edge"]}],
                }},
                {"name": "destination", "kind": "Pod", "labelSelector": {}},
            ],
            "policies": ["near", "gone"], "violationPolicy": "Evict",
            "period": "30s", "grace": "1m",
        },
        "status": {
            "bindingCount": 5, "compliantBindingCount": 3, "bindingSelector": "",
            "lastEviction": {
                "pod": "detector-7", "uid": "u", "node": "core-3",
                "binding": "detectors-violation", "time": "2026-01-02T11:59:13Z",
                "group": "2 pods of Job detect", "since": "2026-01-02T11:59:13Z",
                "nextTime": "2026-01-02T12:01:13Z",
            },
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "TooManyBindings",
                "message": "12000 bindings are more than 10000",
                "lastTransitionTime": "2026-01-02T11:00:00Z",
            }],
        },
    });
    let bare = json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
        "metadata": {
            "namespace": "vision", "name": "trackers",
            "creationTimestamp": "2026-01-02T11:59:00Z",
        },
        "spec": {"targets": [{"kind": "Pod"}], "policies": ["shade"]},
    });
    [full, bare]
        .map(|v| serde_json::from_value(v).unwrap())
        .into()
}

pub(crate) fn policies() -> Vec<ConstraintPolicy> {
    let policy = |name: &str, rules: Value| {
        let value = json!({
            "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
            "metadata": {
                "namespace": "vision", "name": name, "creationTimestamp": "2025-12-01T12:00:00Z",
            },
            "spec": {"rules": rules},
        });
        serde_json::from_value(value).unwrap()
    };
    vec![
        policy(
            "near",
            json!([
                {"name": "latency", "request": "5ms", "limit": "20ms"},
                {"name": "gpu-slice", "request": "true,model=L4"},
                {"name": "jitter", "limit": 2},
            ]),
        ),
        policy("shade", json!([{"name": "colour"}])),
    ]
}

pub(crate) fn events() -> Vec<EventSummary> {
    let event = |time: &str, type_: &str, reason: &str, note: &str, count| EventSummary {
        time: Some(time.parse().unwrap()),
        type_: type_.into(),
        reason: reason.into(),
        note: note.into(),
        count,
        reporter: "tautline".into(),
    };
    vec![
        event(
            "2026-01-02T11:54:00Z",
            "Warning",
            "Limit",
            "31ms to north-1 > 20ms",
            1,
        ),
        event(
            "2026-01-02T11:58:00Z",
            "Normal",
            "Mitigating",
            "the underlay was asked",
            3,
        ),
    ]
}
