//! The verbs over HTTP, with providers on loopback and without a cluster.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tautline_core::{
    answer::AnswerMode,
    index::Object,
    model::{Offer, Policy, ProviderUnavailable, Rule, Service, ServicePort, Target, TargetKind},
    selector::Selector,
    trust::TrustedNamespaces,
};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_scheduler_extender::{
    Config,
    explain::{Record, RecordedAnswers},
};
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider, testkit,
};

use crate::served::{Served, http};

/// n1 costs 5, n2 costs 9, n3 is full but could be freed, n4 is too far, others 7.
#[derive(Clone, Default)]
pub struct Sample {
    requests: Arc<Mutex<Vec<CostRequest>>>,
    delay: Duration,
    request_cost: Option<i64>,
}

impl RuleProvider for Sample {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        tokio::time::sleep(self.delay).await;
        let mut answer = CostAnswer::default();
        answer.request_cost = self.request_cost;
        for node in &request.eligible_nodes {
            match node.as_str() {
                "n1" => answer.usable(node, 5, ""),
                "n2" => answer.usable(node, 9, ""),
                "n3" => answer.unusable(node, "Full", "8 of 8 used", true),
                "n4" => answer.unusable(node, "OverLimit", "31ms > 20ms", false),
                _ => answer.usable(node, 7, ""),
            }
        }
        self.requests.lock().unwrap().push(request);
        Ok(answer)
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        Ok(Evaluation::default())
    }
}

pub struct World {
    pub served: Served,
    pub store: ClusterStore,
    provider: Sample,
    _running: testkit::TestServer,
}

pub async fn world(mut config: Config, provider: Sample) -> World {
    // Trusted, so without a time budget: some providers here are slow.
    config.providers.trusted = TrustedNamespaces::all();
    let running = testkit::start(provider.clone()).await.unwrap();
    let store = ClusterStore::default();
    store.apply(Object::Service(Service {
        namespace: "shop".into(),
        name: "p".into(),
        rules: vec!["latency".into()],
        external_name: Some("localhost".into()),
        ports: vec![ServicePort {
            name: "grpc".into(),
            port: running.address.port(),
        }],
        ..Service::default()
    }));
    let rule = Rule {
        name: "latency".into(),
        limit: "20ms".into(),
        weight: 1,
        ..Rule::default()
    };
    store.apply(Object::Policy(Policy {
        namespace: "shop".into(),
        name: "near".into(),
        rules: vec![rule],
    }));
    let selector = Selector {
        match_labels: vec![("app".into(), "web".into())],
        ..Selector::default()
    };
    store.apply(Object::Offer(Offer {
        namespace: "shop".into(),
        name: "web".into(),
        uid: "".into(),
        created_unix: 0,
        targets: vec![Target {
            name: "default".into(),
            kind: TargetKind::Pod,
            api_version: "v1".into(),
            selector,
        }],
        policies: vec!["near".into()],
        period: Duration::from_secs(60),
        grace: Duration::ZERO,
        provider_unavailable: Some(ProviderUnavailable::Reject),
        ..Offer::default()
    }));
    let served = Served::start(config, store.clone()).await;
    World {
        served,
        store,
        provider,
        _running: running,
    }
}

impl World {
    pub async fn post(&self, verb: &str, body: Value) -> Value {
        let (status, text) = http(self.served.port, "POST", verb, &body.to_string()).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    pub fn calls(&self) -> usize {
        self.provider.requests.lock().unwrap().len()
    }
}

fn pod(app: &str) -> Value {
    json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "u1", "labels": {"app": app},
                        "annotations": {"team": "a"}},
           "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "web-gpu"}],
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}})
}

pub fn names(app: &str, nodes: &[&str]) -> Value {
    json!({"Pod": pod(app), "Nodes": null, "NodeNames": nodes})
}

pub const ALL: [&str; 5] = ["n1", "n2", "n3", "n4", "n5"];

