//! `/status`, `/history` and the list of `/explain`.

use std::time::Duration;

use serde_json::Value;
use tautline_core::{index::Object, model::Pod};
use tautline_runtime::{cluster_store::ClusterStore, history::Series};
use tautline_scheduler_extender::{
    Config,
    explain::{Record, RecordedAnswers, Summary},
    status::Status,
};

use crate::{
    served::{Served, http},
    verbs::{ALL, Sample, World, names, world},
};

const PATIENCE: Duration = Duration::from_secs(60);

async fn get<T: serde::de::DeserializeOwned>(world: &World, path: &str) -> T {
    let (status, text) = http(world.served.admin, "GET", path, "").await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn status_has_the_last_call_of_each_provider() {
    let world = world(Config::default(), Sample::default()).await;
    let before: Status = get(&world, "/status").await;
    assert_eq!((before.answer.as_str(), before.requests.len()), ("ties", 0));
    let provider = &before.providers[0];
    assert_eq!(provider.service.as_deref(), Some("shop/p"));
    assert_eq!(
        (provider.rule.as_str(), &provider.last_call),
        ("latency", &None)
    );

    world.post("/filter", names("web", &ALL)).await;
    let after: Status = get(&world, "/status").await;
    assert_eq!(after.requests[0].verb, "filter");
    let provider = &after.providers[0];
    let call = provider.last_call.as_ref().unwrap();
    assert_eq!((&*call.outcome, &call.error), ("OK", &None));
    assert_eq!(call.deadline_micros, after.provider_deadline_micros);
    assert!(!provider.addresses[0].breaker_open, "{provider:?}");
}

#[tokio::test]
async fn history_has_the_number_of_waiting_pods() {
    let store = ClusterStore::default();
    let pod = |name: &str, node: Option<&str>, finished| {
        Object::Pod(Pod {
            namespace: "shop".into(),
            name: name.into(),
            node: node.map(Into::into),
            finished,
            ..Pod::default()
        })
    };
    store.apply(pod("waits", None, false));
    store.apply(pod("waits-too", None, false));
    store.apply(pod("runs", Some("n1"), false));
    store.apply(pod("failed", None, true));
    let served = Served::start(Config::default(), store).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let (status, text) = http(served.admin, "GET", "/history", "").await;
        assert_eq!(status, 200, "{text}");
        let all: Vec<Series> = serde_json::from_str(&text).unwrap();
        let [history] = all.as_slice() else {
            panic!("{text}");
        };
        assert_eq!((&*history.name, &*history.unit), ("waitingPods", "pods"));
        if let [(_, waiting), ..] = history.samples.as_slice() {
            assert_eq!(*waiting, 2);
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "no sample: {text}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn explain_lists_the_last_round_of_each_pod() {
    let world = world(Config::default(), Sample::default()).await;
    let none: Vec<Summary> = get(&world, "/explain").await;
    assert_eq!(none, []);
    world.post("/filter", names("web", &["n3", "n4"])).await;
    world.post("/filter", names("web", &ALL)).await;
    let pods: Vec<Summary> = get(&world, "/explain").await;
    assert_eq!(pods.len(), 1, "{pods:?}");
    assert_eq!((pods[0].nodes, pods[0].usable, pods[0].offered), (5, 3, 1));
    assert_eq!(pods[0].offered_nodes, ["n1"]);
    assert_eq!((pods[0].pod.as_str(), &pods[0].reason), ("web-0", &None));

    let rounds: Vec<Record> = get(&world, "/explain/shop/web-0").await;
    let lengths = |rounds: &[Record]| rounds.iter().map(|r| r.nodes.len()).collect::<Vec<_>>();
    assert_eq!(lengths(&rounds), [5, 2]);
    let old = format!("/explain/shop/web-0?at={}", rounds[1].at_unix_millis);
    if rounds[0].at_unix_millis != rounds[1].at_unix_millis {
        assert_eq!(lengths(&get::<Vec<Record>>(&world, &old).await), [0, 2]);
    }
    let newest: Vec<Record> = get(&world, "/explain/shop/web-0?at=0").await;
    assert_eq!(lengths(&newest), [5, 0]);
    let (status, _) = http(world.served.admin, "GET", "/explain/shop/web-0?x", "").await;
    assert_eq!(status, 400);

    let planned = RecordedAnswers::new(&rounds[0]).plan(|rule| rule.weight);
    let scores = planned.verdicts.iter().map(|v| v.score());
    let recorded = rounds[0].nodes.iter().map(|n| n.score);
    assert_eq!(scores.collect::<Vec<_>>(), recorded.collect::<Vec<_>>());
}

/// A round is recorded after its answer was sent: explain waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn explain_has_each_round_as_soon_as_it_is_answered() {
    let world = world(Config::default(), Sample::default()).await;
    for round in 1..=4 {
        world.post("/filter", names("web", &ALL)).await;
        let rounds: Vec<Record> = get(&world, "/explain/shop/web-0").await;
        assert_eq!(rounds.len(), round);
    }
}

#[tokio::test]
async fn explain_lists_the_reason_of_a_rejected_pod() {
    let world = world(Config::default(), Sample::default()).await;
    world.post("/filter", names("web", &["n3", "n4"])).await;
    let pods: Value = get(&world, "/explain").await;
    assert_eq!(pods[0]["reason"], "latency/Full", "{pods}");
}
