use std::{fmt::Write, sync::Arc};

use serde_json::{Value, json};
use tautline_core::{index::Object, model};

use crate::{
    Console,
    source::Component,
    tests::{self, FakeSource, get},
};

const MANIFEST: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n1}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}}
---
apiVersion: v1
kind: Pod
metadata: {name: far, namespace: shop, labels: {app: web}}
spec: {containers: []}
status:
  conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/2 nodes are available: 2 latency/OverLimit."}]
---
{apiVersion: v1, kind: Pod, metadata: {name: gated, namespace: shop}, spec: {containers: [], schedulingGates: [{name: quota}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: fresh, namespace: shop}, spec: {containers: []}}
---
{apiVersion: v1, kind: Pod, metadata: {name: bound, namespace: shop}, spec: {containers: [], nodeName: n1}}
"#;

fn status() -> Value {
    let call = json!({"atUnixMillis": 1_767_355_195_400_u64, "tookMicros": 501_000,
        "deadlineMicros": 500_000, "outcome": "ProviderTimeout", "error": "<b>no answer</b>\u{202e}"});
    json!({"answer": "ties", "providerNamespaces": "tautline-system", "providerDeadlineMicros": 500_000,
    "requests": [{"verb": "filter", "atUnixSeconds": 1_767_355_195}],
    "providers": [
        {"rule": "bandwidth", "service": "net/b", "trusted": true, "addresses": [{"address": "10.0.0.7:5309", "breakerOpen": false}]},
        {"rule": "carbon", "trusted": false, "addresses": []},
        {"rule": "latency", "service": "net/l", "trusted": true, "lastCall": call,
         "addresses": [{"address": "10.0.0.8:5309", "breakerOpen": true, "retryInMicros": 900_000}]},
    ]})
}

fn console(admin: Vec<(Component, &'static str, String)>) -> Console {
    let source = FakeSource {
        admin,
        ..FakeSource::default()
    };
    let console = tests::console(MANIFEST, source);
    let binding = |name: &str, compliance: &str| {
        let binding = json!({"apiVersion": "constraint.ciena.com/v1alpha1",
            "kind": "ConstraintPolicyBinding", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"offer": "web", "targets": {}},
            "status": {"compliance": compliance, "firstReason": "<i>31ms</i>",
                "lastComplianceChangeTimestamp": "2026-01-02T11:59:00Z"}});
        Arc::new(serde_json::from_value(binding).unwrap())
    };
    console.bindings.reset(vec![
        binding("a", "Violation"),
        binding("b", "Compliant"),
        binding("c", "Compliant"),
    ]);
    console
}

/// The silent agents of so many nodes, at most 20 of them with names, as a provider lists them.
fn silent(total: usize) -> String {
    let seconds = |i: usize| [190, 130].get(i).copied();
    let nodes = (0..total.min(20))
        .map(|i| json!({"node": format!("<i>n{i}\u{202e}"), "silentSeconds": seconds(i)}));
    json!({"total": total, "nodes": nodes.collect::<Vec<_>>()}).to_string()
}

fn answers() -> Vec<(Component, &'static str, String)> {
    let round = json!({"namespace": "shop", "pod": "far", "uid": "u", "nodes": 2, "usable": 0,
        "atUnixMillis": 1_767_355_195_400_u64, "tookMicros": 900, "offered": 0, "offeredNodes": [],
        "reason": "latency/OverLimit"});
    let decision = json!({"time": "2026-01-02T11:58:00Z", "binding": "shop/a", "offer": "shop/web",
        "action": "Evict", "outcome": "NoBetterNode", "text": "<script>x</script>", "violation": "far"});
    vec![
        (Component::Extender, "/status", status().to_string()),
        (Component::Extender, "/explain", json!([round]).to_string()),
        (
            Component::Controller,
            "/decisions",
            json!([decision]).to_string(),
        ),
        (
            Component::Latency,
            "/metrics",
            "tautline_latency_agents 1\n".to_owned(),
        ),
        (Component::Latency, "/latency/silent", silent(1)),
        (Component::Gpu, "/gpu/silent", silent(7)),
    ]
}

#[tokio::test]
async fn overview_counts_each_part() {
    let console = Arc::new(console(answers()));
    let view = tests::json(&console, "/").await;
    insta::assert_snapshot!(serde_json::to_string_pretty(&view).unwrap());
    let (status, page) = get(&console, "/").await;
    assert_eq!(status, 200);
    for text in [
        "breaker open at 1 of 1",
        "no Service",
        "not called yet",
        "1 of 2 nodes",
        "no usable node of 2",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    for hostile in ["<b>no", "<i>31", "<i>n0", "<script>x", "\u{202e}"] {
        assert!(!page.contains(hostile), "{hostile}");
    }
}

#[tokio::test]
async fn lists_that_are_not_complete_are_not_called_empty() {
    let console = Arc::new(tests::console("", FakeSource::default()));
    let empty = [
        ("/", "Every pod has a node"),
        ("/", "No offer exists"),
        ("/", "No node reports GPUs"),
        ("/decisions", "Every pod has a node"),
        ("/bindings", "There are no bindings"),
        ("/gpu", "No node has GPUs"),
        ("/policies", "No offer is here"),
        ("/policies?list=policies", "No policy is here"),
    ];
    for (uri, text) in empty {
        let (_, page) = get(&console, uri).await;
        assert!(page.contains(text), "{uri}: {page}");
    }
    let lists = [
        "nodes",
        "pods",
        "constraintpolicies",
        "constraintpolicyoffers",
        "constraintpolicybindings",
    ];
    for list in lists {
        console.readiness.expect(list);
    }
    for (uri, text) in empty {
        let (_, page) = get(&console, uri).await;
        assert!(!page.contains(text), "{uri}: {page}");
    }
}

#[tokio::test]
async fn overview_shows_the_rest_if_no_server_answers() {
    let console = Arc::new(console(Vec::new()));
    let (status, page) = get(&console, "/").await;
    assert_eq!(status, 200);
    assert!(page.contains("no pod of Extender runs"), "{page}");
    assert!(page.contains("now Violation: &lt;i&gt;31ms"), "{page}");
    assert!(page.contains("No offer exists yet"), "{page}");
}

#[tokio::test]
async fn overview_of_a_large_cluster_is_small() {
    let console = console(answers());
    for i in 0..5_000 {
        console.store.apply(Object::Node(model::Node {
            name: format!("node-{i}").into(),
            ..model::Node::default()
        }));
    }
    let mut yaml = String::new();
    for i in 0..300 {
        let message = format!("0/1 nodes are available: 1 rule-{i}/OverLimit.");
        _ = writeln!(
            yaml,
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p{i}, namespace: shop}}, spec: {{containers: []}}, \
             status: {{conditions: [{{type: PodScheduled, status: 'False', reason: Unschedulable, message: '{message}'}}]}}}}\n---"
        );
    }
    for item in tautline_api::manifest::parse(&yaml).unwrap() {
        let object = tautline_runtime::manifest_files::object(&item).unwrap();
        console.store.apply(object.unwrap());
    }
    let (status, page) = get(&Arc::new(console), "/").await;
    assert_eq!(status, 200);
    assert!(page.len() < 40_000, "{}", page.len());
}

