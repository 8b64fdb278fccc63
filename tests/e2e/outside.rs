//! Peers that are endpoints: at the nodes of their pods, and outside the cluster.

use std::sync::atomic::{AtomicUsize, Ordering};

use kube::Client;
use serde_json::{Value, json};
use tautline_tests::{PATIENCE, eventually, objects, servers::Server};

use crate::{World, placement::wait_for_provider};

/// Writes the only EndpointSlice of the Service `db`.
async fn slice(client: &Client, endpoint: Value) {
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "db-1", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "db", "app": "db"}},
        "addressType": "IPv4", "ports": [{"port": 5432}], "endpoints": [endpoint]});
    objects::apply_one(client, slice).await.unwrap();
}

/// Writes the table of the namespace.
async fn table(client: &Client, rows: &str) {
    let table = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "table", "namespace": "default",
            "labels": {"constraint.ciena.com/latency-table": "enabled"}},
        "data": {"rows": rows}});
    objects::apply_one(client, table).await.unwrap();
}

#[tokio::test]
async fn pods_follow_endpoints_to_nodes_and_to_addresses_outside() {
    let world = World::start(&["n1", "n2", "n3"], &[]).await.unwrap();
    let client = &world.plane.client;
    let between_nodes = "n1,n2,50ms\nn1,n3,50ms\nn2,n3,50ms\n";
    table(client, between_nodes).await;
    let args = ["provider", "latency", "--external-cidrs=203.0.113.0/24"];
    let provider = Server::start(&world.plane, "latency", &args).await.unwrap();
    objects::provider(client, "default", "p", provider.port, &["latency"])
        .await
        .unwrap();
    let target = |name: &str, kind: &str| json!({"name": name, "apiVersion": "v1", "kind": kind, "labelSelector": {"matchLabels": {"app": name}}});
    let rule = json!({"name": "latency", "limit": "20ms"});
    let near = json!({"targets": [target("web", "Pod"), target("db", "Endpoint")]});
    slice(client, json!({"addresses": ["10.0.0.1"], "nodeName": "n2"})).await;
    objects::policy(client, "default", "web", rule, near)
        .await
        .unwrap();
    wait_for_provider(&world, "web").await;
    let state = async || world.state() + &provider.process.tail();

    // The extender reads slices by a watch of its own, so the first pods may come too early.
    let pods = AtomicUsize::new(0);
    let next = async || {
        let name = format!("web-{}", pods.fetch_add(1, Ordering::Relaxed));
        objects::pod(client, "default", &name, "web").await.unwrap();
        name
    };
    for (node, others) in [("n2", "n1,n3"), ("n3", "n1,n2")] {
        slice(client, json!({"addresses": ["10.0.0.1"], "nodeName": node})).await;
        let follows = async || {
            let name = next().await;
            (world.bound(&name).await == node).then_some(())
        };
        let what = format!("a pod is on {node}, not on {others}");
        eventually(&what, PATIENCE, follows, state).await;
    }

    for (address, reason) in [
        ("203.0.113.9", "agents have no fresh figure yet"),
        (
            "198.51.100.7",
            "it is not within the ranges that agents may connect to",
        ),
    ] {
        slice(client, json!({"addresses": [address]})).await;
        let text = format!("no figure to {address}:5432: {reason}");
        let waits = async || {
            let name = next().await;
            let path = format!("/explain/default/{name}");
            let round = async || {
                let (status, explained) = world.extender.admin(&path).await.unwrap();
                (status == 200).then_some(explained)
            };
            let explained = eventually("a round", PATIENCE, round, state).await;
            explained.contains(&text).then_some(())
        };
        eventually(&text, PATIENCE, waits, state).await;
    }

    // A row for the Service has the time to all of its addresses.
    table(client, &format!("{between_nodes}n1,db,3ms\n")).await;
    let last = format!("web-{}", pods.load(Ordering::Relaxed) - 1);
    assert_eq!(world.bound(&last).await, "n1");
}
