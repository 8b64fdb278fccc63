use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use tautline_api::ConstraintPolicyBinding;

use crate::{
    Console,
    source::Component,
    tests::{self, FakeSource, get},
};

const MANIFEST: &str = r"
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: shop}, spec: {nodeName: n1, containers: []}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db-0, namespace: shop}, spec: {nodeName: n2, containers: []}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: old-db, namespace: shop, labels: {kubernetes.io/service-name: old-db}}
addressType: IPv4
endpoints: [{addresses: [203.0.113.9]}]
ports: [{port: 5432, protocol: TCP}]
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicy
metadata: {name: near, namespace: shop}
spec: {rules: [{name: latency, request: 5ms, limit: 20ms}, {name: jitter, limit: 2ms}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: web-near-db, namespace: shop}
spec:
  targets: [{name: source, kind: Pod}]
  policies: [near, gone]
  grace: 2m
  violationPolicy: Evict
";

const HOSTILE: &str = "<script>alert(1)</script>\u{202e}\u{1b}[2J";

#[tokio::test]
async fn commands_are_quoted_for_a_shell() {
    let console = console(Vec::new());
    let (_, page) = get(&console, "/bindings?namespace=a;rm%20-rf%20~&offer=$(x)").await;
    let command = "tautline get bindings -n 'a;rm -rf ~' --offer '$(x)'";
    assert!(page.contains(command), "{page}");
}

fn binding(name: &str, compliance: &str, reason: &str) -> Arc<ConstraintPolicyBinding> {
    let target = |name: &str| json!({"cluster": "", "namespace": "shop", "apiVersion": "v1", "kind": "Pod", "name": name});
    let binding = json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicyBinding",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": "2026-01-02T09:00:00Z"},
        "spec": {"offer": "web-near-db", "targets": {"source": target("web-0"), "destination": target("db-0")}},
        "status": {
            "compliance": compliance, "firstReason": reason,
            "lastComplianceChangeTimestamp": "2026-01-02T10:00:00Z",
            "details": [{"policy": "near", "compliance": compliance, "reason": reason, "ruleDetails": [
                {"rule": "latency", "compliance": compliance, "reason": reason, "provider": "net/latency"}]}],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Evaluated", "message": "", "lastTransitionTime": "2026-01-02T09:00:01Z"},
                {"type": "Compliant", "status": "False", "reason": "Violation", "message": "", "lastTransitionTime": "2026-01-02T09:58:00Z"}],
        },
    });
    Arc::new(serde_json::from_value(binding).unwrap())
}

fn console(bindings: Vec<Arc<ConstraintPolicyBinding>>) -> Arc<Console> {
    let decisions = json!([
        {"time": "2026-01-02T10:01:00Z", "binding": "shop/b", "offer": "shop/web-near-db",
         "action": "Evict", "outcome": "NoBetterNode", "text": "no other node is in range", "violation": "31ms"},
        {"time": "2026-01-02T10:01:00Z", "binding": "shop/other", "action": "Evict", "outcome": "Evicted", "text": "x"},
    ]);
    let event: Event = serde_json::from_value(json!({
        "metadata": {"creationTimestamp": "2026-01-02T10:00:01Z"}, "involvedObject": {},
        "type": "Warning", "reason": "Violation", "message": HOSTILE, "count": 3,
    }))
    .unwrap();
    let source = FakeSource {
        admin: vec![(Component::Controller, "/decisions", decisions.to_string())],
        events: vec![event],
        ..FakeSource::default()
    };
    let console = tests::console(MANIFEST, source);
    console.bindings.reset(bindings);
    Arc::new(console)
}

fn some() -> Arc<Console> {
    console(vec![
        binding("a", "Compliant", "3ms"),
        binding("b", "Violation", "31ms > 20ms"),
        binding("c", "Limit", "7ms"),
        binding("d", "Error", HOSTILE),
    ])
}

