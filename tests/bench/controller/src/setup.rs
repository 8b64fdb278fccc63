//! The cluster: pods on nodes, one offer, a provider.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time,
};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
};
use tautline_tests::{objects, root, workloads};

use crate::Shape;

/// Namespace and offer of the benchmark.
pub const NAMESPACE: &str = "bench";
pub const OFFER: &str = "bench";

/// Concurrent requests to the API server.
const IN_FLIGHT: usize = 64;

/// About as many pods as a node has.
const PODS_A_NODE: usize = 100;

/// Answers at once that everything is compliant, always for the same reason.
#[derive(Clone, Default)]
pub struct Instant(Arc<AtomicU64>);

impl Instant {
    /// The number of requests so far.
    pub fn asked(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl RuleProvider for Instant {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let nodes = request.eligible_nodes.into_iter();
        Ok(nodes.map(|n| (n, 0)).collect::<CostAnswer>())
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Evaluation::compliant("as asked for"))
    }
}

/// Our kinds and roles, nodes, the pods of every target, the provider's Service,
/// a policy of one rule and its offer.
pub async fn cluster(client: &Client, shape: &Shape, provider: u16) -> Result<()> {
    let skipped = ["Deployment", "Service"];
    objects::apply_kustomization_except(client, &root().join("deploy"), &skipped).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                           "metadata": {"name": NAMESPACE}});
    objects::apply_one(client, namespace).await?;
    let count: usize = shape.targets.iter().map(|(_, pods)| pods).sum();
    let nodes = count.div_ceil(PODS_A_NODE);
    eprintln!("making {count} pods on {nodes} nodes ...");
    let start = time::Instant::now();
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
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let names = shape
        .targets
        .iter()
        .flat_map(|(app, count)| (0..*count).map(move |i| (*app, i)));
    stream::iter(names.enumerate())
        .map(|(nth, (app, i))| {
            let api = api.clone();
            async move {
                let pod = pod(app, i, nth / PODS_A_NODE)?;
                api.create(&PostParams::default(), &pod).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await
}

fn pod(app: &str, i: usize, node: usize) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{app}-{i:05}"), "labels": {"app": app}},
        "spec": {
            "nodeName": format!("node-{node}"),
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.com/app:1",
                            "resources": {"requests": {"cpu": "10m"}}}],
        },
    }))?)
}