#[tokio::test]
async fn filter_sends_reasons_if_no_node_is_left_or_all_usable_ones_are_returned() {
    let reasons = json!({"n3": "latency/Full"});
    let final_ones = json!({"n4": "latency/OverLimit"});
    let world = world(Config::default(), Sample::default()).await;
    assert_eq!(
        world.post("/filter", names("web", &ALL)).await,
        json!({"nodenames": ["n1"]})
    );
    assert_eq!(
        world.post("/filter", names("web", &ALL[2..4])).await,
        json!({"nodenames": [], "failedNodes": reasons, "failedAndUnresolvableNodes": final_ones})
    );
    let whole = Config {
        answer: AnswerMode::Shortlist(0),
        ..Config::default()
    };
    let world = self::world(whole, Sample::default()).await;
    assert_eq!(
        world.post("/filter", names("web", &ALL)).await,
        json!({"nodenames": ["n1", "n2", "n5"], "failedNodes": reasons,
               "failedAndUnresolvableNodes": final_ones})
    );
}

#[tokio::test]
async fn filter_returns_the_nodes_that_tie_for_best_or_one_of_them() {
    let filtered = async |answer| {
        let config = Config {
            answer,
            ..Config::default()
        };
        let world = world(config, Sample::default()).await;
        let nodes = ["n2", "n6", "n4", "n7"];
        let posted = world.post("/filter", names("web", &nodes)).await;
        let (_, explained) = http(world.served.admin, "GET", "/explain/shop/web-0", "").await;
        let explained: Value = serde_json::from_str(&explained).unwrap();
        let shown = &explained[0]["answer"];
        assert_eq!(shown["nodes"], posted["nodenames"]);
        assert_eq!(shown["tied"], 2);
        let (_, metrics) = http(world.served.admin, "GET", "/metrics", "").await;
        let single = metrics.contains("tautline_extender_single_node_answers_total 1");
        (posted["nodenames"].clone(), shown["mode"].clone(), single)
    };
    let ties = filtered(AnswerMode::Ties).await;
    assert_eq!(ties, (json!(["n6", "n7"]), json!("ties"), false));
    let (one, mode, single) = filtered(AnswerMode::Decisive).await;
    assert!(one == json!(["n6"]) || one == json!(["n7"]), "{one}");
    assert_eq!((mode, single), (json!("decisive"), true));
}

#[tokio::test]
async fn filter_returns_all_nodes_within_the_request() {
    let provider = Sample {
        request_cost: Some(7),
        ..Sample::default()
    };
    let world = world(Config::default(), provider).await;
    assert_eq!(
        world.post("/filter", names("web", &ALL)).await,
        json!({"nodenames": ["n1", "n5"]})
    );
    let (_, explained) = http(world.served.admin, "GET", "/explain/shop/web-0", "").await;
    let rounds: Vec<Record> = serde_json::from_str(&explained).unwrap();
    assert_eq!(rounds[0].rules[0].request_cost, Some(7));
    let planned = RecordedAnswers::new(&rounds[0]).plan(|rule| rule.weight);
    let scores: Vec<u8> = planned.verdicts.iter().map(|v| v.score()).collect();
    assert_eq!(scores[..3], [10, 10, 0], "n1, n5, n2");
}

