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
fn one_server() {
    for kind in ["vLLM", "SGLang", "MindIE"] {
        let with = |workers: Value| {
            let changes = [
                ("/spec/backends/1/type", json!(kind)),
                ("/spec/backends/1/workers", workers),
            ];
            but(&model(), &changes)
        };
        assert_eq!(with(json!([worker("server")])), "");
        assert_eq!(with(json!([{}])), "");
        assert_eq!(
            with(json!([worker("prefill")])),
            refused(&[&format!(
                "spec.backends[1].workers[0].type: Invalid value: \"prefill\": \
                 the worker of a {kind} backend must be a server"
            )])
        );
        for (count, workers) in [(0, json!([])), (0, Value::Null), (2, json!([{}, {}]))] {
            assert_eq!(
                with(workers),
                refused(&[&format!(
                    "spec.backends[1].workers: Invalid value: {count}: \
                     a {kind} backend must have exactly one worker"
                )])
            );
        }
    }
    assert_eq!(
        but(&model(), &[("/spec/backends/0/type", json!("New"))]),
        ""
    );
}

#[test]
fn disaggregated_workers() {
    let all = ["server", "prefill", "decode", "controller", "coordinator"];
    for (kind, allowed, text) in [
        ("vLLMDisaggregated", &all[1..3], "prefill or decode"),
        (
            "MindIEDisaggregated",
            &all[1..5],
            "prefill, decode, controller or coordinator",
        ),
    ] {
        for (one, other) in all.into_iter().flat_map(|a| all.map(|b| (a, b))) {
            let messages = but(
                &model(),
                &[
                    ("/spec/backends/0/type", json!(kind)),
                    (
                        "/spec/backends/0/workers",
                        json!([worker(one), worker(other)]),
                    ),
                ],
            );
            let both = [one, other].into_iter().enumerate();
            let bad = both.filter(|(_, worker)| !allowed.contains(worker));
            let lines: Vec<String> = bad
                .map(|(i, worker)| {
                    format!(
                        "spec.backends[0].workers[{i}].type: Invalid value: \"{worker}\": \
                         each worker of a {kind} backend must be of type {text}"
                    )
                })
                .collect();
            if lines.is_empty() {
                assert_eq!(messages, "");
            } else {
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                assert_eq!(messages, refused(&lines));
            }
        }
    }
}

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
fn images() {
    for (base, at) in [(model(), "spec.backends[0]"), (single(), "spec.backend")] {
        let path = format!("/{}", at.replace('.', "/").replace("[0]", "/0"));
        let path = format!("{path}/workers/0/image");
        let image = |image: Value| but(&base, &[(&path, image)]);
        assert_eq!(image(Value::Null), "");
        assert_eq!(image(json!("")), "", "as if absent");
        assert_eq!(image(json!("registry:5000/a/b@sha256:0")), "");
        for (bad, detail) in [
            (
                " \t",
                "an image must not be blank; name one, or leave it out",
            ),
            ("a b", "an image must not have whitespace in it"),
            ("a:1\n", "an image must not have whitespace in it"),
        ] {
            assert_eq!(
                image(json!(bad)),
                refused(&[&format!(
                    "{at}.workers[0].image: Invalid value: {}: {detail}",
                    json!(bad)
                )])
            );
        }
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

#[test]
fn names_of_adapters() {
    let adapters = |names: &[&str]| {
        let list: Vec<Value> = names.iter().map(|n| json!({"name": n})).collect();
        let adapters = ("/spec/backends/1/loraAdapters", json!(list));
        but(&model(), &[adapters, ("/spec/name", json!("served"))])
    };
    assert_eq!(adapters(&["a", "b"]), "");
    let same = [
        ("/spec/backends/0/loraAdapters", json!([{"name": "a"}])),
        ("/spec/backends/1/loraAdapters", json!([{"name": "a"}])),
    ];
    assert_eq!(but(&model(), &same), "");
    insta::assert_snapshot!(adapters(&["a", "m", "a", "served"]));
}

#[test]
fn a_single_backend() {
    let path = "/spec/backend/replicas";
    assert_eq!(but(&single(), &[(path, json!(1_000_000))]), "");
    assert_eq!(
        but(&single(), &[(path, json!(1_000_001))]),
        refused(&["spec.backend.replicas: Invalid value: 1000001: must not be above 1000000"])
    );
    assert_eq!(
        but(&single(), &[("/spec/backend/workers", json!([{}, {}]))]),
        refused(&[
            "spec.backend.workers: Invalid value: 2: a vLLM backend must have exactly one worker"
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

#[test]
fn a_model_on_a_claim() {
    let uris = |model: &str, cache: &str| {
        let changes = [
            ("/spec/backend/modelURI", json!(model)),
            ("/spec/backend/cacheURI", json!(cache)),
        ];
        but(&single(), &changes)
    };
    for (model, cache) in [
        ("pvc://store/models/a", "pvc://store"),
        ("pvc:///store/models/a", "pvc://store/"),
        ("pvc://store//models/./a/", "pvc://store"),
        ("pvc://store", "pvc://store"),
        ("hf://a/../b", "hostpath:///cache"),
        ("s3://a/b", "pvc://a/b"),
    ] {
        assert_eq!(uris(model, cache), "", "{model} {cache}");
    }
    let messages = [
        but(
            &single(),
            &[("/spec/backend/modelURI", json!("pvc://store/a"))],
        ),
        uris("pvc://store/a", "hostpath:///store"),
        uris("pvc://store/a", "pvc://"),
        uris("pvc://store/a", "pvc://store/a"),
        uris("pvc://store/a", "pvc://.."),
        uris("pvc://other/a", "pvc://store"),
        uris("pvc://storehouse/a", "pvc://store"),
        uris("pvc://", "pvc://store"),
        uris("pvc://store/../other/a", "pvc://store"),
        uris("pvc://../a", "hostpath:///a"),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

/// A disaggregated backend whose workers have these types and configs.
fn disaggregated(workers: &[(&str, Value)]) -> String {
    let worker = |(kind, config): &(&str, Value)| json!({"type": kind, "config": config});
    let workers: Vec<Value> = workers.iter().map(worker).collect();
    let changes = [
        ("/spec/backend/type", json!("vLLMDisaggregated")),
        ("/spec/backend/workers", json!(workers)),
    ];
    but(&single(), &changes)
}

#[test]
fn engine_ports() {
    let ports = |prefill: Value, decode: Value| {
        let config = |port: Value| match port.is_null() {
            true => json!({}),
            false => json!({"port": port}),
        };
        disaggregated(&[("prefill", config(prefill)), ("decode", config(decode))])
    };
    for (one, other) in [
        (json!(9000), json!("9000")),
        (json!(8000), Value::Null),
        (json!(1e3), json!(1000)),
        (json!(65535), json!(65535)),
    ] {
        assert_eq!(ports(one.clone(), other), "", "{one}");
    }
    let bad = [
        json!(0),
        json!(65536),
        json!(-1),
        json!(9000.5),
        json!(" 9000"),
        json!(true),
        json!("8000-8010"),
    ];
    for port in bad {
        let path = "spec.backend.workers[0].config.port";
        let expected =
            format!("{path}: Invalid value: {port}: write a whole number from 1 to 65535");
        let first = json!({"port": port});
        assert_eq!(disaggregated(&[("prefill", first)]), refused(&[&expected]));
    }
    let null = disaggregated(&[("prefill", json!({"port": null}))]);
    insta::assert_snapshot!([null, ports(json!(9000), Value::Null)].join("\n"));
    // Engines of other types have no port.
    let changes = [
        ("/spec/backend/type", json!("SGLang")),
        ("/spec/backend/workers/0/config", json!({"port": "none"})),
    ];
    assert_eq!(but(&single(), &changes), "");
}

#[test]
fn kv_connectors() {
    let config = |connector: &str, role: &str| {
        let transfer = json!({"kv_connector": connector, "kv_role": role});
        json!({"kv-transfer-config": transfer.to_string()})
    };
    let none = || json!({});
    let pair =
        |prefill: Value, decode: Value| disaggregated(&[("prefill", prefill), ("decode", decode)]);
    for (prefill, decode) in [
        (none(), none()),
        (json!({"kv-transfer-config": null}), none()),
        (
            config("NixlConnector", "kv_both"),
            config("NixlConnector", "kv_consumer"),
        ),
        (
            config("MooncakeConnector", "kv_producer"),
            config("MooncakeConnectorV1", "kv_both"),
        ),
    ] {
        assert_eq!(pair(prefill.clone(), decode), "", "{prefill}");
    }
    let lm = |role: &str| config("LMCacheConnectorV1", role);
    let text = |text: &str| json!({"kv-transfer-config": text});
    let messages = [
        pair(lm("kv_producer"), none()),
        pair(none(), lm("kv_consumer")),
        pair(lm("kv_producer"), config("NixlConnector", "kv_both")),
        pair(lm("kv_consumer"), lm("kv_consumer")),
        pair(lm("kv_producer"), lm("kv_producer")),
        pair(lm(""), none()),
        pair(config("P2pConnector", "kv_both"), none()),
        pair(config("", "kv_both"), none()),
        pair(text("{"), none()),
        pair(text("[]"), none()),
        pair(json!({"kv-transfer-config": {}}), none()),
        pair(json!("port: 1"), none()),
        disaggregated(&[("prefill", lm("kv_both"))]),
        disaggregated(&[("prefill", none()), ("prefill", none())]),
        disaggregated(&[("decode", none()), ("prefill", none()), ("decode", none())]),
    ];
    insta::assert_snapshot!(messages.join("\n"));
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
