//! Descriptions: put together from several reads.

use serde_json::{Value, json};

use crate::{
    api_server::{Answer, ApiServer},
    binding, bindings, list, refusal, tautline, text,
};

#[test]
fn describe_binding_shows_offer_and_history() {
    let event = json!({
        "metadata": {"name": "e"}, "involvedObject": {}, "type": "Warning", "count": 2,
        "reason": "Violated", "message": "31ms", "lastTimestamp": "2020-01-01T00:00:00Z",
    });
    let server = ApiServer::start(move |path| match path {
        p if p.contains("/constraintpolicybindings/a-1") => {
            Answer::json(200, &binding("a-1", "Violation"))
        }
        p if p.contains("/constraintpolicyoffers/a") => refusal(404, "NotFound", "no", Some("a")),
        p if p.contains("/constraintpolicies") => list(
            "ConstraintPolicy",
            &[json!({"metadata": {"name": "near", "namespace": "shop"},
                "spec": {"rules": [{"name": "latency", "request": "5ms", "limit": "20ms"}]}})],
            "",
        ),
        p if p.starts_with("/api/v1/namespaces/shop/events?") => {
            assert!(p.contains("involvedObject.name%3Da-1"), "{p}");
            assert!(
                p.contains("involvedObject.kind%3DConstraintPolicyBinding"),
                "{p}"
            );
            list("Event", std::slice::from_ref(&event), "")
        }
        p => panic!("{p}"),
    });
    let out = tautline(&server, &["describe", "binding", "a-1"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let shown = text(&out.stdout);
    for expected in [
        "a, which was deleted",
        "shop/latency",
        "5ms",
        "20ms",
        "(x2)",
        "31ms",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let out = tautline(&server, &["describe", "cpb", "a-1", "-o", "json"]);
    let value: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(value["binding"], binding("a-1", "Violation"));
    assert_eq!(value["offer"], Value::Null);
    assert_eq!(value["policies"][0]["metadata"]["name"], "near");
    assert_eq!(value["events"][0]["reason"], "Violated");
    assert_eq!(value["events"][0]["count"], 2);
}

#[test]
fn describe_offer_counts_bindings() {
    let offer = json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyOffer",
        "metadata": {"name": "a", "namespace": "shop", "managedFields": [{"manager": "x"}]},
        "spec": {"targets": [{"kind": "Pod"}], "policies": ["near"]},
    });
    let server = ApiServer::start(move |path| match path {
        p if p.contains("/constraintpolicyoffers/a") => Answer::json(200, &offer),
        p if p.contains("/constraintpolicybindings?") => bindings(
            &[
                binding("a-1", "Violation"),
                binding("a-2", "Compliant"),
                binding("b-1", "Error"),
            ],
            "",
        ),
        p if p.contains("/constraintpolicies") => list("ConstraintPolicy", &[], ""),
        p if p.contains("/events") => {
            assert!(p.contains("involvedObject.name%3Da%2C"), "{p}");
            list("Event", &[], "")
        }
        p => panic!("{p}"),
    });
    let out = tautline(&server, &["describe", "offer", "a"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let shown = text(&out.stdout);
    for expected in ["2 (1 Violation, 1 Compliant)", "there is no such policy"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let out = tautline(&server, &["describe", "cpo", "a", "-o", "json"]);
    let value: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(value["bindings"]["Violation"], 1);
    assert_eq!(value["bindings"]["Error"], 0);
    assert_eq!(value["offer"]["metadata"]["managedFields"], Value::Null);
    assert_eq!(value["events"], json!([]));
}
