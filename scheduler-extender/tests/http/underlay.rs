//! Filter with a real underlay controller on loopback, without a cluster.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Value, json};
use tautline_core::{
    answer::AnswerMode,
    index::Object,
    model::{
        Offer, Pod, Policy, ProviderUnavailable, Rule, Service, ServicePort, Target, TargetKind,
    },
    selector::Selector,
    trust::TrustedNamespaces,
};
use tautline_example_underlay::{Underlay, Verb, serve};
use tautline_proto::underlay::{NodeRef, Offer as UnderlayOffer};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_scheduler_extender::Config;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider, testkit,
};
use tokio::net::TcpListener;

use crate::served::{Served, http};

/// A provider that accepts nodes named `good...`, has no cost for those named `dark...`, and
/// refuses others.
struct OverLimit;

impl RuleProvider for OverLimit {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let mut answer = CostAnswer::default();
        for node in request.eligible_nodes {
            if node.starts_with("good") {
                answer.usable(node, 1, "");
            } else if !node.starts_with("dark") {
                answer.unusable(node, "OverLimit", "31ms > 20ms", false);
            }
        }
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

struct World {
    served: Served,
    store: ClusterStore,
    underlay: Underlay,
    _provider: testkit::TestServer,
}

fn service(name: &str, port: u16) -> Service {
    Service {
        namespace: "net".into(),
        name: name.into(),
        external_name: Some("localhost".into()),
        ports: vec![ServicePort {
            name: "grpc".into(),
            port,
        }],
        ..Service::default()
    }
}

fn provider(port: u16) -> Service {
    Service {
        rules: vec!["latency".into()],
        ..service("p", port)
    }
}

fn target(name: &str, app: &str) -> Target {
    let selector = Selector {
        match_labels: vec![("app".into(), app.into())],
        ..Selector::default()
    };
    Target {
        name: name.into(),
        kind: TargetKind::Pod,
        api_version: "v1".into(),
        selector,
    }
}

/// Pods `app: web` have to be near pods `app: db`; one of those is on `db-node`.
async fn world(mut config: Config) -> World {
    config.providers.trusted = TrustedNamespaces::all();
    let running = testkit::start(OverLimit).await.unwrap();
    let offers = [("n1", 5), ("n2", 9), ("n3", 7), ("good", 1)];
    let underlay = Underlay::new(offers, Duration::from_secs(30));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let underlay_port = listener.local_addr().unwrap().port();
    tokio::spawn(serve(listener, underlay.clone()));

    let store = ClusterStore::default();
    store.apply(Object::Service(provider(running.address.port())));
    store.apply(Object::Service(Service {
        underlay: true,
        ..service("paths", underlay_port)
    }));
    store.apply(Object::Policy(Policy {
        namespace: "shop".into(),
        name: "near".into(),
        rules: vec![Rule {
            name: "latency".into(),
            request: "10ms".into(),
            limit: "20ms".into(),
            weight: 1,
            ..Rule::default()
        }],
    }));
    for name in ["web", "web-again"] {
        store.apply(Object::Offer(Offer {
            namespace: "shop".into(),
            name: name.into(),
            uid: "".into(),
            created_unix: 0,
            targets: vec![target("a", "web"), target("b", "db")],
            policies: vec!["near".into()],
            period: Duration::from_secs(60),
            grace: Duration::ZERO,
            provider_unavailable: Some(ProviderUnavailable::Reject),
            ..Offer::default()
        }));
    }
    store.apply(Object::Pod(Pod {
        namespace: "shop".into(),
        name: "db".into(),
        uid: "db".into(),
        labels: [("app", "db")].into_iter().collect(),
        node: Some("db-node".into()),
        ..Pod::default()
    }));

    let served = Served::start(config, store.clone()).await;
    World {
        served,
        store,
        underlay,
        _provider: running,
    }
}

fn binding() -> Config {
    Config {
        answer: AnswerMode::Shortlist(64),
        bind: true,
        ..Config::default()
    }
}

impl World {
    async fn post(&self, verb: &str, nodes: &[&str]) -> Value {
        let pod = json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "u1",
                                      "labels": {"app": "web"}},
                         "spec": {"containers": []}});
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": nodes});
        let (status, text) = http(self.served.port, "POST", verb, &body.to_string()).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The underlay's part of the last round's explanation.
    async fn explained(&self) -> Value {
        let (status, text) = http(self.served.admin, "GET", "/explain/shop/web-0", "").await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()[0]["underlay"].clone()
    }

    async fn assert_metric(&self, line: &str) {
        let (_, metrics) = http(self.served.admin, "GET", "/metrics", "").await;
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }

    fn discover_calls(&self) -> usize {
        self.underlay.state().calls_of(Verb::Discover)
    }
}

