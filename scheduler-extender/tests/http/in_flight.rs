//! Pods in flight: each question knows of the answers before it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tautline_core::{
    answer::AnswerMode,
    index::{Kind, Object},
    model::{Offer, Pod, Policy, Rule, Service, ServicePort, Target, TargetKind},
    selector::Selector,
    trust::TrustedNamespaces,
};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_scheduler_extender::Config;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider, testkit,
};

use crate::served::{Served, http};

/// A node costs as much as it has peers; n1 is a little better if `prefers_n1`.
#[derive(Clone, Copy)]
struct Spread {
    prefers_n1: bool,
}

impl RuleProvider for Spread {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let cost = |node: &String| {
            let peers = request
                .peers
                .iter()
                .filter(|p| p.node.as_ref() == Some(node));
            let other = self.prefers_n1 && node != "n1";
            10 * i64::try_from(peers.count()).unwrap_or(i64::MAX) + i64::from(other)
        };
        Ok(request
            .eligible_nodes
            .iter()
            .map(|n| (n, cost(n)))
            .collect())
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

pub struct World {
    pub served: Served,
    pub store: ClusterStore,
    _running: testkit::TestServer,
}

/// Replicas of `web` are each other's peers.
pub async fn world(mode: AnswerMode, prefers_n1: bool) -> World {
    let running = testkit::start(Spread { prefers_n1 }).await.unwrap();
    let store = ClusterStore::default();
    store.apply(Object::Service(Service {
        namespace: "shop".into(),
        name: "p".into(),
        rules: vec!["spread".into()],
        external_name: Some("localhost".into()),
        ports: vec![ServicePort {
            name: "grpc".into(),
            port: running.address.port(),
        }],
        allocator: true,
        ..Service::default()
    }));
    govern(&store, "shop");
    let mut config = Config {
        answer: mode,
        ..Config::default()
    };
    config.providers.trusted = TrustedNamespaces::all();
    World {
        served: Served::start(config, store.clone()).await,
        store,
        _running: running,
    }
}

/// Selects the pods labelled with this `app`.
pub fn target(name: &str, app: &str) -> Target {
    Target {
        name: name.into(),
        kind: TargetKind::Pod,
        api_version: "v1".into(),
        selector: Selector {
            match_labels: vec![("app".into(), app.into())],
            ..Selector::default()
        },
    }
}

/// Pods of `web` in the namespace are each other's peers.
fn govern(store: &ClusterStore, namespace: &str) {
    store.apply(Object::Policy(Policy {
        namespace: namespace.into(),
        name: "apart".into(),
        rules: vec![Rule {
            name: "spread".into(),
            weight: 1,
            ..Rule::default()
        }],
    }));
    store.apply(Object::Offer(Offer {
        namespace: namespace.into(),
        name: "web".into(),
        uid: "".into(),
        created_unix: 0,
        targets: vec![target("one", "web"), target("other", "web")],
        policies: vec!["apart".into()],
        period: Duration::from_secs(60),
        grace: Duration::ZERO,
        provider_unavailable: None,
        ..Offer::default()
    }));
}

impl World {
    async fn filter(&self, name: &str) -> Vec<String> {
        let answer = self.ask(name, "web").await;
        serde_json::from_value(answer["nodenames"].clone()).unwrap()
    }

    pub async fn ask(&self, name: &str, app: &str) -> Value {
        self.ask_in("shop", name, app).await
    }

    async fn ask_in(&self, namespace: &str, name: &str, app: &str) -> Value {
        let pod = json!({"metadata": {"name": name, "namespace": namespace, "uid": name,
                                      "resourceVersion": "5", "labels": {"app": app}},
                         "spec": {"containers": []}});
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": NODES}).to_string();
        let (status, text) = http(self.served.port, "POST", "/filter", &body).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// What the watch shows.
    fn show(&self, name: &str, node: Option<&str>) {
        self.store.apply(Object::Pod(Pod {
            namespace: "shop".into(),
            name: name.into(),
            uid: name.into(),
            labels: [("app", "web")].into_iter().collect(),
            node: node.map(Into::into),
            placement: node.is_none().then(Box::default),
            ..Pod::default()
        }));
    }

    async fn waits(&self) -> String {
        let (_, text) = http(self.served.admin, "GET", "/metrics", "").await;
        let waits = text
            .lines()
            .filter(|l| l.contains("placement_wait_seconds_count"));
        waits.collect::<Vec<_>>().join("\n")
    }
}

pub const NODES: [&str; 3] = ["n1", "n2", "n3"];

#[tokio::test]
async fn filter_knows_the_answers_before_it() {
    let world = world(AnswerMode::Decisive, true).await;
    let mut taken = Vec::new();
    for name in ["a", "b", "c"] {
        taken.extend(world.filter(name).await);
    }
    taken.sort();
    assert_eq!(taken, NODES, "no watch has shown any pod");
    // Another attempt of a pod means that its earlier one has failed: n1 is free.
    assert_eq!(world.filter("a").await, ["n1"]);
    assert_eq!(world.waits().await, "");
}

#[tokio::test]
async fn failed_attempt_frees_its_node_with_one_event() {
    let world = world(AnswerMode::Ties, true).await;
    world.show("a", None);
    assert_eq!(world.filter("a").await, ["n1"]);
    world.store.delete(Kind::Pod, "shop/a");
    assert_eq!(world.filter("b").await, ["n1"]);
}

#[tokio::test]
async fn filter_waits_for_the_node_of_a_peer_after_a_tie() {
    let world = world(AnswerMode::Ties, false).await;
    world.show("a", None);
    assert_eq!(world.filter("a").await, NODES);
    let bind = async {
        tokio::task::yield_now().await;
        world.show("a", Some("n2"));
    };
    let (answer, ()) = tokio::join!(world.filter("b"), bind);
    assert_eq!(answer, ["n1", "n3"]);
    world.show("b", Some("n1"));
    assert_eq!(world.filter("c").await, ["n3"]);
    assert!(!world.waits().await.contains("retry"));
}

#[tokio::test]
async fn filter_asks_for_a_retry_while_the_node_of_a_peer_is_unknown() {
    let world = world(AnswerMode::Ties, false).await;
    world.show("a", None);
    assert_eq!(world.filter("a").await, NODES);
    let begun = Instant::now();
    // Nobody binds `a`.
    let error = world.ask("b", "web").await["error"].clone();
    let expected = "the node of pod shop/a, which is being bound, matters to this pod and is not \
                    known yet";
    assert_eq!(error, expected);
    assert!(begun.elapsed() >= Duration::from_millis(100));
    let waits = world.waits().await;
    assert!(waits.contains("retry"), "{waits}");
    // A pod of another application is no peer.
    assert!(world.ask("x", "db").await.get("error").is_none());
    assert_eq!(world.waits().await, waits);
    // It waits for something else than its bind.
    let deadline = Instant::now() + Duration::from_secs(30);
    while world.ask("b", "web").await.get("error").is_some() {
        assert!(Instant::now() < deadline, "{}", world.waits().await);
    }
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let waits = world.waits().await;
    assert!(waits.contains("unknown"), "{waits}");
}

#[tokio::test]
async fn pods_of_other_namespaces_cause_no_retry() {
    let world = world(AnswerMode::Ties, false).await;
    govern(&world.store, "other");
    world.show("a", None);
    assert_eq!(world.filter("a").await, NODES);
    // The provider counts pods of both, and nobody binds `a`.
    let answer = world.ask_in("other", "x", "web").await;
    assert!(answer.get("error").is_none(), "{answer}");
    assert!(world.waits().await.contains("unknown"));
}
