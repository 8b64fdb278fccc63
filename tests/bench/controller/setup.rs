//! The cluster: pods on nodes, one offer, a provider.

use std::time::Instant;

use anyhow::Result;
use kube::Client;
use serde_json::{Value, json};
use tautline_bench::cluster::{self, each};
use tautline_tests::{objects, workloads};

use crate::Shape;

/// Namespace and offer of the benchmark.
pub const NAMESPACE: &str = "bench";
pub const OFFER: &str = "bench";

/// About as many pods as a node has.
const PODS_A_NODE: usize = 100;

/// Our kinds and roles, nodes, the pods of every target, the provider's Service,
/// a policy of one rule and its offer.
pub async fn create(client: &Client, shape: &Shape, provider: u16) -> Result<()> {
    cluster::deploy(client).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                           "metadata": {"name": NAMESPACE}});
    objects::apply_one(client, namespace).await?;
    let count: usize = shape.targets.iter().map(|(_, pods)| pods).sum();
    let nodes = count.div_ceil(PODS_A_NODE);
    eprintln!("making {count} pods on {nodes} nodes ...");
    let start = Instant::now();
    for node in 0..nodes {
        objects::node(client, &format!("node-{node}"), json!({})).await?;
    }
    pods(client, shape).await?;
    eprintln!("made in {:.1?}", start.elapsed());

    objects::provider(client, NAMESPACE, "provider", provider, &["bench"]).await?;
    let policy = json!({
        "apiVersion": "constraint.ciena.com/v1alpha1", "kind": "ConstraintPolicy",
        "metadata": {"name": "bench", "namespace": NAMESPACE},
        "spec": {"rules": [{"name": "bench", "request": "1", "limit": "2"}]},
    });
    objects::apply_one(client, policy).await?;
    let target = |name: &str| {
        json!({"name": name, "apiVersion": "v1", "kind": "Pod",
               "labelSelector": {"matchLabels": {"app": name}}})
    };
    let targets: Vec<_> = shape.targets.iter().map(|(name, _)| target(name)).collect();
    let period = format!("{}s", shape.period.as_secs());
    let spec = json!({"targets": targets, "policies": ["bench"], "period": period});
    workloads::offer(client, NAMESPACE, OFFER, spec).await
}

/// Every pod of every target, already bound to its node.
async fn pods(client: &Client, shape: &Shape) -> Result<()> {
    let targets = shape.targets.iter();
    let pods: Vec<(&str, usize)> = targets
        .flat_map(|(app, count)| (0..*count).map(move |i| (*app, i)))
        .collect();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let one = async |nth: usize| {
        let (app, i) = pods[nth];
        cluster::create(client, &path, &pod(app, i, nth / PODS_A_NODE)).await
    };
    each(pods.len(), one).await
}

fn pod(app: &str, i: usize, node: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{app}-{i:05}"), "labels": {"app": app}},
        "spec": {
            "nodeName": format!("node-{node}"),
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.com/app:1",
                            "resources": {"requests": {"cpu": "10m"}}}],
        },
    })
}
