//! Benchmarks on the real control plane: objects made by many requests at once, and a provider that
//! costs nothing.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::Value;
use tautline_sdk::{
    CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError, RuleProvider,
};
use tautline_tests::{objects, root};

/// Concurrent requests to the API server.
const IN_FLIGHT: usize = 64;

/// The metric that counts the pods which a watch has delivered.
pub const POD_EVENTS: &str = "tautline_watch_events_total{kind=\"pods\"}";

/// The binary to measure: `bin`, or else that of the release build.
pub fn release_binary(bin: Option<PathBuf>) -> Result<PathBuf> {
    let bin = bin.unwrap_or_else(|| root().join("target/release/tautline"));
    ensure!(
        bin.is_file(),
        "{} is not there: cargo build --release -p tautline, or --bin FILE",
        bin.display()
    );
    Ok(bin)
}

/// Applies `deploy/` without what would run there.
pub async fn deploy(client: &Client) -> Result<()> {
    let skipped = ["Deployment", "Service", "DaemonSet"];
    objects::apply_kustomization_except(client, &root().join("deploy"), &skipped).await
}

/// Creates an object by a post to `path`.
pub async fn create(client: &Client, path: &str, object: &Value) -> Result<()> {
    let answer = objects::post(client, path, object).await?;
    let status = answer.status;
    ensure!(status == 201, "{path}: {status} {}", answer.message());
    Ok(())
}

/// Calls `one` with each number below `count`, many at a time.
pub async fn each(count: usize, one: impl AsyncFn(usize) -> Result<()>) -> Result<()> {
    let all = stream::iter(0..count).map(|i| one(i));
    all.buffer_unordered(IN_FLIGHT).try_collect().await
}

/// A provider that answers at once: each node costs 1, everything is compliant, always for the same
/// reason.
#[derive(Clone, Default)]
pub struct AtOnce(Arc<AtomicU64>);

impl AtOnce {
    /// The number of evaluations so far.
    pub fn evaluated(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl RuleProvider for AtOnce {
    async fn endpoint_cost(&self, request: CostRequest) -> Result<CostAnswer, ProviderError> {
        let nodes = request.eligible_nodes.into_iter();
        Ok(nodes.map(|n| (n, 1)).collect::<CostAnswer>())
    }

    async fn evaluate(&self, _: EvaluationRequest) -> Result<Evaluation, ProviderError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Evaluation::compliant("as asked for"))
    }
}
