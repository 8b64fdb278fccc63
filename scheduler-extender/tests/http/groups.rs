//! Groups: their pods wait for each other, then each gets the node of the joint plan.

use std::time::{Duration, Instant};

use serde_json::Value;
use tautline_core::{
    answer::AnswerMode,
    index::Object,
    model::{GroupRule, Node, Offer, Pod},
};

use crate::in_flight::{NODES, World, target, world};

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
    world.store.apply(Object::Offer(Offer {
        namespace: "shop".into(),
        name: "train".into(),
        targets: vec![target("worker", "train"), target("others", "train")],
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

fn nodes(answer: &Value) -> Vec<String> {
    serde_json::from_value(answer["nodenames"].clone()).unwrap_or_default()
}

/// Asks until the pod gets a node; filter waits for the plan.
async fn placed(world: &World, name: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = world.ask(name, "train").await;
        if let [node] = &nodes(&answer)[..] {
            return node.clone();
        }
        assert!(Instant::now() < deadline, "{answer}");
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

/// Returns the answer for a pod after two others of its group have ended.
async fn answer_after_ended_pods(failed: bool) -> Value {
    let world = cluster().await;
    for (name, node) in [("w-0", "n1"), ("w-1", "n2")] {
        let ended = Pod {
            node: Some(node.into()),
            finished: true,
            failed,
            ..named(name)
        };
        show(&world, ended);
    }
    show(&world, named("w-2"));
    world.ask("w-2", "train").await
}

#[tokio::test]
async fn failed_pods_do_not_count_as_placed_and_succeeded_ones_do() {
    let answer = answer_after_ended_pods(true).await;
    assert!(answer.to_string().contains("group/Waiting"), "{answer}");
    let answer = answer_after_ended_pods(false).await;
    assert_eq!(nodes(&answer), NODES, "{answer}");
}
