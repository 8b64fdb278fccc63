//! Two controllers, one of which leads: it is killed, stopped, and paused.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::json;
use tautline_tests::{PATIENCE, eventually, servers::Server, workloads};

use crate::governed_cluster::GovernedCluster;

const COOL_DOWN: Duration = Duration::from_secs(8);

/// Creates many pods that have a node.
async fn placed_pods(world: &GovernedCluster, app: &str, node: &str, count: usize) {
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

/// The times of an offer's evictions by pod, in seconds, from its status.
#[derive(Clone, Default)]
struct Evictions(Arc<Mutex<BTreeMap<String, i64>>>);

impl Evictions {
    /// Records them until the returned task is aborted: a status holds only the last one.
    fn record(&self, client: &kube::Client, offer: &'static str) -> tokio::task::JoinHandle<()> {
        let (evictions, client) = (self.clone(), client.clone());
        tokio::spawn(async move {
            loop {
                let status = workloads::offer_status(&client, "default", offer).await;
                if let Some(e) = status.last_eviction {
                    let mut evictions = evictions.0.lock().unwrap();
                    evictions.insert(e.uid, e.time.0.as_second());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }

    fn times(&self) -> Vec<i64> {
        let mut times: Vec<i64> = self.0.lock().unwrap().values().copied().collect();
        times.sort_unstable();
        times
    }
}

/// The index of the controller that leads, by its own metric.
async fn leader(world: &GovernedCluster) -> Option<usize> {
    for (i, controller) in world.controllers.iter().enumerate() {
        if controller.metric("tautline_controller_leading").await == 1.0 {
            return Some(i);
        }
    }
    None
}

async fn leads(world: &GovernedCluster, which: usize) -> Duration {
    let start = Instant::now();
    let other = &world.controllers[which];
    let condition = async || {
        let leads = other.metric("tautline_controller_leading").await == 1.0;
        leads.then_some(())
    };
    eventually(
        "the controller leads",
        PATIENCE * 2,
        condition,
        async || world.state("web").await,
    )
    .await;
    start.elapsed()
}

#[tokio::test]
async fn standby_takes_over_from_killed_stopped_and_paused_leaders() {
    let nodes = [("n1", 1), ("n2", 5), ("n3", 9)];
    let args = ["--eviction-cool-down=8s"];
    let mut world = GovernedCluster::start(&nodes, &args).await.unwrap();
    let standby = Server::controller(&world.plane, "controller-b", &args).await;
    world.controllers.push(standby.unwrap());
    leads(&world, 0).await;

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
    world.wait_for_compliance("web", 3, "Compliant").await;

    // Killed as soon as the first pod is evicted.
    let evictions = Evictions::default();
    let recorder = evictions.record(world.client(), "web");
    world.judge.set(&[("n1", -1), ("n2", 5), ("n3", 9)]);
    let condition = async || evictions.times().first().copied();
    eventually(
        "an eviction is in the status",
        PATIENCE,
        condition,
        async || world.state("web").await,
    )
    .await;
    world.controllers[0].process.kill();
    let killed = Instant::now();
    let evaluated = world.judge.evaluations();

    let on_n2 = async || {
        let pods = workloads::pods_of(world.client(), "default", "web").await;
        let on_n2 = |p: &Pod| p.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some("n2");
        (pods.len() == 3 && pods.iter().all(on_n2)).then_some(())
    };
    let taken = leads(&world, 1).await;
    println!("the standby leads {taken:?} after the leader was killed");
    let condition = async || (world.judge.evaluations() >= evaluated + 2000).then_some(());
    eventually(
        "the standby evaluates",
        PATIENCE * 2,
        condition,
        async || world.state("web").await,
    )
    .await;
    println!("2000 evaluations {:?} after the kill", killed.elapsed());
    eventually("every pod is on n2", PATIENCE * 3, on_n2, async || {
        world.state("web").await
    })
    .await;
    world.wait_for_compliance("web", 3, "Compliant").await;
    let three = async || {
        let times = evictions.times();
        (times.len() == 3).then_some(times)
    };
    let times = eventually("three pods were evicted", PATIENCE, three, async || {
        format!("{:?}\n{}", evictions.times(), world.state("web").await)
    })
    .await;
    recorder.abort();
    let gaps: Vec<i64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    let least = i64::try_from(COOL_DOWN.as_secs()).unwrap();
    assert!(
        gaps.iter().all(|g| *g >= least),
        "cool-down {COOL_DOWN:?}, gaps {gaps:?} s"
    );

    hand_over(&mut world).await;
    asleep(&mut world).await;
}

/// A leader that is stopped hands over at once.
async fn hand_over(world: &mut GovernedCluster) {
    world.controllers[0].restart().await.unwrap();
    assert_eq!(leader(world).await, Some(1));
    let code = world.controllers[1].process.terminate();
    assert_eq!(code, Some(0), "{}", world.controllers[1].process.tail());
    let taken = leads(world, 0).await;
    println!("the standby leads {taken:?} after the leader was asked to end");
    // The Lease of a dead leader expires after 15 s.
    assert!(taken < Duration::from_secs(13), "{taken:?} is no hand-over");
}

/// A leader that was paused beyond its Lease does nothing more, and ends.
async fn asleep(world: &mut GovernedCluster) {
    world.controllers[1].restart().await.unwrap();
    world.controllers[0].process.pause();
    let taken = leads(world, 1).await;
    println!("the standby leads {taken:?} after the leader fell asleep");
    world.controllers[0].process.resume();
    let sleeper = Mutex::new(&mut world.controllers[0]);
    let ended = async || sleeper.lock().unwrap().process.exit_code();
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
    world.wait_for_compliance("web", 3, "Compliant").await;
}
