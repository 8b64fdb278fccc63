use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tautline_conformance::{Config, Workload};
use tautline_core::{index::Object, model};
use tautline_gpu_slice::GpuSlice;
use tautline_latency::{Latency, Table, ZONE};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_scripted::Scripted;
use tautline_sdk::{CostAnswer, CostChanges, CostRequest, ProviderError, RuleProvider, testkit};

use crate::{passes, patient, skipped};

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

fn pod(name: &str, node: &str, annotations: &[(&str, &str)]) -> Object {
    Object::Pod(model::Pod {
        namespace: "ml".into(),
        name: name.into(),
        uid: name.into(),
        node: Some(node.into()),
        annotations: annotations.iter().copied().collect(),
        ..model::Pod::default()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gpu_slice_passes() {
    let store = ClusterStore::default();
    for (name, resource, milli) in [
        ("gpu-1", "tautline.io/gpu-cards", 4_000),
        ("gpu-2", "tautline.io/gpu-cards", 2_000),
        ("plain", "cpu", 8_000),
    ] {
        store.apply(Object::Node(model::Node {
            name: name.into(),
            allocatable: [(resource, milli)].into_iter().collect(),
            ..model::Node::default()
        }));
    }
    let quarter = [("tautline.io/gpu-devices", "0:250")];
    store.apply(pod("bound", "gpu-1", &quarter));
    store.apply(pod("lost", "gone", &quarter));
    store.apply(pod("bare", "gpu-1", &[]));
    let provider = GpuSlice::new(store, tautline_gpu_slice::Config::default());
    let server = testkit::start_with_allocator(provider.clone(), provider).await;
    let server = server.unwrap();
    let expectations = [
        "Compliant source=ml/bound@gpu-1",
        "Violation source=ml/lost@gone",
        "Error source=ml/bare@gpu-1",
        "Pending source=ml/waiting",
    ];
    let report = passes(Config {
        request: "250m".into(),
        bad_request: Some("1500m".into()),
        bad_limit: Some("lots".into()),
        nodes: strings(&["gpu-1", "gpu-2", "plain"]),
        expectations: expectations.map(|text| text.parse().unwrap()).to_vec(),
        reserve: true,
        // Of a pod that was promised a node: it fills it.
        workload: Workload {
            annotations: [
                ("alibabacloud.com/gpu-milli", "1000"),
                ("alibabacloud.com/gpu-count", "4"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
            ..Workload::default()
        },
        ..patient(server.address, "gpu-slice")
    })
    .await;
    assert_eq!(skipped(&report), "");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latency_passes() {
    let store = ClusterStore::default();
    for (node, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")] {
        store.apply(Object::Node(model::Node {
            name: node.into(),
            labels: [(ZONE, zone)].into_iter().collect(),
            ..model::Node::default()
        }));
    }
    let provider = Latency::new(store);
    let mut table = Table::default();
    table.add("a,a,200us\na,b,12ms\na,c,31ms\n").unwrap();
    provider.set_table(table);
    let server = testkit::start(provider).await.unwrap();
    let expectations = [
        "Compliant source=shop/web-0@a2 db=shop/db-0@a1",
        "Limit source=shop/web-0@b1 db=shop/db-0@a1",
        "Violation source=shop/web-0@c1 db=shop/db-0@a1",
        "Violation source=shop/web-0@b1 db=shop/db-0@a1 limit=10ms",
        "Pending source=shop/web-0 db=shop/db-0@a1",
        "Error source=shop/web-0@b1 db=shop/db-0@c1",
    ];
    let report = passes(Config {
        request: "5ms".into(),
        limit: "20ms".into(),
        bad_request: Some("fast".into()),
        bad_limit: Some("20".into()),
        nodes: strings(&["a1", "a2", "b1", "c1"]),
        peers: vec!["db=shop/db-0@a1".parse().unwrap()],
        expectations: expectations.map(|text| text.parse().unwrap()).to_vec(),
        ..patient(server.address, "latency")
    })
    .await;
    insta::assert_snapshot!(skipped(&report), @r#"
    watch/placed: the provider serves no Allocator
    allocator/in-flight: the provider serves no Allocator
    allocator/release-unknown: the provider serves no Allocator
    allocator/confirm-unknown: the provider serves no Allocator
    allocator/repeats: the provider serves no Allocator
    allocator/release: the provider serves no Allocator
    allocator/new-id: the provider serves no Allocator
    allocator/hold: the provider serves no Allocator
    allocator/confirm: the provider serves no Allocator
    allocator/unknown-node: the provider serves no Allocator
    allocator/bad-rule: the provider serves no Allocator
    "#);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripted_passes() {
    let provider = Scripted::default();
    let costs = serde_json::json!({
        "apiVersion": "constraint.ciena.com/v1", "kind": "CostProvider",
        "metadata": {"name": "costs", "namespace": "shop"},
        "spec": {"rule": "noise", "target": "Pod:web-.*", "priority": 1,
                 "values": [{"node": "n1", "cost": 4}, {"node": "n2", "cost": -1}]},
    });
    provider.set_costs(vec![Arc::new(serde_json::from_value(costs).unwrap())]);
    let loud = serde_json::json!({
        "apiVersion": "constraint.ciena.com/v1", "kind": "RuleProvider",
        "metadata": {"name": "loud", "namespace": "shop"},
        "spec": {"rule": "noise", "value": "Violation", "reason": "loud",
                 "targets": [{"name": "source", "reference": "Pod:loud-.*"}]},
    });
    provider.set_compliances(vec![Arc::new(serde_json::from_value(loud).unwrap())]);
    let server = testkit::start(provider).await.unwrap();
    let expectations = [
        "Compliant source=shop/web-0@n1",
        "Violation source=shop/loud-0@n1",
    ];
    let report = passes(Config {
        nodes: strings(&["n1", "n2", "n3"]),
        pod: "shop/web-0".parse().unwrap(),
        expectations: expectations.map(|text| text.parse().unwrap()).to_vec(),
        ..patient(server.address, "noise")
    })
    .await;
    insta::assert_snapshot!(skipped(&report), @r#"
    questions/bad-rule: request "conformance: not a value" is accepted; if the rule reads its request, name one that it must refuse with --bad request=TEXT
    watch/nodes: costs depend on which pod asks: perPod
    watch/placed: the provider serves no Allocator
    evaluate/bad-rule: request "conformance: not a value" is accepted; if the rule reads its request, name one that it must refuse with --bad request=TEXT
    allocator/in-flight: the provider serves no Allocator
    allocator/release-unknown: the provider serves no Allocator
    allocator/confirm-unknown: the provider serves no Allocator
    allocator/repeats: the provider serves no Allocator
    allocator/release: the provider serves no Allocator
    allocator/new-id: the provider serves no Allocator
    allocator/hold: the provider serves no Allocator
    allocator/confirm: the provider serves no Allocator
    allocator/unknown-node: the provider serves no Allocator
    allocator/bad-rule: the provider serves no Allocator
    "#);
    server.stop().await;
}

/// All nodes cost the same, and more as time goes by.
#[derive(Clone, Default)]
struct Rising {
    cost: Arc<AtomicI64>,
    changes: CostChanges,
}

impl RuleProvider for Rising {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let cost = self.cost.load(Ordering::Relaxed);
        let nodes = request.eligible_nodes.into_iter();
        Ok(nodes.map(|node| (node, cost)).collect())
    }

    fn changes(&self) -> Option<&CostChanges> {
        Some(&self.changes)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_whose_costs_change_passes() {
    let provider = Rising::default();
    let server = testkit::start(provider.clone()).await.unwrap();
    let rise = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            provider.cost.fetch_add(1, Ordering::Relaxed);
            provider.changes.changed_all();
        }
    });
    let report = passes(Config {
        nodes: strings(&["n1", "n2"]),
        filter: Some("watch/".into()),
        ..patient(server.address, "rising")
    });
    let skipped = skipped(&report.await);
    insta::assert_snapshot!(skipped, @"watch/placed: the provider serves no Allocator");
    rise.abort();
    server.stop().await;
}
