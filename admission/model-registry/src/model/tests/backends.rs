use serde_json::{Value, json};

use super::{but, model, refused, single, worker};

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
