//! Tests the validation and the defaults of the model registry with random objects.

use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

use crate::{Kind, defaults, message, review};

const KINDS: [Kind; 3] = [
    Kind::Model,
    Kind::AutoscalingPolicy,
    Kind::AutoscalingPolicyBinding,
];

/// JSON with the registry's fields in valid and invalid places.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "(vLLM|server|-?[0-9]{1,3}[smh]|pvc://[a./]{0,4})".prop_map(Value::from),
    ];
    let key = prop_oneof![
        "(metadata|name|spec|backends|backend|workers|type|image|minReplicas|maxReplicas)",
        "(autoscalingPolicy|autoscalingPolicyRef|scalingCost|scaleToZeroGracePeriod)",
        "(loraAdapters|metrics|targetValue|behavior|scaleUp|scaleDown|stablePolicy|period)",
        "(panicPolicy|modelURI|cacheURI|scalingConfiguration|replicas)",
    ];
    leaf.prop_recursive(8, 96, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key.clone(), inner), 0..6).prop_map(|pairs| pairs.into_iter().collect()),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    let backends = (json_value(), json_value(), json_value());
    let spec = backends.prop_map(|(spec, one, list)| {
        let mut spec = if spec.is_object() { spec } else { json!({}) };
        if one.is_object() {
            spec["backends"] = json!([one, list]);
        }
        json!({"metadata": {"name": "m"}, "spec": spec})
    });
    prop_oneof![spec, json_value()]
}

fn filled(kind: Kind, object: &Value) -> Value {
    let patch: json_patch::Patch =
        serde_json::from_value(Value::Array(defaults(kind, object))).unwrap();
    let mut out = object.clone();
    json_patch::patch(&mut out, &patch).unwrap();
    out
}

proptest! {
    #[test]
    fn random_json_does_not_panic(object in object()) {
        for kind in KINDS {
            let Err(errors) = review(kind, &object, None) else { continue };
            prop_assert!(!errors.is_empty());
            let malformed = errors.iter().filter(|e| e.is_malformed()).count();
            prop_assert!([0, errors.len()].contains(&malformed));
            let lines = message(&errors).lines().count();
            prop_assert_eq!(lines, errors.len() + 1, "one line an error");
        }
    }

    #[test]
    fn defaults_are_idempotent(object in object()) {
        for kind in KINDS {
            let filled = filled(kind, &object);
            prop_assert_eq!(defaults(kind, &filled), Vec::<Value>::new());
        }
    }

    #[test]
    fn defaults_are_valid(
        grace in vec(option::of(0u32..=1800), 1..4), rate in option::of(0..=100),
    ) {
        let backends: Vec<Value> = grace.iter().map(|grace| json!({
            "minReplicas": 1, "maxReplicas": 2, "scalingCost": 1,
            "scaleToZeroGracePeriod": grace.map(|s| format!("{s}s")),
        })).collect();
        let object = json!({"spec": {
            "autoscalingPolicy": {}, "backends": backends, "costExpansionRatePercent": rate,
        }});
        prop_assert_eq!(review(Kind::Model, &filled(Kind::Model, &object), None), Ok(()));
        let policy = json!({"spec": {"metrics": [{"metricName": "m", "targetValue": 1}]}});
        let policy = filled(Kind::AutoscalingPolicy, &policy);
        prop_assert_eq!(review(Kind::AutoscalingPolicy, &policy, None), Ok(()));
    }

    #[test]
    fn sum_of_replicas_is_exact(max in vec(any::<i64>(), 0..6)) {
        let backends: Vec<Value> = max.iter()
            .map(|max| json!({"minReplicas": max, "maxReplicas": max}))
            .collect();
        let object = json!({"spec": {"backends": backends}});
        let exact: i128 = max.iter().map(|max| i128::from(*max).max(0)).sum();
        let refused = review(Kind::Model, &object, None).is_err();
        prop_assert_eq!(refused, exact > 1_000_000);
    }
}