#[tokio::test]
async fn what_needs_attention_comes_first() {
    let console = console(answers());
    let binding = |name: &str, compliance: &str, reason: &str| {
        let detail = json!({"policy": "near", "compliance": compliance, "ruleDetails": [
            {"rule": "latency", "compliance": compliance, "reason": reason}]});
        let binding = json!({"apiVersion": "constraint.ciena.com/v1alpha1",
            "kind": "ConstraintPolicyBinding", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"offer": "web", "targets": {}},
            "status": {"compliance": compliance, "firstReason": reason, "details": [detail],
                "lastComplianceChangeTimestamp": "2026-01-02T11:59:00Z"}});
        Arc::new(serde_json::from_value(binding).unwrap())
    };
    let good = (0..40).map(|i| binding(&format!("good-{i}"), "Compliant", "3ms of 20ms"));
    let bad = [
        binding("near", "Violation", "21ms > 20ms"),
        binding("far", "Violation", "31ms > 20ms"),
        binding("full", "Violation", "no card"),
        binding("lost", "Error", "no answer"),
    ];
    console.bindings.reset(good.chain(bad).collect());
    let console = Arc::new(console);
    let view = tests::json(&console, "/").await;
    let violations = view["attention"]["violations"].as_array().unwrap();
    let names: Vec<&str> = violations
        .iter()
        .map(|v| v["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["lost", "far", "near", "full"]);
    assert_eq!(violations[1]["percentOfLimit"], 155);
    let entries = view["feed"]["entries"].as_array().unwrap();
    for bad in ["shop/near", "shop/far", "shop/full", "shop/lost"] {
        assert!(entries.iter().any(|e| e["object"] == bad), "{bad}: {view}");
    }
    // A pod with scheduling gates waits for its owner.
    let waiting = view["attention"]["waiting"].as_array().unwrap();
    let pods: Vec<&str> = waiting.iter().map(|p| p["pod"].as_str().unwrap()).collect();
    assert_eq!(pods, ["far", "fresh"]);
    let (_, page) = get(&console, "/").await;
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    assert!(at("155 % of the limit") < at("class=\"tiles\""));
    assert!(at("silent agents") < at("class=\"tiles\""));
    assert!(!page.contains("No binding is in violation"), "{page}");
}

#[tokio::test]
async fn silent_agents_have_names_and_links() {
    let (_, page) = get(&Arc::new(console(answers())), "/").await;
    let line = |title: &str| {
        let (_, line) = page
            .split_once(title)
            .unwrap_or_else(|| panic!("{title}: {page}"));
        line.split_once("</li>").unwrap().0.to_owned()
    };
    insta::assert_snapshot!("silent_latency", line("1 of 2 nodes</a>"));
    insta::assert_snapshot!("silent_gpu", line("GPU agents of 7 nodes</a>"));
    // Manifests have no agents.
    let mut console = console(answers());
    console.of_manifests = true;
    let (_, page) = get(&Arc::new(console), "/").await;
    assert!(!page.contains("GPU agents of"), "{page}");
}

#[tokio::test]
async fn tiles_have_the_last_hours() {
    let history = |name: &str, unit: &str, values: [u64; 3]| {
        let samples: Vec<(u64, u64)> = (29_455_919..).zip(values).collect();
        json!([{"name": name, "unit": unit, "samples": samples}]).to_string()
    };
    let figures = [
        (
            Component::Controller,
            history("violations", "bindings", [4, 0, 2]),
        ),
        (
            Component::Extender,
            history("waitingPods", "pods", [3, 9, 3]),
        ),
        (
            Component::Gpu,
            history("givenCards", "percent", [10, 62, 55]),
        ),
    ];
    let figures = figures.map(|(component, body)| (component, "/history", body));
    let with_history = || {
        let mut console = console([answers(), figures.to_vec()].concat());
        console.store.apply(Object::Node(gpu_node()));
        console.of_manifests = false;
        console
    };
    let console = Arc::new(with_history());
    let (_, page) = get(&console, "/").await;
    for text in [
        "Violations over the last 2 minutes: 0 to 4, now 2",
        "Waiting pods over the last 2 minutes: 3 to 9, now 3",
        "Given to pods over the last 2 minutes: 10 % to 62 %, now 55 %",
    ] {
        let title = format!("<title>{text}</title>");
        assert!(page.contains(&title), "{text}: {page}");
    }
    assert!(!page.contains("style="), "{page}");
    let view = tests::json(&console, "/").await;
    let violations = &view["history"]["violations"];
    assert_eq!(violations["samples"][2], json!([29_455_921, 2]), "{view}");

    let mut of_manifests = with_history();
    of_manifests.of_manifests = true;
    let (_, page) = get(&Arc::new(of_manifests), "/").await;
    assert!(!page.contains("svg class=\"spark\""), "{page}");
}

fn gpu_node() -> model::Node {
    model::Node {
        name: "gpu-1".into(),
        allocatable: [("nvidia.com/gpu", 8000)].into_iter().collect(),
        ..model::Node::default()
    }
}