#[tokio::test]
async fn prioritize_uses_the_plan_of_filter() {
    let config = Config {
        answer: AnswerMode::Shortlist(64),
        ..Config::default()
    };
    let world = world(config, Sample::default()).await;
    let answer = world.post("/filter", names("web", &ALL)).await;
    assert_eq!(answer["nodenames"], json!(["n1", "n2", "n5"]));
    let scores = world
        .post("/prioritize", names("web", &["n5", "n2", "n1"]))
        .await;
    assert_eq!(
        scores,
        json!([{"host": "n5", "score": 5}, {"host": "n2", "score": 0}, {"host": "n1", "score": 10}])
    );
    assert_eq!(world.calls(), 1, "prioritize calls no provider");
    let request = world.provider.requests.lock().unwrap()[0].clone();
    assert_eq!(request.source.to_string(), "shop:v1:Pod:web-0");
    assert_eq!(request.rule.limit, "20ms");
    let workload = request.workload.unwrap();
    assert_eq!(
        (
            workload.labels["app"].as_str(),
            workload.requests["cpu"].as_str()
        ),
        ("web", "500m")
    );
    assert_eq!(workload.annotations["team"], "a");
    assert_eq!(workload.resource_claims, ["web-gpu"]);

    let (status, text) = http(world.served.admin, "GET", "/explain/shop/web-0", "").await;
    assert_eq!(status, 200);
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record[0]["usable"], 3);
    assert_eq!(record[0]["nodes"][0]["node"], "n1");
    assert_eq!(record[0]["nodes"][4]["reason"], "latency/OverLimit");
    assert_eq!(record[0]["nodes"][4]["costs"][0]["detail"], "31ms > 20ms");
    // Without a cluster the pod cannot be read.
    assert_eq!(record[0]["podNow"], Value::Null);
    let (status, text) = http(world.served.admin, "GET", "/explain/shop/web-9", "").await;
    assert_eq!(status, 404);
    assert!(
        text.contains("no round of pod shop/web-9 is known"),
        "{text}"
    );
    let (status, _) = http(world.served.admin, "GET", "/explain/shop/../x", "").await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn prioritize_ignores_the_plan_of_an_earlier_cycle() {
    let world = world(Config::default(), Sample::default()).await;
    let answer = world.post("/filter", names("web", &ALL[2..4])).await;
    assert_eq!(answer["nodenames"], json!([]));
    // Another replica has filtered since, and returned other nodes.
    let scores = world
        .post("/prioritize", names("web", &["n5", "n2", "n1"]))
        .await;
    assert_eq!(
        scores,
        json!([{"host": "n5", "score": 5}, {"host": "n2", "score": 0}, {"host": "n1", "score": 10}])
    );
    assert_eq!(world.calls(), 2);
}

#[tokio::test]
async fn filter_returns_node_objects_unchanged() {
    let world = world(Config::default(), Sample::default()).await;
    let node = |name: &str| json!({"metadata": {"name": name, "labels": {"z": "1"}}, "spec": {"x": [1.50]}});
    let body = json!({"Pod": pod("web"), "NodeNames": null,
                      "Nodes": {"metadata": {}, "items": [node("n4"), node("n2")]}});
    let answer = world.post("/filter", body.clone()).await;
    assert_eq!(answer["nodes"]["items"], json!([node("n2")]));
    let mut plain = body;
    plain["Pod"] = pod("other");
    let answer = world.post("/filter", plain.clone()).await;
    assert_eq!(answer, json!({"nodes": plain["Nodes"]}));
}

#[tokio::test]
async fn filter_passes_ungoverned_and_exempt_pods_through() {
    let world = world(Config::default(), Sample::default()).await;
    assert_eq!(
        world.post("/filter", names("db", &ALL)).await,
        json!({"nodenames": ALL})
    );
    assert_eq!(
        world.post("/prioritize", names("db", &ALL)).await,
        json!([])
    );
    let mut exempt = names("web", &ALL);
    exempt["Pod"]["metadata"]["namespace"] = "kube-system".into();
    assert_eq!(
        world.post("/filter", exempt).await,
        json!({"nodenames": ALL})
    );
    let none = json!({"Pod": pod("db"), "Nodes": null, "NodeNames": null});
    assert_eq!(world.post("/filter", none).await, json!({"nodenames": []}));
    assert_eq!(world.calls(), 0);
}

#[tokio::test]
async fn filter_shortlists_the_best_and_prioritize_works_alone() {
    let config = Config {
        answer: AnswerMode::Shortlist(2),
        ..Config::default()
    };
    let world = world(config, Sample::default()).await;
    let answer = world.post("/filter", names("web", &ALL)).await;
    assert_eq!(answer["nodenames"], json!(["n1", "n5"]));
    // Another pod, which this process has not filtered.
    let mut fresh = names("web", &["n1", "n2"]);
    fresh["Pod"]["metadata"]["uid"] = "u2".into();
    let scores = world.post("/prioritize", fresh).await;
    assert_eq!(
        scores,
        json!([{"host": "n1", "score": 10}, {"host": "n2", "score": 0}])
    );
}

