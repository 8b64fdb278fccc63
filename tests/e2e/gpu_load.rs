//! 300 pods request GPUs at once from two replicas of the provider, and the replica that
//! reserves is killed half-way: no card is over-committed, no reservation stays, and every pod
//! that fits is placed. `tests/gpu-race` repeats it.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use tautline_tests::{PATIENCE, balancer::Balancer, eventually, objects, servers::Server};

use crate::{
    World,
    gpu::{self, CARDS},
    gpu_audit::Audit,
};

/// The load: the app, the rule's request, the pod's own request, and the number of pods. In
/// total 86 of 96 cards and 84 of 96 instances.
const WANTS: [(&str, &str, Option<&str>, usize); 5] = [
    ("quarter", "250m", None, 120),
    ("half", "500m", None, 80),
    ("whole", "1", None, 16),
    ("mig-small", "true", Some("nvidia.com/mig-1g.10gb"), 56),
    ("mig-large", "true", Some("nvidia.com/mig-2g.20gb"), 28),
];
const PODS: usize = 300;
/// After the kill the Lease and the last holds expire, and the scheduler retries refused pods.
/// It takes about 40 s on two cores of their own.
const RECOVERS: Duration = Duration::from_secs(240);

#[tokio::test]
async fn gpu_pods_are_placed_while_the_reserving_replica_is_killed() {
    let seed = std::env::var("TAUTLINE_SEED").map_or(0, |s| s.parse().unwrap());
    let world = World::with("gated-gpu.yaml", &[], &["--bind"])
        .await
        .unwrap();
    let client = &world.plane.client;
    let [a, b] = replicas(&world).await;
    let at = |s: &Server| SocketAddr::from(([127, 0, 0, 1], s.port));
    let balancer = Balancer::start(vec![at(&a), at(&b)]).await.unwrap();
    gpu::service(client, balancer.address.port()).await;
    for i in 0..12 {
        gpu::node(client, &format!("cards-{i:02}"), json!({CARDS: "8"})).await;
    }
    for i in 0..8 {
        let instances = json!({"nvidia.com/mig-1g.10gb": "8", "nvidia.com/mig-2g.20gb": "4"});
        gpu::node(client, &format!("mig-{i}"), instances).await;
    }
    for (app, request, ..) in WANTS {
        gpu::policy(&world, app, request).await;
    }
    let state = async || a.process.tail() + &b.process.tail();
    gpu::wait_until_reserving(balancer.address.port(), "mig-0", state).await;
    let (mut holder, survivor) = match a.metric("tautline_allocator_granting").await {
        1.0 => (a, b),
        _ => (b, a),
    };

    let start = Instant::now();
    let pods = stream::iter(shuffled(seed)).map(async |pod| drop(gpu::create(client, &pod).await));
    pods.buffer_unordered(16).collect::<()>().await;
    let half = (120 + (30 + seed * 7) % 61) as f64;
    let some = async || (metric(&world).await >= half).then_some(());
    eventually("half of the pods are bound", PATIENCE, some, async || {
        world.state()
    })
    .await;
    holder.process.kill();
    let (killed, at_kill) = (Instant::now(), metric(&world).await);
    let placed = async || {
        let audit = Audit::read(client).await;
        let placeable = audit.pending().iter().any(|p| !audit.hosts(p).is_empty());
        (!placeable).then_some(audit)
    };
    let what = "every pod that a node can host is bound";
    let audit = eventually(what, RECOVERS, placed, async || {
        let audit = Audit::read(client).await;
        let mut out = String::new();
        for pod in audit.pending() {
            let (name, hosts) = (pod.name_any(), audit.hosts(pod));
            let events = objects::events(client, "default", &name).await;
            out += &format!("{name} could be on {hosts:?}\n{events}\n");
        }
        out + &state_of(&world, &survivor)
    })
    .await;
    let took = killed.elapsed();
    assert_eq!(
        audit.faults(),
        Vec::<String>::new(),
        "{}",
        state_of(&world, &survivor)
    );
    gpu::wait_until_released(&survivor).await;
    assert_eq!(survivor.metric("tautline_allocator_granting").await, 1.0);
    println!(
        "seed {seed}: {} of {PODS} pods bound, {} pending that no node can host; \
         {at_kill} at the kill, {:.1} s after the first was created, the last {:.1} s after \
         the kill; {} binds refused",
        audit.bound(),
        audit.pending().len(),
        (killed - start).as_secs_f32(),
        took.as_secs_f32(),
        world
            .extender
            .metric("tautline_extender_binds_total{outcome=\"refused\"}")
            .await,
    );
}

/// Two replicas with one Lease.
async fn replicas(world: &World) -> [Server; 2] {
    let args = [
        "provider",
        "gpu-slice",
        "--lease=tautline-system/tautline-gpu-slice",
        "--lease-duration=3s",
    ];
    let start = async |name: &str| {
        Server::replica(&world.plane, "gpu-slice", name, &args)
            .await
            .unwrap()
    };
    [start("gpu-slice-a").await, start("gpu-slice-b").await]
}

/// All pods, in an order that the seed decides.
fn shuffled(seed: u64) -> Vec<Pod> {
    let mut pods = Vec::new();
    for (app, _, resource, count) in WANTS {
        let requests = resource.map_or(json!({}), |r| json!({r: "1"}));
        let pod = |i| gpu::gpu_pod(&format!("{app}-{i}"), app, requests.clone(), None);
        pods.extend((0..count).map(pod));
    }
    assert_eq!(pods.len(), PODS);
    let mut random = seed;
    for i in (1..pods.len()).rev() {
        // Knuth's MMIX.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        pods.swap(i, (random >> 33) as usize % (i + 1));
    }
    pods
}

async fn metric(world: &World) -> f64 {
    world
        .extender
        .metric("tautline_extender_binds_total{outcome=\"bound\"}")
        .await
}

fn state_of(world: &World, survivor: &Server) -> String {
    survivor.process.tail() + &world.state()
}
