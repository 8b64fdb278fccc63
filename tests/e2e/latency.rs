//! Latency from the packet to the move: agents on every node, a provider in two
//! replicas, the real scheduler, and pods that follow their server.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tautline_tests::{
    PATIENCE, balancer::Balancer, eventually, objects, servers::Server, workloads,
};

use crate::{
    governed_cluster::{GovernedCluster, compliance_of},
    latency_agents::{Fleet, token_of},
};

const NODES: [&str; 5] = ["s1", "a1", "a2", "b1", "b2"];
const MS: Duration = Duration::from_millis(1);
/// Time at Limit before Violation, long enough for a busy machine to see it.
const GRACE: &str = "8s";
const ARGS: [&str; 5] = [
    "provider",
    "latency",
    "--agent-tokens=tautline-system/tautline-latency-agent",
    "--echo-key-secret=tautline-system/tautline-latency-echo",
    // The agents come after the providers, whose ports they need.
    "--agents-within=1ms",
];

struct Measured {
    world: GovernedCluster,
    fleet: Fleet,
    replicas: [Server; 2],
    balancer: Balancer,
}

impl Measured {
    async fn start() -> Self {
        let nodes = NODES.map(|n| (n, 0));
        let world = GovernedCluster::start(&nodes, &["--eviction-cool-down=1s"])
            .await
            .unwrap();
        let client = world.client();
        for node in NODES {
            // The server's node takes no other pod.
            let taints = match node {
                "s1" => json!([{"key": "server", "effect": "NoSchedule"}]),
                _ => json!([]),
            };
            let zone = json!({"topology.kubernetes.io/zone": node[..1]});
            let object = json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": node, "labels": zone}, "spec": {"taints": taints}});
            objects::apply_one(client, object).await.unwrap();
        }
        let replicas = [
            Server::start(&world.plane, "latency", &ARGS).await.unwrap(),
            Server::start(&world.plane, "latency", &ARGS).await.unwrap(),
        ];
        let ports = replicas.each_ref().map(|r| r.port);
        let at = ports.map(|p| ([127, 0, 0, 1], p).into());
        let balancer = Balancer::start(at.into()).await.unwrap();
        let fleet = Fleet::start(&world.plane, &NODES, &ports).await.unwrap();
        for (a, b, rtt) in [
            ("a", "a", 1),
            ("b", "b", 1),
            ("s", "a", 4),
            ("s", "b", 10),
            ("a", "b", 8),
        ] {
            fleet.set(a, b, rtt * MS);
        }
        let port = balancer.address.port();
        objects::provider(client, "default", "latency", port, &["latency"])
            .await
            .unwrap();
        Self {
            world,
            fleet,
            replicas,
            balancer,
        }
    }

    async fn state(&self) -> String {
        let mut out = self.world.state("client").await + &self.fleet.state();
        for (i, replica) in self.replicas.iter().enumerate() {
            out += &replica.process.tail();
            for node in &NODES[1..] {
                out += &format!("{}\n", self.pair(i, "s1", node).await);
            }
            out += &replica.admin("/metrics").await.unwrap_or_default().1;
        }
        out
    }

