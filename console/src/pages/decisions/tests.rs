use std::sync::Arc;

use anyhow::bail;
use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::{Value, json};

use crate::{
    Console,
    source::{AdminAnswer, Component, Read, Source},
    tests::{self, FakeSource, get},
};

const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}\u{1b}[2J";

const MANIFEST: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "4", pods: "10"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: "4", pods: "10"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n3}, status: {allocatable: {cpu: "4", pods: "10"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n4}, spec: {taints: [{key: gpu, effect: NoSchedule}]}, status: {allocatable: {cpu: "4", pods: "10"}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n5}, status: {allocatable: {cpu: "4", pods: "10"}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-0, namespace: shop, uid: u1, labels: {app: web}}, spec: {containers: []}}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicy
metadata: {name: near, namespace: shop}
spec: {rules: [{name: latency, request: 5ms, limit: 20ms}]}
---
apiVersion: constraint.ciena.com/v1alpha1
kind: ConstraintPolicyOffer
metadata: {name: web, namespace: shop}
spec: {targets: [{kind: Pod, labelSelector: {matchLabels: {app: web}}}], policies: [near]}
"#;

/// One answer of the extender for every path.
struct Extender {
    answer: Option<(u16, String)>,
    pod: Option<Pod>,
}

impl Source for Extender {
    fn admin<'a>(&'a self, _: Component, _: &'a str) -> Read<'a, Vec<AdminAnswer>> {
        Box::pin(async move {
            let Some((status, body)) = self.answer.clone() else {
                bail!("no pod of tautline-extender runs in namespace tautline-system");
            };
            Ok(vec![AdminAnswer {
                from: "pod e-1".into(),
                status,
                body: body.into(),
            }])
        })
    }

    fn pod<'a>(&'a self, _: &'a str, _: &'a str) -> Read<'a, Option<Pod>> {
        Box::pin(std::future::ready(Ok(self.pod.clone())))
    }

    fn events<'a>(&'a self, _: &'a str, _: &'a str) -> Read<'a, Vec<Event>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

fn pod(node: Option<&str>) -> Pod {
    let pod = json!({
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}},
        "spec": {"containers": [], "nodeName": node},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/5 nodes are available"}]},
    });
    serde_json::from_value(pod).unwrap()
}

fn console(answer: Option<(u16, &Value)>, pod: Option<Pod>) -> Arc<Console> {
    let mut console = tests::console(MANIFEST, FakeSource::default());
    let text = |body: &Value| {
        body.as_str()
            .map_or_else(|| body.to_string(), str::to_owned)
    };
    console.source = Arc::new(Extender {
        answer: answer.map(|(status, body)| (status, text(body))),
        pod,
    });
    Arc::new(console)
}

fn rule(offer: &str, rule: &str, weight: u32) -> Value {
    json!({"offer": offer, "rule": rule, "request": "5ms", "limit": "20ms", "weight": weight,
           "provider": "net/prober", "outcome": "OK", "counted": true, "tookMicros": 1234})
}

/// n1 is near and full, n2 is far and empty, n3 is too far.
fn record() -> Value {
    let node = |name: &str, score: u8, reason: Option<&str>, costs: Value| {
        json!({"node": name, "usable": reason.is_none(), "score": score, "reason": reason,
               "costs": costs})
    };
    json!({"namespace": "shop", "pod": "web-0", "uid": "u1", "atUnixMillis": 1_767_355_195_400_u64,
        "tookMicros": 2345, "usable": 2,
        "rules": [rule("web", "latency", 2), rule("web", "load", 1)],
        "nodes": [
            node("n1", 10, None, json!([{"cost": 350, "detail": "350us to n9"}, {"cost": 90}])),
            node("n2", 3, None, json!([{"cost": 9000, "detail": "9ms to n9"}, {"cost": 10}])),
            node("n3", 0, Some("latency/OverLimit"),
                 json!([{"cost": -1, "code": "OverLimit", "detail": "31ms > 20ms"}, {"cost": 5}])),
        ],
        "answer": {"mode": "ties", "nodes": ["n1"], "tied": 1}})
}

const PAGE: &str = "/decisions/shop/web-0";

