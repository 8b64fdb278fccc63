//! `/what-if` of the admin port.

use serde_json::{Value, json};
use tautline_core::{index::Object, model::Node};
use tautline_scheduler_extender::{Config, WhatIf};

use crate::{
    served::http,
    verbs::{ALL, Sample, World, names, world},
};

/// The pod of a template: it has no name, and no API server knows it.
fn template(app: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "labels": {"app": app}}, "spec": {"containers": []}})
}

async fn ask(world: &World, body: &Value) -> WhatIf {
    let (status, text) = http(world.served.admin, "POST", "/what-if", &body.to_string()).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn node_names(answer: &WhatIf) -> Vec<&str> {
    answer.nodes.iter().map(|n| n.node.as_str()).collect()
}

#[tokio::test]
async fn what_if_answers_as_explain_does() {
    let world = world(Config::default(), Sample::default()).await;
    let answer = ask(&world, &json!({"pod": template("web"), "nodes": ALL})).await;
    assert!(answer.governed);
    assert_eq!(answer.rules[0].rule, "latency");
    assert_eq!(node_names(&answer), ["n1", "n5", "n2", "n3", "n4"]);
    let [best, .., full, far] = answer.nodes.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!((best.usable, best.costs[0].cost), (true, Some(5)));
    assert_eq!(full.reason.as_deref(), Some("latency/Full"));
    assert!(full.costs[0].freeable && !full.usable);
    assert_eq!(far.costs[0].detail, "31ms > 20ms");
    assert!(!far.costs[0].freeable);

    world.post("/filter", names("web", &ALL)).await;
    let (_, explained) = http(world.served.admin, "GET", "/explain/shop/web-0", "").await;
    let explained: Value = serde_json::from_str(&explained).unwrap();
    let answered = serde_json::to_value(&answer.nodes).unwrap();
    assert_eq!(explained[0]["nodes"], answered);
}

#[tokio::test]
async fn what_if_without_nodes_asks_about_all() {
    let world = world(
        Config {
            max_nodes: 2,
            ..Config::default()
        },
        Sample::default(),
    )
    .await;
    let node = |name: &str| {
        Object::Node(Node {
            name: name.into(),
            ..Node::default()
        })
    };
    world.store.apply(node("n2"));
    world.store.apply(node("n4"));
    let body = json!({"pod": template("web")});
    assert_eq!(node_names(&ask(&world, &body).await), ["n2", "n4"]);
    let sent = body.to_string();
    world.store.apply(node("n5"));
    let (status, text) = http(world.served.admin, "POST", "/what-if", &sent).await;
    assert_eq!(status, 413, "{text}");
    assert!(
        text.contains("3 nodes are more than the limit of 2"),
        "{text}"
    );
}

#[tokio::test]
async fn what_if_says_that_a_pod_is_ungoverned() {
    let world = world(Config::default(), Sample::default()).await;
    let mut exempt = template("web");
    exempt["metadata"]["namespace"] = "kube-system".into();
    for pod in [template("db"), exempt] {
        let answer = ask(&world, &json!({"pod": pod, "nodes": ["n3", "n4"]})).await;
        assert!(!answer.governed && answer.rules.is_empty());
        assert_eq!(node_names(&answer), ["n3", "n4"]);
        let is_free = |n: &tautline_scheduler_extender::explain::NodeRecord| {
            n.usable && n.costs.is_empty() && n.reason.is_none()
        };
        assert!(answer.nodes.iter().all(is_free), "{answer:?}");
    }
}

#[tokio::test]
async fn what_if_counts_the_pods_that_have_a_place_together() {
    let world = world(Config::default(), Sample::default()).await;
    // n4 is beyond the limit.
    for (name, pods) in [("n1", 2), ("n2", 1), ("n4", 9)] {
        world.store.apply(Object::Node(Node {
            name: name.into(),
            allocatable: [("pods", 1_000 * pods)].into_iter().collect(),
            ..Node::default()
        }));
    }
    let group = async |app: &str, count: usize| {
        let answer = ask(&world, &json!({"pod": template(app), "count": count})).await;
        answer.group
    };
    let fits = group("web", 3).await.unwrap();
    assert_eq!((fits.pods, fits.placed, &*fits.why), (3, 3, ""));
    assert_eq!(fits.nodes.into_iter().collect::<Vec<_>>(), ["n1", "n2"]);
    let too_many = group("web", 4).await.unwrap();
    assert_eq!((too_many.pods, too_many.placed), (4, 3), "{too_many:?}");
    assert!(too_many.why.contains("finds no node"), "{too_many:?}");
    assert!(group("db", 4).await.is_none(), "no offer governs it");
    let (_, metrics) = http(world.served.admin, "GET", "/metrics", "").await;
    assert!(
        metrics.contains("tautline_extender_pods_in_flight 0\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn what_if_remembers_nothing() {
    let world = world(Config::default(), Sample::default()).await;
    let admin = world.served.admin;
    // The pod of kube-scheduler's own calls, with its name and UID.
    let pod = names("web", &ALL)["Pod"].clone();
    ask(&world, &json!({"pod": pod, "nodes": ["n1"]})).await;
    assert_eq!(http(admin, "GET", "/explain", "").await.1, "[]");
    let (status, _) = http(admin, "GET", "/explain/shop/web-0", "").await;
    assert_eq!(status, 404);
    let (_, metrics) = http(admin, "GET", "/metrics", "").await;
    for line in [
        "tautline_extender_requests_total{verb=\"what-if\",status=\"200\"} 1\n",
        "tautline_extender_pods_in_flight 0\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    for absent in ["tautline_extender_pods_total{", "rejected_nodes_total{"] {
        assert!(!metrics.contains(absent), "{absent}: {metrics}");
    }
    // A plan in the cache would spare prioritize its own call.
    let before = world.calls();
    world.post("/prioritize", names("web", &["n1"])).await;
    assert_eq!(world.calls(), before + 1);
}

#[tokio::test]
async fn what_if_refuses_invalid_requests() {
    let config = Config {
        max_body_bytes: 1000,
        max_nodes: 3,
        ..Config::default()
    };
    let world = world(config, Sample::default()).await;
    let many = json!({"pod": template("web"), "nodes": ALL}).to_string();
    for (method, body, status, part) in [
        ("GET", "", 405, "what-if takes POST"),
        ("POST", "", 400, "the JSON of WhatIf"),
        ("POST", "{}", 400, "pod is missing"),
        ("POST", "{\"pod\": []}", 400, "the JSON of WhatIf"),
        ("POST", "{\"pod\": {}}", 400, "metadata"),
        (
            "POST",
            "{\"pod\": {\"metadata\": {}}, \"nodes\": 1}",
            400,
            "a list",
        ),
        (
            "POST",
            "{\"pod\": {\"metadata\": {}}, \"count\": -1}",
            400,
            "the JSON of WhatIf",
        ),
        ("POST", &many, 413, "4 nodes are more than the limit of 3"),
        ("POST", &"x".repeat(1001), 413, "--max-body"),
    ] {
        let (got, text) = http(world.served.admin, method, "/what-if", body).await;
        assert_eq!(got, status, "{method} {body}: {text}");
        assert!(text.contains(part), "{part}: {text}");
    }
    let (status, _) = http(world.served.port, "POST", "/what-if", &many).await;
    assert_eq!(status, 404, "the admin port alone has it");
}