fn names(view: &Value) -> Vec<&str> {
    let rows = view["bindings"]["rows"].as_array().unwrap();
    rows.iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn list_shows_the_worst_first() {
    let view = tests::json(&some(), "/bindings").await;
    assert_eq!(names(&view), ["d", "b", "c", "a"]);
    insta::assert_snapshot!(view["bindings"]["rows"][1], @r#"{"compliance":"Violation","limit":"20ms","name":"b","namespace":"shop","offer":"web-near-db","percentOfLimit":155,"reason":"31ms > 20ms","since":"2026-01-02T10:00:00Z","targets":["Pod/db-0","Pod/web-0"],"value":"31ms"}"#);
}

#[tokio::test]
async fn list_is_filtered() {
    let console = some();
    for (query, expected) in [
        ("compliance=violation", vec!["b"]),
        ("q=31MS", vec!["b"]),
        ("q=db-0&compliance=Limit", vec!["c"]),
        ("namespace=other", vec![]),
        ("offer=web-near-db&namespace=shop", vec!["d", "b", "c", "a"]),
    ] {
        let view = tests::json(&console, &format!("/bindings?{query}")).await;
        assert_eq!(names(&view), expected, "{query}");
    }
    let (status, body) = get(&console, "/bindings?compliance=Violated").await;
    assert_eq!(status, 400);
    assert!(
        body.contains("Error, Violation, Limit, Pending, Compliant"),
        "{body}"
    );
    let (_, body) = get(&console, "/bindings?namespace=shop&compliance=violation").await;
    assert!(
        body.contains("tautline get bindings -n shop --compliance violation<"),
        "{body}"
    );
}

#[tokio::test]
async fn list_without_bindings_teaches() {
    let (_, body) = get(&console(Vec::new()), "/bindings").await;
    assert!(body.contains("tautline doctor"), "{body}");
    let (_, body) = get(&some(), "/bindings?q=nothing").await;
    assert!(body.contains("No binding fits the filter"), "{body}");
}

#[tokio::test]
async fn pages_show_hostile_texts_as_text() {
    for path in ["/bindings", "/bindings/shop/d"] {
        let (status, body) = get(&some(), path).await;
        assert_eq!(status, 200);
        assert!(!body.contains("<script>alert"), "{body}");
        assert!(body.contains("&lt;script&gt;alert(1)"), "{body}");
        assert!(
            !body.contains('\u{202e}') && !body.contains('\u{1b}'),
            "{path}"
        );
    }
}

#[tokio::test]
async fn binding_has_its_rules_targets_and_timeline() {
    let console = some();
    let view = tests::json(&console, "/bindings/shop/b").await;
    let rules: Vec<_> = view["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_snapshot!(rules.join("\n"), @r#"
    {"compliance":"Violation","limit":"20ms","policy":"near","provider":"net/latency","reason":"31ms > 20ms","request":"5ms","rule":"latency"}
    {"compliance":"Pending","limit":"2ms","policy":"near","provider":"","reason":"not evaluated yet","request":"","rule":"jitter"}
    {"compliance":"Error","limit":"","policy":"gone","provider":"","reason":"there is no such policy","request":"","rule":""}
    "#);
    let moments = view["timeline"].as_array().unwrap().iter();
    let titles: Vec<_> = moments.map(|m| m["title"].as_str().unwrap()).collect();
    let expected = [
        "Evict: NoBetterNode",
        "Violation ×3",
        "Violation",
        "Out of range",
        "Can be evaluated",
        "Created",
    ];
    assert_eq!(titles, expected);
    let (_, body) = get(&console, "/bindings/shop/b").await;
    for part in [
        "href=\"/latency/pair/n2/n1\"",
        "href=\"/decisions/shop/web-0\"",
        "href=\"/gpu/n2\"",
        "tautline describe binding b -n shop<",
        "a pod is evicted",
    ] {
        assert!(body.contains(part), "{part}: {body}");
    }
}

#[tokio::test]
async fn binding_leads_to_the_pair_of_a_node_and_an_address_outside() {
    let mut of_old = ConstraintPolicyBinding::clone(&binding("a", "Compliant", "3ms"));
    let old = of_old.spec.targets.get_mut("destination").unwrap();
    (old.kind, old.name) = ("Endpoints".to_owned(), "old-db".to_owned());
    let console = console(vec![Arc::new(of_old)]);
    let (_, body) = get(&console, "/bindings/shop/a").await;
    let part = "href=\"/latency/pair/203.0.113.9%3A5432/n1\"";
    assert!(body.contains(part), "{body}");
}

#[tokio::test]
async fn binding_without_the_controller_shows_the_rest() {
    let console = tests::console(MANIFEST, FakeSource::default());
    console
        .bindings
        .reset(vec![binding("b", "Violation", "31ms")]);
    let view = tests::json(&Arc::new(console), "/bindings/shop/b").await;
    let problem = view["problems"][0].as_str().unwrap();
    assert!(problem.contains("no pod of Controller runs"), "{problem}");
    assert_eq!(view["rules"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn binding_in_violation_shows_the_next_eviction() {
    let status = "status: {lastEviction: {pod: web-9, uid: u, node: n1, binding: x, \
                  time: \"2125-01-02T09:58:00Z\", nextTime: \"2125-01-02T10:00:00Z\"}}";
    let manifest = format!("{}\n{status}", MANIFEST.trim_end());
    let console = tests::console(&manifest, FakeSource::default());
    let bindings = [("b", "Violation"), ("c", "Limit")].map(|(n, c)| binding(n, c, "31ms"));
    console.bindings.reset(bindings.into());
    let console = Arc::new(console);
    let view = tests::json(&console, "/bindings/shop/b").await;
    let wait = view["nextEviction"].as_str().unwrap();
    assert!(wait.contains("(2125-01-02T10:00:00Z)"), "{wait}");
    let first = &view["timeline"][0];
    assert_eq!(first["title"], "Next eviction");
    assert_eq!(first["isExpected"], true);
    let (_, body) = get(&console, "/bindings/shop/b").await;
    assert!(body.contains("<dt>Next eviction</dt><dd>in "), "{body}");
    let view = tests::json(&console, "/bindings/shop/c").await;
    assert_eq!(view["nextEviction"], Value::Null);
}

#[tokio::test]
async fn absent_binding_is_a_404() {
    let (status, body) = get(&some(), "/bindings/shop/zzz").await;
    assert_eq!(status, 404);
    assert!(body.contains("shop/zzz, of 4 known"), "{body}");
}

#[tokio::test]
async fn large_list_is_a_small_page() {
    let reason = "31ms to node-0123 exceeds the limit of 20ms ".repeat(200);
    let all = (0..10_000).map(|i| binding(&format!("b-{i:05}"), "Violation", &reason));
    let console = console(all.collect());
    let (_, body) = get(&console, "/bindings?page=50").await;
    assert!(body.len() < 200_000, "{} bytes", body.len());
    assert!(body.contains("Page 50 of 100, 10000 in all"));
}
