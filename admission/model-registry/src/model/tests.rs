mod autoscaling;
mod backends;
mod engine;

use serde_json::{Value, json};

use crate::{Kind, message, review};

fn model() -> Value {
    let backend = |name: &str| {
        json!({
            "name": name, "type": "vLLM", "minReplicas": 1, "maxReplicas": 1,
            "workers": [{"type": "server", "image": "vllm/vllm-openai:v0.10"}],
        })
    };
    json!({
        "metadata": {"name": "m"},
        "spec": {"backends": [backend("a"), backend("b")]},
    })
}

fn single() -> Value {
    json!({
        "metadata": {"name": "m"},
        "spec": {"backend": {
            "name": "a", "type": "vLLM", "replicas": 2, "modelURI": "hf://a/b",
            "workers": [{"type": "server", "image": "vllm/vllm-openai:v0.10"}],
        }},
    })
}

fn scaled() -> Value {
    changed(
        &model(),
        &[
            ("/spec/autoscalingPolicy", json!({})),
            ("/spec/costExpansionRatePercent", json!(200)),
            ("/spec/backends/0/scalingCost", json!(1)),
            ("/spec/backends/0/scaleToZeroGracePeriod", json!("30s")),
            ("/spec/backends/1/scalingCost", json!(2)),
            ("/spec/backends/1/scaleToZeroGracePeriod", json!("30m")),
            ("/spec/backends/0/maxReplicas", json!(9)),
        ],
    )
}

/// A copy with changed values; null removes a field.
fn changed(model: &Value, changes: &[(&str, Value)]) -> Value {
    let mut model = model.clone();
    for (path, value) in changes {
        let (parent, name) = path.rsplit_once('/').unwrap();
        model.pointer_mut(parent).unwrap()[name] = value.clone();
    }
    model
}

fn errors_of(model: &Value) -> String {
    match review(Kind::Model, model, None) {
        Ok(()) => String::new(),
        Err(errors) => message(&errors),
    }
}

fn but(model: &Value, changes: &[(&str, Value)]) -> String {
    errors_of(&changed(model, changes))
}

fn refused(lines: &[&str]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("\n  - {line}")).collect();
    format!("validation failed:{}", lines.concat())
}

fn worker(kind: &str) -> Value {
    json!({"type": kind})
}

#[test]
fn in_order() {
    for model in [model(), single(), scaled()] {
        assert_eq!(errors_of(&model), "");
    }
    let nothing = json!({"spec": {}});
    assert_eq!(
        errors_of(&nothing),
        refused(&["spec.backends: Required value: \
             name at least one backend, or the only one in spec.backend"])
    );
}

#[test]
fn wrong_types() {
    let messages = [
        errors_of(&json!([])),
        errors_of(&json!({"spec": "model"})),
        errors_of(&json!({"spec": {"backends": {}}})),
        errors_of(&json!({"spec": {"backends": [1]}})),
        but(&model(), &[("/spec/backends/0/minReplicas", json!("1"))]),
        but(&model(), &[("/spec/backends/0/workers", json!([true]))]),
        but(
            &model(),
            &[("/spec/backends/0/autoscalingPolicy", json!("p"))],
        ),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn all_at_once() {
    let broken = changed(
        &scaled(),
        &[
            ("/spec/backends/0/minReplicas", json!(10)),
            ("/spec/backends/0/scaleToZeroGracePeriod", json!("31m")),
            ("/spec/backends/0/workers/0/image", json!("a b")),
            ("/spec/backends/1/scalingCost", Value::Null),
            ("/spec/backends/1/type", json!("vLLMDisaggregated")),
            ("/spec/backends/1/loraAdapters", json!([{"name": "m"}])),
            ("/spec/backends/1/maxReplicas", json!(1_000_000)),
        ],
    );
    insta::assert_snapshot!(errors_of(&broken));
}

#[test]
fn one_that_is_deleted_may_lose_its_finalizers() {
    let old = changed(&model(), &[("/spec/backends/0/type", json!(1))]);
    let deleted = changed(
        &old,
        &[("/metadata/deletionTimestamp", json!("2026-01-01"))],
    );
    assert_eq!(review(Kind::Model, &deleted, Some(&old)), Ok(()));
    assert!(review(Kind::Model, &deleted, Some(&model())).is_err());
    assert!(review(Kind::Model, &deleted, None).is_err());
    assert!(review(Kind::Model, &old, Some(&old)).is_err());
}
