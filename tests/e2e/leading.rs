//! Two controllers, one of which leads: killed, asked to end, and asleep.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::json;
use tautline_tests::{PATIENCE, eventually, servers::Server, workloads};

use crate::governed::Governed;

const COOL_DOWN: Duration = Duration::from_secs(8);

/// Pods that are where they are from the start, many at once.
async fn placed_pods(world: &Governed, app: &str, node: &str, count: usize) {
    let pods: Api<Pod> = Api::default_namespaced(world.client().clone());
    let make = async |i: usize| {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": format!("{app}-{i}"), "labels": {"app": app}},
            "spec": {"automountServiceAccountToken": false, "nodeName": node,
                     "containers": [{"name": "main", "image": "example.com/app:1"}]},
        }))
        .unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    };
    stream::iter((0..count).map(make))
        .buffer_unordered(32)
        .collect::<Vec<()>>()
        .await;
}

/// Which of the controllers leads, by its own word.
async fn leader(world: &Governed) -> Option<usize> {
    for (i, controller) in world.controllers.iter().enumerate() {
        if controller.metric("tautline_controller_leading").await == 1.0 {
            return Some(i);
        }
    }
    None
}

async fn leads(world: &Governed, which: usize) -> Duration {
    let start = Instant::now();
    let other = &world.controllers[which];
    let look = async || {
        let leads = other.metric("tautline_controller_leading").await == 1.0;
        leads.then_some(())
    };
    eventually("the other takes over", PATIENCE * 2, look, async || {
        world.state("web").await
    })
    .await;
    start.elapsed()
}

#[tokio::test]
async fn a_standby_goes_on_where_the_leader_ended() {
    let nodes = [("n1", 1), ("n2", 5), ("n3", 9)];
    let args = ["--eviction-cool-down=8s"];
    let mut world = Governed::start(&nodes, &args).await.unwrap();
    let standby = Server::controller(&world.plane, "controller-b", &args).await;
    world.controllers.push(standby.unwrap());
    assert_eq!(leader(&world).await, Some(0));

    // A thousand bindings at rest, and three that are about to break.
    placed_pods(&world, "many", "n3", 1000).await;
    world.offer("many", json!({"period": "2s"})).await;
    let all = async || {
        let status = workloads::offer_status(world.client(), "default", "many").await;
        (status.compliant_binding_count == 1000).then_some(())
    };
    eventually("1000 bindings comply", PATIENCE * 2, all, async || {
        world.state("web").await
    })
    .await;
    let evict = json!({"violationPolicy": "Evict"});
    world.offer("web", evict).await;
    world.deployment("web", 3).await;
    world.stand("web", 3, "Compliant").await;

    // Killed as soon as the first pod is on its way.
    world.judge.set(&[("n1", -1), ("n2", 5), ("n3", 9)]);
    let look = async || {
        let status = workloads::offer_status(world.client(), "default", "web").await;
        status.last_eviction
    };
    eventually("an eviction is noted", PATIENCE, look, async || {
        world.state("web").await
    })
    .await;
    world.controllers[0].process.kill();
    let killed = Instant::now();
    let evaluated = world.judge.evaluations();

    // Meanwhile: who was there, how many were up, what was evicted when.
    let seen: Mutex<BTreeSet<String>> = Mutex::default();
    let evictions: Mutex<BTreeMap<String, i64>> = Mutex::default();
    let on_n2 = async || {
        let status = workloads::offer_status(world.client(), "default", "web").await;
        if let Some(e) = status.last_eviction {
            evictions
                .lock()
                .unwrap()
                .insert(e.uid, e.time.0.as_second());
        }
        let pods = workloads::pods_of(world.client(), "default", "web").await;
        let mut there = 0;
        for pod in &pods {
            seen.lock().unwrap().extend(pod.metadata.uid.clone());
            let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
            there += usize::from(node == Some("n2"));
        }
        let old = pods.len() - there;
        (old == 0 && there == 3).then_some(())
    };
    let taken = leads(&world, 1).await;
    println!("the standby leads {taken:?} after the leader was killed");
    let look = async || (world.judge.evaluations() >= evaluated + 2000).then_some(());
    eventually("the standby evaluates", PATIENCE * 2, look, async || {
        world.state("web").await
    })
    .await;
    println!("2000 evaluations {:?} after the kill", killed.elapsed());
    eventually("every pod is on n2", PATIENCE * 3, on_n2, async || {
        world.state("web").await
    })
    .await;
    world.stand("web", 3, "Compliant").await;
    let times: Vec<i64> = {
        let mut times: Vec<i64> = evictions.lock().unwrap().values().copied().collect();
        times.sort_unstable();
        times
    };
    assert_eq!(
        times.len(),
        3,
        "three evictions, none of them twice: {times:?}"
    );
    let gaps: Vec<i64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    let least = i64::try_from(COOL_DOWN.as_secs()).unwrap();
    assert!(
        gaps.iter().all(|g| *g >= least),
        "cool-down {COOL_DOWN:?}, gaps {gaps:?} s"
    );

    hand_over(&mut world).await;
    asleep(&mut world).await;
}

/// A leader that is asked to end hands over at once.
async fn hand_over(world: &mut Governed) {
    world.controllers[0].restart().await.unwrap();
    assert_eq!(leader(world).await, Some(1));
    let code = world.controllers[1].process.terminate();
    assert_eq!(code, Some(0), "{}", world.controllers[1].process.tail());
    let taken = leads(world, 0).await;
    println!("the standby leads {taken:?} after the leader was asked to end");
    assert!(taken < Duration::from_secs(9), "{taken:?} is no hand-over");
}

/// A leader that slept through its term does nothing more, and ends.
async fn asleep(world: &mut Governed) {
    world.controllers[1].restart().await.unwrap();
    world.controllers[0].process.pause();
    let taken = leads(world, 1).await;
    println!("the standby leads {taken:?} after the leader fell asleep");
    world.controllers[0].process.resume();
    let sleeper = Mutex::new(&mut world.controllers[0]);
    let ended = async || sleeper.lock().unwrap().process.ended();
    let code = eventually("it ends", PATIENCE, ended, async || {
        sleeper.lock().unwrap().process.tail()
    })
    .await;
    assert_eq!(code, 2);
    let log = world.controllers[0].process.tail();
    assert!(
        log.contains("the Lease tautline-controller is lost"),
        "{log}"
    );
    assert_eq!(leader(world).await, Some(1));
    world.stand("web", 3, "Compliant").await;
}
