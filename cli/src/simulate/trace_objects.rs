use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1;
use serde_json::{Value, json};
use tautline_api::{convert, manifest};
use tautline_core::index::Object;
use tautline_gpu_placement::{CARD_MILLI, Shape};
use tautline_gpu_simulator::{Arrivals, Trace, Workload};
use tautline_runtime::manifest_files;

pub(super) const NAMESPACE: &str = "trace";
/// The label with the index of a pod's requested models.
const MODELS: &str = "models";

/// The nodes of the trace, named so that their order is the seed's.
pub(super) fn nodes(trace: &Trace, order: &Arrivals) -> Result<Vec<Object>> {
    let node = |(i, n): (usize, &u32)| {
        let node = &trace.nodes[*n as usize];
        let json = json!({
            "metadata": {
                "name": format!("{i:06}-{}", node.name),
                "labels": {
                    "tautline.io/gpu-cards": node.cards.to_string(),
                    "nvidia.com/gpu.product": &*node.model,
                },
            },
            "status": {"allocatable": {
                "cpu": format!("{}m", node.cpu_milli),
                "memory": node.memory_bytes.to_string(),
                // The trace does not limit the number of pods.
                "pods": "1000000",
            }},
        });
        let node: v1::Node = serde_json::from_value(json).context("a node of the trace")?;
        Ok(Object::Node(convert::node(&node)))
    };
    order.nodes.iter().enumerate().map(node).collect()
}

/// The position of a node of [`nodes`] in the order.
pub(super) fn index(name: &str) -> Option<usize> {
    name.split_once('-')?.0.parse().ok()
}

fn models(workload: &Workload) -> Vec<&Arc<[Arc<str>]>> {
    let mut all: Vec<_> = workload.shapes.iter().map(|s| &s.models).collect();
    all.sort();
    all.dedup();
    all
}

pub(super) fn policies(workload: &Workload) -> Result<Vec<Object>> {
    let mut all = Vec::new();
    for (i, models) in models(workload).into_iter().enumerate() {
        let request = if models.is_empty() {
            "true".to_owned()
        } else {
            format!("true,model={}", models.join("|"))
        };
        let (name, kind) = (format!("gpu-{i}"), "constraint.ciena.com/v1alpha1");
        let policy = json!({
            "apiVersion": kind, "kind": "ConstraintPolicy",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"rules": [{"name": "gpu-slice", "request": request}]},
        });
        let offer = json!({
            "apiVersion": kind, "kind": "ConstraintPolicyOffer",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"policies": [name], "targets": [{
                "apiVersion": "v1", "kind": "Pod",
                "labelSelector": {"matchLabels": {MODELS: i.to_string()}},
            }]},
        });
        for object in [policy, offer] {
            for item in manifest::parse(&object.to_string())? {
                all.extend(manifest_files::object(&item).map_err(anyhow::Error::msg)?);
            }
        }
    }
    Ok(all)
}

pub(super) fn pod(number: usize, shape: &Shape, workload: &Workload) -> Value {
    let all = models(workload);
    let list = all.iter().position(|m| **m == shape.models).unwrap_or(0);
    let mut annotations = json!({});
    if shape.needs_gpu() {
        let (cards, milli) = match shape.share {
            0 => (shape.whole, CARD_MILLI),
            share => (1, share),
        };
        annotations = json!({
            "alibabacloud.com/gpu-count": cards.to_string(),
            "alibabacloud.com/gpu-milli": milli.to_string(),
        });
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{number}"), "namespace": NAMESPACE,
            "uid": format!("pod-{number}"),
            "labels": {MODELS: list.to_string()},
            "annotations": annotations,
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": {
            "cpu": format!("{}m", shape.cpu_milli),
            "memory": shape.memory_bytes.to_string(),
        }}}]},
    })
}