#[tokio::test]
async fn discover_makes_nodes_usable_and_scores_them() {
    let world = world(binding()).await;
    let answer = world
        .post("/filter", &["n1", "n2", "n3", "n4", "dark"])
        .await;
    assert_eq!(answer, json!({"nodenames": ["n1", "n2", "n3"]}));
    let scores = world.post("/prioritize", &["n1", "n2", "n3"]).await;
    let score = |host: &str, score: u8| json!({"host": host, "score": score});
    assert_eq!(
        scores,
        json!([score("n1", 10), score("n2", 0), score("n3", 5)])
    );
    let discovered = world.underlay.state().discovered.clone();
    assert_eq!(discovered.len(), 1, "once, not for prioritize");
    assert_eq!(discovered[0].peer_nodes, ["db-node"]);
    assert_eq!(
        discovered[0].eligible_nodes,
        ["n1", "n2", "n3", "n4", "dark"]
    );
    let rules: Vec<_> = discovered[0]
        .rules
        .iter()
        .map(|r| (&*r.name, &*r.request, &*r.limit))
        .collect();
    assert_eq!(
        rules,
        [("latency", "10ms", "20ms")],
        "two offers have the rule; it is sent once"
    );

    let explained = world.explained().await;
    assert_eq!(explained["service"], "net/paths");
    assert_eq!(explained["outcome"], "Offered");
    assert_eq!(explained["askedNodes"], 5);
    let first = &explained["offers"][0];
    assert_eq!((&first["node"], &first["cost"]), (&json!("n1"), &json!(5)));
    let id = first["id"].as_str().unwrap();
    assert!(world.underlay.state().offered.contains_key(id), "{first}");
    assert!(
        first["expiresUnixMillis"].as_u64().unwrap() > 1_700_000_000_000,
        "{first}"
    );
    world
        .assert_metric("tautline_extender_underlay_discovers_total{outcome=\"Offered\"} 1")
        .await;
    assert_eq!(world.underlay.state().calls_of(Verb::Allocate), 0);
}

#[tokio::test]
async fn discover_is_not_called_while_a_node_meets_the_rules() {
    let world = world(binding()).await;
    let answer = world.post("/filter", &["n1", "good"]).await;
    assert_eq!(answer["nodenames"], json!(["good"]));
    assert_eq!(world.post("/filter", &[]).await["nodenames"], json!([]));
    assert_eq!(world.discover_calls(), 0);
    assert_eq!(world.explained().await, Value::Null);
}

