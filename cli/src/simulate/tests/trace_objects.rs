//! Converts the nodes, pods and GPU models of a trace to Kubernetes objects, for the runs
//! through the real servers.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tautline_api::manifest::{self, Item};
use tautline_gpu_placement::{CARD_MILLI, Shape};
use tautline_gpu_simulator::{Arrivals, Trace, Workload};

const NAMESPACE: &str = "trace";
/// The label with the index of a pod's requested models.
const MODELS: &str = "models";

/// Returns the nodes of the trace, named so that their order is the seed's, the Service of
/// gpu-slice, and a policy and an offer for each list of models.
pub(super) fn items(trace: &Trace, workload: &Workload, order: &Arrivals) -> Result<Vec<Item>> {
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "gpu-slice", "namespace": NAMESPACE,
                     "labels": {"constraint.ciena.com/constraint-gpu-slice": "enabled"}},
    })];
    for (i, n) in order.nodes.iter().enumerate() {
        let node = &trace.nodes[*n as usize];
        objects.push(json!({
            "apiVersion": "v1", "kind": "Node",
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
        }));
    }
    for (i, models) in models(workload).into_iter().enumerate() {
        let request = match models.join("|") {
            none if none.is_empty() => "true".to_owned(),
            models => format!("true,model={models}"),
        };
        let (name, kind) = (format!("gpu-{i}"), "constraint.ciena.com/v1alpha1");
        objects.push(json!({
            "apiVersion": kind, "kind": "ConstraintPolicy",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"rules": [{"name": "gpu-slice", "request": request}]},
        }));
        objects.push(json!({
            "apiVersion": kind, "kind": "ConstraintPolicyOffer",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"policies": [name], "targets": [{
                "apiVersion": "v1", "kind": "Pod",
                "labelSelector": {"matchLabels": {MODELS: i.to_string()}},
            }]},
        }));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    Ok(manifest::parse(&list.to_string())?)
}

/// Returns the position of a node in the order.
pub(super) fn index(name: &str) -> Option<usize> {
    name.split_once('-')?.0.parse().ok()
}

fn models(workload: &Workload) -> Vec<&Arc<[Arc<str>]>> {
    let mut all: Vec<_> = workload.shapes.iter().map(|s| &s.models).collect();
    all.sort();
    all.dedup();
    all
}

pub(super) fn pod(number: usize, shape: &Shape, workload: &Workload) -> Result<Pod> {
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
    let pod = json!({
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
    });
    serde_json::from_value(pod).context("a pod of the trace")
}
