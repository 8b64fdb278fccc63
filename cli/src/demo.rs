use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use tautline_api::manifest;
use tautline_core::trust::TrustedNamespaces;

use crate::{local::LocalScheduler, output, render};

#[derive(clap::Args)]
pub(crate) struct Args {}

/// The example, as in `examples/edge-inference/`.
const FILES: [&str; 4] = [
    include_str!("../../examples/edge-inference/1-cluster.yaml"),
    include_str!("../../examples/edge-inference/2-providers.yaml"),
    include_str!("../../examples/edge-inference/3-policies.yaml"),
    include_str!("../../examples/edge-inference/4-pods.yaml"),
];

const NAMESPACE: &str = "vision";

pub(crate) async fn run(_: Args) -> Result<()> {
    let mut items = Vec::new();
    for file in FILES {
        items.extend(manifest::parse(file)?);
    }
    let local = LocalScheduler::start(items, TrustedNamespaces::default()).await?;
    let result = run_steps(&local).await;
    local.stop().await;
    result
}

async fn run_steps(local: &LocalScheduler) -> Result<()> {
    output::write(&format!(
        "An edge inference service: {} nodes in 3 zones, some with shared GPUs.\n\
         The camera gateway runs at north-1; detectors must be within 20 ms of it and\n\
         get a quarter of a GPU. The real extender and the real rule providers run on\n\
         loopback; this program plays kube-scheduler's part over HTTP.\n\
         (The same with your own manifests: tautline plan -f DIR)\n\n",
        local.node_count()
    ))?;
    step(
        local,
        "1. A detector. `latency` keeps the far zone out, `gpu-slice` the cards that do not\n   \
            run its model. Of the rest the nearest wins.",
        "detector-0",
    )
    .await?;
    step(
        local,
        "2. The next one sees what the first one took.",
        "detector-1",
    )
    .await?;
    step(
        local,
        "3. A trainer asks for two whole cards and does not care for latency.",
        "trainer-0",
    )
    .await?;
    step(
        local,
        "4. A tracker must be within 100us of the gateway, and no GPU is so near. It stays\n   \
            pending, with reasons that say which rule and why; kube-scheduler shows the same.",
        "tracker-0",
    )
    .await?;
    step(
        local,
        "5. No offer selects the dashboard: it passes through untouched.",
        "dashboard-0",
    )
    .await?;

    local.relabel(NAMESPACE, "latency-maintenance", "latency", true);
    local.relabel(NAMESPACE, "latency-table", "latency", false);
    step(
        local,
        "6. Fibre work in the north is due. The operator re-binds the rule `latency` to\n   \
            another provider by moving a label; nothing restarts:\n   \
            $ kubectl -n vision label service latency-maintenance constraint.ciena.com/constraint-latency=enabled\n   \
            $ kubectl -n vision label service latency-table constraint.ciena.com/constraint-latency-\n   \
            The next detector goes south.",
        "detector-2",
    )
    .await
}

async fn step(local: &LocalScheduler, text: &str, pod: &str) -> Result<()> {
    let named = |p: &&Pod| p.metadata.name.as_deref() == Some(pod);
    let pod = local
        .pending
        .iter()
        .find(named)
        .with_context(|| format!("no pod {pod}"))?;
    let placement = local.place(pod).await?;
    output::write(&format!(
        "{text}\n\n{}\n",
        render::placement(&placement, 12)
    ))
}