async fn why_not(record: &Value, node: &str) -> String {
    let console = console(Some((200, &json!([record]))), Some(pod(Some("n1"))));
    let view = tests::json(&console, &format!("{PAGE}?node={node}")).await;
    view["round"]["whyNot"]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_pod_shows_its_matrix() {
    let console = console(Some((200, &json!([record()]))), Some(pod(Some("n1"))));
    let view = tests::json(&console, PAGE).await;
    let rows = view["round"]["nodes"]["rows"].as_array().unwrap();
    let rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(rows.join("\n"));
    let (status, page) = get(&console, PAGE).await;
    assert_eq!(status, 200);
    for text in [
        "the pod is here",
        "1 node <span class=\"state none\">Kubernetes</span> untolerated taint gpu</summary>",
        "latency/OverLimit",
        "not in the request",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("kube-scheduler says"), "it has a node");
}

#[tokio::test]
async fn why_not_names_the_first_reason() {
    let mut texts = Vec::new();
    for node in ["n1", "n2", "n3", "n4", "n5", "n9"] {
        texts.push(why_not(&record(), node).await);
    }
    let mut silent = record();
    silent["rules"][0]["outcome"] = "ProviderTimeout".into();
    silent["rules"][0]["error"] = "no answer from 10.0.0.7:5309 within 500ms".into();
    silent["nodes"][0]["usable"] = false.into();
    silent["nodes"][0]["reason"] = "latency/ProviderTimeout".into();
    texts.push(why_not(&silent, "n1").await);
    insta::assert_snapshot!(texts.join("\n"));
}

#[tokio::test]
async fn other_weights_give_another_order() {
    let console = console(Some((200, &json!([record()]))), Some(pod(None)));
    let same = tests::json(&console, PAGE).await;
    assert_eq!(same["round"]["whatIf"]["changed"], false);
    let uri = format!("{PAGE}?weight.web.latency=1&weight.web.load=5");
    let view = tests::json(&console, &uri).await;
    insta::assert_snapshot!(view["round"]["whatIf"]["nodes"], @r#"[{"node":"n2","rank":1,"recordedRank":2,"recordedScore":3,"score":10},{"node":"n1","rank":2,"recordedRank":1,"recordedScore":10,"score":2}]"#);
    let (_, page) = get(&console, &uri).await;
    assert!(page.contains("what-if"), "{page}");
    assert!(
        !page.contains("console:again"),
        "a slider in use is not replaced"
    );
    let (status, text) = get(&console, &format!("{PAGE}?weight.web.latency=x")).await;
    assert_eq!(status, 400, "{text}");
}

#[tokio::test]
async fn a_pod_without_rounds_teaches() {
    let text = json!("no round of pod shop/web-0 is known: no offer of namespace shop selects it");
    let console = console(Some((404, &text)), Some(pod(None)));
    let (status, page) = get(&console, PAGE).await;
    assert_eq!(status, 200);
    for part in [
        "no offer of namespace shop selects it",
        "kube-scheduler says: 0/5 nodes are available",
        "4 of 5 nodes admit the pod",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn a_pod_with_gates_is_not_called_ungoverned() {
    let text = json!("no round of pod shop/web-0 is known: it is not governed, or too old");
    let mut gated = pod(None);
    let gate = json!([{"name": "kueue.x-k8s.io/admission"}]);
    gated.spec.as_mut().unwrap().scheduling_gates = serde_json::from_value(gate).unwrap();
    let console = console(Some((404, &text)), Some(gated));
    let (_, page) = get(&console, PAGE).await;
    assert!(page.contains("kueue.x-k8s.io/admission"), "{page}");
    assert!(!page.contains("not governed"), "{page}");
}

#[tokio::test]
async fn a_round_that_is_forgotten_is_not_taken_for_another() {
    let console = console(Some((200, &json!([record()]))), Some(pod(Some("n1"))));
    let forgotten = async |at: u64| {
        let view = tests::json(&console, &format!("{PAGE}?at={at}")).await;
        view["forgotten"].as_bool().unwrap()
    };
    assert!(!forgotten(1_767_355_195_400).await);
    assert!(forgotten(5).await);
}

#[tokio::test]
async fn an_extender_that_does_not_answer_leaves_the_rest() {
    let console = console(None, Some(pod(None)));
    for uri in [PAGE, "/decisions"] {
        let (status, page) = get(&console, uri).await;
        assert_eq!(status, 200);
        assert!(page.contains("no pod of tautline-extender runs"), "{page}");
        assert!(page.contains("web-0"), "{page}");
    }
}

#[tokio::test]
async fn hostile_texts_stay_texts() {
    let mut hostile = record();
    let long = HOSTILE.repeat(500);
    for rule in hostile["rules"].as_array_mut().unwrap() {
        for field in [
            "offer", "rule", "request", "limit", "provider", "error", "outcome",
        ] {
            rule[field] = long.clone().into();
        }
    }
    for node in hostile["nodes"].as_array_mut().unwrap() {
        node["node"] = long.clone().into();
        node["costs"] =
            json!([{"cost": 1, "detail": long, "code": long}, {"cost": -1, "detail": long}]);
    }
    hostile["underlay"] = json!({"service": long, "outcome": long, "error": long, "askedNodes": 1,
        "tookMicros": 1, "offers": [{"id": long, "node": long, "cost": 1, "refused": long}]});
    let console = console(Some((200, &json!([hostile]))), Some(pod(None)));
    let (status, page) = get(&console, &format!("{PAGE}?node=%3Cimg%20src%3Dx%3E")).await;
    assert_eq!(status, 200);
    assert!(!page.contains("<img"), "{page}");
    assert!(!page.contains(['\u{202e}', '\u{1b}']), "{page}");
    let shown = page.split("</head>").nth(1).unwrap();
    assert!(shown.len() < 150_000, "{}", shown.len());
}

#[tokio::test]
async fn five_thousand_nodes_take_less_than_200_kb() {
    let mut large = record();
    let rules: Vec<Value> = (0..8)
        .map(|i| rule("web", &format!("rule-{i}"), 1))
        .collect();
    let line = |n: usize, r: usize| {
        json!({"cost": (n * 7 + r) % 1000, "code": "Measured",
        "detail": "12.345ms to a-rather-long-node-name-17, measured"})
    };
    let node = |n: usize| {
        let lines: Vec<Value> = (0..rules.len()).map(|r| line(n, r)).collect();
        json!({"node": format!("a-rather-long-node-name-{n:04}"), "usable": true, "score": 5, "costs": lines})
    };
    large["nodes"] = (0..5000).map(node).collect();
    large["usable"] = 5000.into();
    large["rules"] = rules.clone().into();
    let console = console(Some((200, &json!([large]))), Some(pod(None)));
    for uri in [
        PAGE.to_owned(),
        format!("{PAGE}?page=7&node=a-rather-long-node-name-0400"),
    ] {
        let (status, page) = get(&console, &uri).await;
        assert_eq!(status, 200);
        assert!(page.len() < 200_000, "{uri}: {} bytes", page.len());
    }
}

#[tokio::test]
async fn the_list_has_rounds_and_waiting_pods() {
    let round = |pod: &str, usable: usize| {
        json!({"namespace": "shop", "pod": pod, "uid": pod, "atUnixMillis": 1_767_355_195_400_u64,
               "tookMicros": 900, "nodes": 5, "usable": usable, "offered": usable,
               "offeredNodes": if usable > 0 { vec!["n1"] } else { vec![] },
               "reason": (usable == 0).then_some("latency/OverLimit")})
    };
    let rounds = json!([round("web-0", 0), round("web-1", 3)]);
    let console = console(Some((200, &rounds)), None);
    let pods = async |uri: &str| {
        let view = tests::json(&console, uri).await;
        let rows = view["rounds"]["rows"].as_array().unwrap().iter();
        let names = rows.map(|r| r["pod"].as_str().unwrap().to_owned());
        (
            names.collect::<Vec<_>>(),
            view["waitingTotal"].as_u64().unwrap(),
        )
    };
    assert_eq!(
        pods("/decisions").await,
        (vec!["web-0".into(), "web-1".into()], 1)
    );
    assert_eq!(pods("/decisions?verdict=none").await.0, ["web-0"]);
    assert_eq!(pods("/decisions?q=1").await, (vec!["web-1".into()], 0));
    assert_eq!(pods("/decisions?namespace=x").await, (vec![], 0));
    let by_full_name = pods("/decisions?q=Shop/Web-0").await;
    assert_eq!(by_full_name, (vec!["web-0".into()], 1));
    let (_, page) = get(&console, "/decisions?namespace=x").await;
    assert!(!page.contains("Every pod has a node"), "one waits");
    let waiting = tests::json(&console, "/decisions?view=waiting&reason=other").await;
    assert_eq!(waiting["waiting"]["rows"][0]["pod"], "web-0");
    let (status, _) = get(&console, "/decisions?verdict=maybe").await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_pod_that_waits_has_a_sentence() {
    const WHY: &str = "One node passes; a limit of 31ms would admit <one>.";
    let mut refused = record();
    refused["whyPending"] = WHY.into();
    let shown = "a limit of 31ms would admit &lt;one&gt;.";
    for (pod, expected) in [(pod(None), true), (pod(Some("n1")), false)] {
        let console = console(Some((200, &json!([refused]))), Some(pod));
        let (_, page) = get(&console, PAGE).await;
        assert_eq!(page.contains(shown), expected, "{page}");
    }
    let summary = json!({"namespace": "shop", "pod": "web-0", "uid": "u1", "atUnixMillis": 5,
        "tookMicros": 1, "nodes": 1, "usable": 0, "offered": 0, "offeredNodes": [],
        "whyPending": WHY});
    let console = console(Some((200, &json!([summary]))), None);
    for uri in ["/decisions", "/decisions?view=waiting", "/"] {
        let (_, page) = get(&console, uri).await;
        assert!(page.contains(shown), "{uri}: {page}");
    }
}