#[tokio::test]
async fn preempt_returns_nodes_that_would_be_usable() {
    let world = world(Config::default(), Sample::default()).await;
    let victims = |uid: &str| json!({"Pods": [{"UID": uid}], "NumPDBViolations": 1});
    let body = json!({"Pod": pod("web"), "NodeNameToMetaVictims":
        {"n1": victims("a"), "n3": victims("b"), "n4": victims("c"), "n5": {"Pods": [], "NumPDBViolations": 0}}});
    let answer = world.post("/preempt", body.clone()).await;
    let meta_victims = |uid: &str| json!({"pods": [{"uid": uid}], "numPDBViolations": 1});
    assert_eq!(
        answer,
        json!({"nodeNameToMetaVictims": {"n1": meta_victims("a"), "n3": meta_victims("b")}})
    );
    let whole = json!({"Pod": pod("db"), "NodeNameToVictims":
        {"n4": {"Pods": [{"metadata": {"uid": "c"}}], "NumPDBViolations": 1}}});
    let answer = world.post("/preempt", whole).await;
    assert_eq!(
        answer,
        json!({"nodeNameToMetaVictims": {"n4": meta_victims("c")}})
    );
}

#[tokio::test]
async fn bind_is_off_by_default_and_needs_a_cluster() {
    let off = world(Config::default(), Sample::default()).await;
    let (status, text) = http(off.served.port, "POST", "/bind", "{}").await;
    assert_eq!((status, text.contains("--bind")), (404, true), "{text}");
    let config = Config {
        bind: true,
        ..Config::default()
    };
    let world = world(config, Sample::default()).await;
    let body = json!({"PodName": "p", "PodNamespace": "shop", "PodUID": "u", "Node": "n1"});
    let answer = world.post("/bind", body).await;
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("without a cluster"),
        "{answer}"
    );
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let config = Config {
        max_body_bytes: 1000,
        max_nodes: 3,
        ..Config::default()
    };
    let world = world(config, Sample::default()).await;
    for (method, path, body, status) in [
        ("GET", "/filter", "", 405),
        ("POST", "/filtre", "", 404),
        ("POST", "/filter", "", 400),
        ("POST", "/filter", "{\"Pod\":{}}", 400),
        ("POST", "/preempt", "{}", 400),
        ("POST", "/filter", &"x".repeat(1001), 413),
        ("POST", "/filter", &names("web", &ALL).to_string(), 413),
    ] {
        let (got, text) = http(world.served.port, method, path, body).await;
        assert_eq!(got, status, "{method} {path} {body}: {text}");
    }
    world.post("/filter", names("web", &["n1"])).await;
}

#[tokio::test]
async fn requests_are_shed_at_the_limit_and_end_at_the_deadline() {
    let slow = Sample {
        delay: Duration::from_secs(30),
        ..Sample::default()
    };
    let mut config = Config {
        concurrency: 2,
        deadline: Duration::from_millis(700),
        ..Config::default()
    };
    config.providers.deadline = Duration::from_secs(20);
    let world = world(config, slow).await;
    let body = names("web", &["n1"]).to_string();
    let calls = (0..6).map(|_| http(world.served.port, "POST", "/filter", &body));
    let start = Instant::now();
    let mut statuses: Vec<u16> = futures::future::join_all(calls)
        .await
        .into_iter()
        .map(|(s, _)| s)
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [503, 503, 503, 503, 504, 504]);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    let (_, metrics) = http(world.served.admin, "GET", "/metrics", "").await;
    let line = "tautline_extender_requests_total{verb=\"filter\",status=\"503\"} 4";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn fuzz_corpus_does_not_panic() {
    let corpus =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus/extender_request");
    let mut replayed = 0;
    for entry in std::fs::read_dir(&corpus).unwrap() {
        let data = std::fs::read(entry.unwrap().path()).unwrap();
        tautline_scheduler_extender::fuzz_request(&data);
        replayed += 1;
    }
    assert!(replayed >= 9, "{} has {replayed} files", corpus.display());
}
