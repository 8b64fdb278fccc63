use super::*;

fn filled(kind: Kind, object: &Value) -> Value {
    let patch: json_patch::Patch =
        serde_json::from_value(Value::Array(defaults(kind, object))).unwrap();
    let mut out = object.clone();
    json_patch::patch(&mut out, &patch).unwrap();
    out
}

fn policy(spec: &Value) -> Value {
    let object = json!({"spec": spec});
    filled(Kind::AutoscalingPolicy, &object)["spec"]["behavior"].clone()
}

#[test]
fn a_whole_behavior() {
    let whole = json!({
        "scaleDown": {"instances": 0, "percent": 100, "period": "1m",
            "selectPolicy": "Or", "stabilizationWindow": "5m"},
        "scaleUp": {
            "stablePolicy": {"instances": 4, "percent": 100, "period": "1m",
                "selectPolicy": "Or", "stabilizationWindow": "0s"},
            "panicPolicy": {"percent": 0, "period": "0s",
                "panicThresholdPercent": 200, "panicModeHold": "0s"},
        },
    });
    for spec in [
        Value::Null,
        json!({}),
        json!({"behavior": null}),
        json!({"behavior": {}}),
        json!({"behavior": {"scaleUp": {"panicPolicy": {}}}}),
    ] {
        assert_eq!(policy(&spec), whole, "{spec}");
    }
    assert_eq!(
        filled(Kind::AutoscalingPolicy, &json!({}))["spec"]["behavior"],
        whole
    );
    let mut parts = whole.clone();
    parts["scaleDown"]["percent"] = json!(7);
    let given = json!({"behavior": {"scaleDown": parts["scaleDown"]}});
    assert_eq!(policy(&given), parts);
    let mut parts = whole.clone();
    parts["scaleUp"]["panicPolicy"] = json!({"percent": 7});
    let given = json!({"behavior": {"scaleUp": {"panicPolicy": {"percent": 7}}}});
    assert_eq!(policy(&given), parts);
}

#[test]
fn windows_of_given_parts() {
    let given = json!({"behavior": {
        "scaleDown": {"period": "2m"},
        "scaleUp": {"stablePolicy": {"instances": 1}, "panicPolicy": {"percent": 7}},
    }});
    assert_eq!(
        policy(&given),
        json!({
            "scaleDown": {"period": "2m", "stabilizationWindow": "5m"},
            "scaleUp": {
                "stablePolicy": {"instances": 1, "stabilizationWindow": "0s"},
                "panicPolicy": {"percent": 7},
            },
        })
    );
    let full = json!({"behavior": {
        "scaleDown": {"stabilizationWindow": "1m"},
        "scaleUp": {"stablePolicy": {"stabilizationWindow": "1m"}, "panicPolicy": {"percent": 7}},
    }});
    let object = json!({"spec": full});
    assert!(defaults(Kind::AutoscalingPolicy, &object).is_empty());
}

#[test]
fn of_a_model_with_a_policy() {
    for policy in [
        json!({"autoscalingPolicy": {}}),
        json!({"autoscalingPolicyRef": {"name": "p"}}),
    ] {
        let mut object = json!({"spec": policy});
        object["spec"]["backends"] = json!([{"name": "a"}, {"scaleToZeroGracePeriod": "1m"}, {"scaleToZeroGracePeriod": null}]);
        let patch = defaults(Kind::Model, &object);
        assert_eq!(
            patch,
            [
                json!({"op": "add", "path": "/spec/backends/0/scaleToZeroGracePeriod", "value": "30s"}),
                json!({"op": "add", "path": "/spec/backends/2/scaleToZeroGracePeriod", "value": "30s"}),
                json!({"op": "add", "path": "/spec/costExpansionRatePercent", "value": 200}),
            ]
        );
        let filled = filled(Kind::Model, &object);
        assert!(defaults(Kind::Model, &filled).is_empty());
        object["spec"]["costExpansionRatePercent"] = json!(0);
        assert_eq!(defaults(Kind::Model, &object).len(), 2);
    }
}

#[test]
fn of_a_single_backend_are_none() {
    for backend in [
        json!({"minReplicas": 1, "maxReplicas": 2}),
        json!({"replicas": 2}),
    ] {
        let model = json!({"spec": {"autoscalingPolicy": {}, "backend": backend}});
        assert!(defaults(Kind::Model, &model).is_empty(), "{model}");
    }
}

#[test]
fn of_none() {
    let backends = json!([{"name": "a", "autoscalingPolicy": {}}]);
    for object in [
        json!({"spec": {"backends": backends}}),
        json!({"spec": {"backends": backends, "autoscalingPolicyRef": {"name": ""}}}),
        json!({}),
        json!(1),
        json!({"spec": []}),
    ] {
        assert!(defaults(Kind::Model, &object).is_empty(), "{object}");
        assert!(defaults(Kind::AutoscalingPolicyBinding, &object).is_empty());
    }
    for object in [
        json!(1),
        json!({"spec": []}),
        json!({"spec": {"behavior": 1}}),
    ] {
        assert!(
            defaults(Kind::AutoscalingPolicy, &object).is_empty(),
            "{object}"
        );
    }
}
