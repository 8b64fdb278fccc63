use serde_json::{Value, json};

use super::{but, changed, errors_of, model, refused, scaled};

#[test]
fn bounds_of_replicas() {
    let bounds = |min: i64, max: i64| {
        let changes = [
            ("/spec/backends/0/minReplicas", json!(min)),
            ("/spec/backends/0/maxReplicas", json!(max)),
        ];
        but(&scaled(), &changes)
    };
    assert_eq!(bounds(2, 2), "");
    assert_eq!(bounds(0, 999_999), "");
    assert_eq!(
        bounds(3, 2),
        refused(&["spec.backends[0].minReplicas: Invalid value: 3: \
             must not be above maxReplicas, which is 2"])
    );
    let sum = |sum: i64| {
        refused(&[&format!(
            "spec.backends: Invalid value: {sum}: \
             maxReplicas of all backends must not be above 1000000"
        )])
    };
    assert_eq!(bounds(0, 1_000_000), sum(1_000_001));
    // The sum of two is -2 in 32 bits.
    assert_eq!(bounds(0, i64::MAX), sum(i64::MAX));
    let two = changed(
        &scaled(),
        &[
            ("/spec/backends/0/maxReplicas", json!(i32::MAX)),
            ("/spec/backends/1/maxReplicas", json!(i32::MAX)),
        ],
    );
    assert_eq!(errors_of(&two), sum(2 * i64::from(i32::MAX)));
    let negative = changed(&two, &[("/spec/backends/1/maxReplicas", json!(-i64::MAX))]);
    assert!(errors_of(&negative).contains(&sum(i64::from(i32::MAX))[20..]));
}

#[test]
fn grace_before_zero() {
    let grace = |text: Value| {
        but(
            &scaled(),
            &[("/spec/backends/0/scaleToZeroGracePeriod", text)],
        )
    };
    for good in ["0s", "0", "1800s", "30m", "29m59.9s"] {
        assert_eq!(grace(json!(good)), "", "{good}");
    }
    for bad in ["-1s", "1801s", "30m0.000000001s", "1h"] {
        assert_eq!(
            grace(json!(bad)),
            refused(&[&format!(
                "spec.backends[0].scaleToZeroGracePeriod: Invalid value: \"{bad}\": \
                 must be from 0s to 30m, 1800 seconds"
            )])
        );
    }
    for bad in ["", "30", "soon"] {
        assert_eq!(
            grace(json!(bad)),
            refused(&[&format!(
                "spec.backends[0].scaleToZeroGracePeriod: Invalid value: \"{bad}\": \
                 write a duration, such as 30s or 5m"
            )])
        );
    }
}

#[test]
fn no_autoscaling() {
    insta::assert_snapshot!(but(&scaled(), &[("/spec/autoscalingPolicy", Value::Null)]));
    let differ = [("/spec/backends/1/maxReplicas", json!(2))];
    assert_eq!(
        but(&model(), &differ),
        refused(&[
            "spec.backends[1]: Invalid value: \"minReplicas=1, maxReplicas=2\": \
             minReplicas and maxReplicas must be equal where there is no autoscaling policy"
        ])
    );
    assert_eq!(
        but(&model(), &[("/spec/backends/0/scalingCost", json!(0))]),
        ""
    );
}

#[test]
fn autoscaling_of_backends() {
    for policy in [
        ("/spec/backends/1/autoscalingPolicy", json!({})),
        (
            "/spec/backends/1/autoscalingPolicyRef",
            json!({"name": "fast"}),
        ),
    ] {
        let own = changed(
            &model(),
            &[policy, ("/spec/backends/0/maxReplicas", json!(5))],
        );
        assert_eq!(errors_of(&own), "");
        let zero = ("/spec/backends/1/minReplicas", json!(0));
        assert_eq!(
            but(&own, &[zero]),
            refused(&["spec.backends[1].minReplicas: Invalid value: 0: \
                 must be at least 1, as the backend has an autoscaling policy of its own"])
        );
        assert_eq!(but(&own, &[("/spec/backends/0/minReplicas", json!(0))]), "");
        let both = refused(&["spec.autoscalingPolicyRef: Forbidden: \
             the model and a backend both have an autoscaling policy; keep it on one level"]);
        assert_eq!(but(&own, &[("/spec/autoscalingPolicy", json!({}))]), both);
        let by_name = ("/spec/autoscalingPolicyRef", json!({"name": "slow"}));
        assert_eq!(but(&own, &[by_name]), both);
        // An empty reference counts as absent.
        assert_eq!(but(&own, &[("/spec/autoscalingPolicyRef", json!({}))]), "");
    }
}

