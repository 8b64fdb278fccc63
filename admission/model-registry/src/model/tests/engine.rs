use serde_json::{Value, json};

use super::{but, refused, single};

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
