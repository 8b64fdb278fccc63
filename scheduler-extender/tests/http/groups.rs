//! Groups: their pods wait for each other, then each gets the node of the joint plan.

use std::time::{Duration, Instant};

use serde_json::Value;
use tautline_core::{
    answer::AnswerMode,
    index::Object,
    model::{GroupRule, Node, Offer, Pod, Target, TargetKind},
    selector::Selector,
};

use crate::in_flight::{NODES, World, world};

/// Pods labelled `app: train` are placed in groups of two.
async fn cluster() -> World {
    let world = world(AnswerMode::Ties, false).await;
    for name in NODES {
        world.store.apply(Object::Node(Node {
            name: name.into(),
            allocatable: [("pods", 1_000)].into_iter().collect(),
            ..Node::default()
        }));
    }
    let target = |name: &str| Target {
        name: name.into(),
        kind: TargetKind::Pod,
        api_version: "v1".into(),
        selector: Selector {
            match_labels: vec![("app".into(), "train".into())],
            ..Selector::default()
        },
    };
    world.store.apply(Object::Offer(Offer {
        namespace: "shop".into(),
        name: "train".into(),
        targets: vec![target("worker"), target("others")],
        policies: vec!["apart".into()],
        period: Duration::from_secs(60),
        group: Some(GroupRule {
            minimum: Some(2),
            peers: Some(1),
            ..GroupRule::default()
        }),
        ..Offer::default()
    }));
    world
}

fn show(world: &World, pod: Pod) {
    world.store.apply(Object::Pod(Pod {
        namespace: "shop".into(),
        uid: (*pod.name).into(),
        labels: [("app", "train")].into_iter().collect(),
        requests: [("pods", 1_000)].into_iter().collect(),
        placement: pod.node.is_none().then(Box::default),
        ..pod
    }));
}

fn named(name: &str) -> Pod {
    Pod {
        name: name.into(),
        ..Pod::default()
    }
}

/// A pod that ran on this node until now.
fn ended(name: &str, node: &str, failed: bool) -> Pod {
    Pod {
        node: Some(node.into()),
        finished: true,
        failed,
        ..named(name)
    }
}

fn nodes(answer: &Value) -> Vec<String> {
    serde_json::from_value(answer["nodenames"].clone()).unwrap_or_default()
}

/// Asks until the pod gets a node.
async fn placed(world: &World, name: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = world.ask(name, "train").await;
        if let [node] = &nodes(&answer)[..] {
            return node.clone();
        }
        assert!(Instant::now() < deadline, "{answer}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn pods_of_a_group_wait_for_each_other() {
    let world = cluster().await;
    show(&world, named("w-0"));
    let answer = world.ask("w-0", "train").await;
    assert!(answer.to_string().contains("group/Waiting"), "{answer}");
    show(&world, named("w-1"));
    let first = placed(&world, "w-0").await;
    assert_ne!(first, placed(&world, "w-1").await);
}

#[tokio::test]
async fn replacement_of_failed_pods_waits_for_the_others() {
    let world = cluster().await;
    show(&world, ended("w-0", "n1", true));
    show(&world, ended("w-1", "n2", true));
    show(&world, named("w-2"));
    let answer = world.ask("w-2", "train").await;
    assert!(answer.to_string().contains("group/Waiting"), "{answer}");
}

#[tokio::test]
async fn succeeded_pods_had_their_places() {
    let world = cluster().await;
    show(&world, ended("w-0", "n1", false));
    show(&world, ended("w-1", "n2", false));
    show(&world, named("w-2"));
    let answer = world.ask("w-2", "train").await;
    assert_eq!(nodes(&answer), NODES, "{answer}");
}