#[test]
fn autoscaling_of_the_model() {
    let asks = changed(
        &model(),
        &[("/spec/autoscalingPolicyRef", json!({"name": "p"}))],
    );
    insta::assert_snapshot!(errors_of(&asks));
    let zero = [
        ("/spec/backends/0/minReplicas", json!(0)),
        ("/spec/backends/1/minReplicas", json!(0)),
    ];
    assert_eq!(
        but(&scaled(), &zero),
        refused(&["spec.backends: Invalid value: 0: \
             minReplicas of all backends must be at least 1 together"])
    );
    assert_eq!(but(&scaled(), &zero[..1]), "");
    assert_eq!(
        but(&scaled(), &[("/spec/backends/0/minReplicas", json!(-1))]),
        refused(&[
            "spec.backends[0].minReplicas: Invalid value: -1: must be at least 0",
            "spec.backends: Invalid value: 0: \
             minReplicas of all backends must be at least 1 together",
        ])
    );
}

/// A model of Kthena v0.2 to v0.4.
fn ranged(min: i64, max: i64, policy: Value) -> Value {
    json!({
        "metadata": {"name": "m"},
        "spec": {
            "autoscalingPolicy": policy,
            "backend": {
                "name": "a", "type": "vLLM", "minReplicas": min, "maxReplicas": max,
                "modelURI": "pvc://models/a", "cacheURI": "hostpath:///cache",
                "workers": [{"type": "server", "image": "vllm/vllm-openai:v0.10",
                             "config": {"port": "any"}}],
            },
        },
    })
}

#[test]
fn a_single_backend_between_bounds() {
    let policy = json!({"metrics": [{"metricName": "m", "targetValue": 1}]});
    // Neither the costs of a list nor the claims and ports of later versions.
    for (min, max, policy) in [
        (1, 3, &policy),
        (0, 1, &policy),
        (0, 1_000_000, &policy),
        (2, 2, &Value::Null),
    ] {
        assert_eq!(errors_of(&ranged(min, max, policy.clone())), "", "{min}");
    }
    // Fields that its CRD does not have.
    let unknown = [
        ("/spec/backend/scaleToZeroGracePeriod", json!("2h")),
        ("/spec/backend/loraAdapters", json!([{"name": "m"}])),
        ("/spec/backend/autoscalingPolicyRef", json!({"name": "p"})),
    ];
    assert_eq!(but(&ranged(1, 3, policy.clone()), &unknown), "");
    let by_name = [("/spec/autoscalingPolicyRef", json!({"name": "p"}))];
    let messages = [
        errors_of(&ranged(3, 2, policy.clone())),
        errors_of(&ranged(-1, 2, policy.clone())),
        errors_of(&ranged(0, 1_000_001, policy.clone())),
        errors_of(&ranged(3, 2, Value::Null)),
        but(&ranged(1, 3, Value::Null), &by_name),
        but(
            &ranged(1, 3, policy),
            &[(
                "/spec/backend/workers",
                json!([{"type": "prefill", "image": "a b"}]),
            )],
        ),
        errors_of(&ranged(1, 3, json!("p"))),
    ];
    insta::assert_snapshot!(messages.join("\n"), @r#"
    validation failed:
      - spec.backend.minReplicas: Invalid value: 3: must not be above maxReplicas, which is 2
    validation failed:
      - spec.backend.minReplicas: Invalid value: -1: must be at least 0
    validation failed:
      - spec.backend: Invalid value: 1000001: maxReplicas of all backends must not be above 1000000
    validation failed:
      - spec.backend.minReplicas: Invalid value: 3: must not be above maxReplicas, which is 2
      - spec.backend: Invalid value: "minReplicas=3, maxReplicas=2": minReplicas and maxReplicas must be equal where there is no autoscaling policy
    validation failed:
      - spec.backend: Invalid value: "minReplicas=1, maxReplicas=3": minReplicas and maxReplicas must be equal where there is no autoscaling policy
    validation failed:
      - spec.backend.workers[0].image: Invalid value: "a b": an image must not have whitespace in it
      - spec.backend.workers[0].type: Invalid value: "prefill": the worker of a vLLM backend must be a server
    validation failed:
      - spec.autoscalingPolicy: Invalid value: "p": write an object
    "#);
}