    /// A replica's report of a pair.
    async fn pair(&self, replica: usize, from: &str, to: &str) -> Value {
        let path = format!("/latency/pair?from={from}&to={to}");
        let answer = self.replicas[replica].admin(&path).await;
        let text = answer.map(|(_, body)| body).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The nodes of the running clients.
    async fn clients_on(&self) -> Vec<String> {
        let pods = workloads::pods_of(self.world.client(), "default", "client").await;
        let mut on: Vec<String> = pods
            .into_iter()
            .filter(|p| p.metadata.deletion_timestamp.is_none())
            .filter_map(|p| p.spec?.node_name)
            .collect();
        on.sort();
        on
    }

    /// Waits until a binding has this compliance.
    async fn one_stands(&self, compliance: &str) {
        let condition = async || {
            let bindings = workloads::bindings(self.world.client(), "default", "client").await;
            let found = bindings.iter().any(|b| compliance_of(b) == compliance);
            found.then_some(())
        };
        let what = format!("a binding is {compliance}");
        eventually(&what, PATIENCE, condition, async || self.state().await).await;
    }

    /// Waits until both clients run in a zone and their bindings have this compliance.
    async fn clients_in(&self, zone: &str, compliance: &str) {
        let condition = async || {
            let on = self.clients_on().await;
            let bindings = workloads::bindings(self.world.client(), "default", "client").await;
            let stand = bindings.iter().all(|b| compliance_of(b) == compliance);
            let there = on.len() == 2 && on.iter().all(|n| n.starts_with(zone));
            (there && stand && bindings.len() == 2).then_some(())
        };
        let what = format!("clients in zone {zone}, {compliance}");
        eventually(&what, PATIENCE * 2, condition, async || self.state().await).await;
    }
}

#[tokio::test]
async fn clients_follow_measured_latency() {
    let mut measured = Measured::start().await;
    strangers_are_refused(&measured).await;
    placed_by_measurements(&measured).await;
    either_replica_may_die(&mut measured).await;
    moved_when_the_delay_grows(&measured).await;
    unreachable_within_seconds(&measured).await;
}

/// An agent with another node's token is refused.
async fn strangers_are_refused(measured: &Measured) {
    let plane = &measured.world.plane;
    let token = token_of(plane, "b1").await.unwrap();
    let port = measured.replicas[0].port;
    let liar = measured
        .fleet
        .agent(plane, (NODES.len(), "b2"), "liar", &token, &[port])
        .unwrap();
    let condition = async || {
        let refused = measured.replicas[0]
            .metric("tautline_latency_agents_refused_total")
            .await;
        (refused > 0.0).then_some(())
    };
    eventually("the liar is refused", PATIENCE, condition, async || {
        liar.tail() + &measured.state().await
    })
    .await;
}

async fn placed_by_measurements(measured: &Measured) {
    let world = &measured.world;
    let client = world.client();
    let server = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "server", "namespace": "default", "labels": {"app": "server"}},
        "spec": {"nodeName": "s1", "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    objects::apply_one(client, server).await.unwrap();
    let target = |name: &str| {
        json!({"name": name, "apiVersion": "v1", "kind": "Pod",
               "labelSelector": {"matchLabels": {"app": name}}})
    };
    let rule = json!({"name": "latency", "request": "12ms", "limit": "20ms",
        "prefer": "Nearest"});
    let offer = json!({"targets": [target("client"), target("server")],
        "period": "1s", "grace": GRACE, "violationPolicy": "Evict"});
    objects::policy(client, "default", "client", rule, offer)
        .await
        .unwrap();
    // Wait for measurements: before them the provider would have to estimate.
    let condition = async || {
        for (replica, node) in [0, 1]
            .into_iter()
            .flat_map(|r| NODES[1..].iter().map(move |n| (r, n)))
        {
            let pair = measured.pair(replica, "s1", node).await;
            (pair["told"]["basis"] == "measured").then_some(())?;
        }
        Some(())
    };
    eventually(
        "all ways to s1 are measured",
        PATIENCE,
        condition,
        async || measured.state().await,
    )
    .await;
    world.deployment("client", 2).await;
    measured.clients_in("a", "Compliant").await;
    let bindings = workloads::bindings(client, "default", "client").await;
    let status = bindings[0].status.clone().unwrap();
    let reason = &status.details[0].rule_details[0].reason;
    assert!(reason.contains("measured"), "{reason}");
    println!("placed: {reason}");
    // The controller sends the nodes of pods.
    for replica in &measured.replicas {
        let metrics = replica.admin("/metrics").await.unwrap_or_default().1;
        let none = "tautline_watch_events_total{kind=\"pods\"} 0\n";
        assert!(metrics.contains(none), "{metrics}");
    }
}

/// The other replica answers meanwhile, and the restarted one soon knows the agents' figures.
async fn either_replica_may_die(measured: &mut Measured) {
    let before = measured.pair(0, "s1", "a1").await;
    assert_eq!(before["told"]["basis"], "measured", "{before}");
    measured.replicas[0].process.kill();
    let [_, left] = measured.replicas.each_ref().map(|r| r.port);
    measured
        .balancer
        .set_backends(vec![([127, 0, 0, 1], left).into()]);
    let condition = async || {
        let bindings = workloads::bindings(measured.world.client(), "default", "client").await;
        let broken = |b| ["Limit", "Violation"].contains(&&*compliance_of(b));
        assert!(!bindings.iter().any(broken), "{}", measured.state().await);
    };
    crate::governed_cluster::for_a_while(Duration::from_secs(3), condition).await;
    measured.clients_in("a", "Compliant").await;
    let again = Instant::now();
    measured.replicas[0].restart().await.unwrap();
    let condition = async || {
        let pair = measured.pair(0, "s1", "a1").await;
        (pair["told"]["basis"] == "measured").then_some(pair)
    };
    let pair = eventually(
        "the newcomer knows the pair",
        PATIENCE,
        condition,
        async || measured.state().await,
    )
    .await;
    println!("newcomer knows after {:?}: {pair}", again.elapsed());
}

/// Limit during the grace, then Violation, then the pods move where the limit holds.
async fn moved_when_the_delay_grows(measured: &Measured) {
    let bindings = workloads::bindings(measured.world.client(), "default", "client").await;
    let raised = Instant::now();
    measured.fleet.set("s", "a", 40 * MS);
    measured.one_stands("Limit").await;
    println!("Limit {:?} after the delay grew", raised.elapsed());
    // The bindings of evicted pods go: their events stay.
    let condition = async || {
        for binding in &bindings {
            let name = binding.metadata.name.as_deref()?;
            let events = objects::events(measured.world.client(), "default", name).await;
            if events.contains("Violation: ") {
                return Some(());
            }
        }
        None
    };
    eventually("a binding is violated", PATIENCE, condition, async || {
        measured.state().await
    })
    .await;
    let violated = raised.elapsed();
    assert!(violated >= Duration::from_secs(8), "{violated:?}");
    println!("Violation {violated:?} after the delay grew, grace {GRACE}");
    measured.clients_in("b", "Compliant").await;
    println!("in zone b {:?} after the delay grew", raised.elapsed());
}

/// A cut link of a rule. The other zone is too far, so no pod moves.
async fn unreachable_within_seconds(measured: &Measured) {
    let on = measured.clients_on().await;
    measured.fleet.cut("s", "b", true);
    let cut = Instant::now();
    let condition = async || {
        let pair = measured.pair(0, "s1", &on[0]).await;
        (pair["told"]["basis"] == "unreachable").then_some(())
    };
    eventually("the pair is unreachable", PATIENCE, condition, async || {
        measured.state().await
    })
    .await;
    println!("unreachable {:?} after the cut", cut.elapsed());
    measured
        .world
        .wait_for_compliance("client", 2, "Violation")
        .await;
    let refused = "tautline_controller_evictions_total{outcome=\"NoBetterNode\"}";
    measured.world.wait_for_metric(refused, 1.0).await;
    assert_eq!(measured.clients_on().await, on);
    measured.fleet.cut("s", "b", false);
    measured.clients_in("b", "Compliant").await;
}