#[tokio::test]
async fn invalid_offers_are_refused_with_reasons() {
    let world = world(binding()).await;
    let in_ = |seconds: i64| {
        let now = SystemTime::now();
        let gap = Duration::from_secs(seconds.unsigned_abs());
        Some(if seconds < 0 { now - gap } else { now + gap }.into())
    };
    let offer = |id: &str, node: &str, cost, expires| UnderlayOffer {
        id: id.into(),
        node: Some(NodeRef {
            cluster: String::new(),
            name: node.into(),
        }),
        cost,
        expires,
    };
    world.store.apply(Object::Pod(Pod {
        namespace: "shop".into(),
        name: "other".into(),
        uid: "other".into(),
        underlay: ["taken".into()].into(),
        ..Pod::default()
    }));
    world.underlay.state().offers_override = Some(vec![
        offer("old", "n1", 1, in_(-1)),
        offer("a/b", "n1", 1, in_(9)),
        offer("taken", "n1", 1, in_(9)),
        offer("cheap", "n2", -3, in_(9)),
        offer("lost", "n7", 1, in_(9)),
    ]);
    let answer = world.post("/filter", &["n1", "n2"]).await;
    assert_eq!(answer["nodenames"], json!([]));
    let explained = world.explained().await;
    assert_eq!(explained["outcome"], "NoOffer");
    let refused: Vec<_> = explained["offers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["refused"].clone())
        .collect();
    assert_eq!(
        refused,
        ["Expired", "BadId", "IdInUse", "NegativeCost", "UnknownNode"]
    );
    // An offer without an expiry is accepted.
    let fine = offer("fine", "n2", 0, None);
    world
        .underlay
        .state()
        .offers_override
        .iter_mut()
        .for_each(|list| list.push(fine.clone()));
    let answer = world.post("/filter", &["n1", "n2"]).await;
    assert_eq!(answer["nodenames"], json!(["n2"]));
    assert_eq!(world.explained().await["offers"][0]["id"], "fine");
}

#[tokio::test]
async fn discover_is_not_called_without_bind() {
    let world = world(Config::default()).await;
    let answer = world.post("/filter", &["n1"]).await;
    assert_eq!(answer["nodenames"], json!([]));
    assert_eq!(world.discover_calls(), 0);
    assert_eq!(world.explained().await["outcome"], "UnderlayNeedsBind");
    world
        .assert_metric(
            "tautline_extender_underlay_discovers_total{outcome=\"UnderlayNeedsBind\"} 1",
        )
        .await;
}

#[tokio::test]
async fn filter_ends_before_its_deadline_if_the_underlay_hangs() {
    let deadline = Duration::from_millis(1200);
    let mut config = Config {
        deadline,
        ..binding()
    };
    config.providers.underlay_deadline = Duration::from_secs(20);
    let world = world(config).await;
    world
        .underlay
        .state()
        .delays
        .insert(Verb::Discover, Duration::from_secs(60));
    let start = Instant::now();
    let answer = world.post("/filter", &["n1"]).await;
    assert!(start.elapsed() < deadline, "{:?}", start.elapsed());
    assert_eq!(
        answer,
        json!({"nodenames": [], "failedAndUnresolvableNodes": {"n1": "latency/OverLimit"}})
    );
    assert_eq!(world.explained().await["outcome"], "UnderlayTimeout");
}

#[tokio::test]
async fn filter_rejects_the_pod_if_the_underlay_fails() {
    let world = world(binding()).await;
    world.underlay.state().unavailable.insert(Verb::Discover);
    assert_eq!(world.post("/filter", &["n1"]).await["nodenames"], json!([]));
    let explained = world.explained().await;
    assert_eq!(explained["outcome"], "UnderlayFailed");
    assert!(
        explained["error"]
            .as_str()
            .unwrap()
            .contains("unavailable, as configured")
    );
    world
        .assert_metric("tautline_extender_underlay_discovers_total{outcome=\"UnderlayFailed\"} 1")
        .await;
    // The next attempt calls Discover again.
    world.underlay.state().unavailable.clear();
    assert_eq!(
        world.post("/filter", &["n1"]).await["nodenames"],
        json!(["n1"])
    );
}

#[tokio::test]
async fn discover_is_not_called_for_unanswered_rules_and_allocators() {
    let world = world(binding()).await;
    let running = testkit::start(OverLimit).await.unwrap();
    world.store.apply(Object::Service(Service {
        allocator: true,
        ..provider(running.address.port())
    }));
    assert_eq!(world.post("/filter", &["n1"]).await["nodenames"], json!([]));
    assert_eq!(world.explained().await["outcome"], "NoEligibleNode");

    world.store.apply(Object::Service(Service {
        rules: Vec::new(),
        ..provider(running.address.port())
    }));
    let answer = world.post("/filter", &["n1"]).await;
    assert_eq!(
        answer["failedAndUnresolvableNodes"],
        json!({"n1": "latency/NoProvider"})
    );
    assert_eq!(world.explained().await["outcome"], "RuleUnanswered");
    assert_eq!(world.discover_calls(), 0);
}
