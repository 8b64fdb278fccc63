//! Reads the present state of a pod, and finds the nodes that Kubernetes' own rules exclude.

use std::{collections::HashSet, sync::Arc};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use tautline_api::convert;
use tautline_core::{
    Snapshot,
    constraints::{self, PodIdentity},
    model,
    names::DEFAULT_SCHEDULER,
    node_filter::NodeFilter,
};

use crate::draw::{clean, error_line};

const MAX_MESSAGE_CHARS: usize = 2000;
const MAX_OFFERS: usize = 50;

/// The pod as the API has it now.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodState {
    pub exists: bool,
    pub node: Option<String>,
    pub phase: String,
    pub scheduler: String,
    pub scheduling_gates: Vec<String>,
    /// kube-scheduler's message about its last attempt.
    pub message: Option<String>,
    /// The names of the offers that govern the pod.
    pub offers: Vec<String>,
    #[serde(skip)]
    pub uid: String,
    /// The reason why the pod could not be read.
    pub problem: Option<String>,
}

impl PodState {
    pub fn new(read: &Result<Option<Pod>>, snapshot: &Snapshot) -> Self {
        match read {
            Err(error) => Self {
                problem: Some(error_line(error)),
                ..Self::default()
            },
            Ok(None) => Self::default(),
            Ok(Some(pod)) => Self::of(pod, snapshot),
        }
    }

    fn of(pod: &Pod, snapshot: &Snapshot) -> Self {
        let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
        let gates = spec.and_then(|s| s.scheduling_gates.as_ref());
        let gates = gates.into_iter().flatten().take(8);
        let conditions = status.and_then(|s| s.conditions.as_ref());
        let mut scheduled = conditions.into_iter().flatten();
        let scheduled = scheduled.find(|c| c.type_ == "PodScheduled" && c.status == "False");
        let node = spec.and_then(|s| s.node_name.clone());
        let identity = PodIdentity {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            labels: convert::labels(pod.metadata.labels.as_ref()),
            ..PodIdentity::default()
        };
        let candidates = snapshot.candidate_offers(&identity.namespace, &identity.labels);
        let governing = candidates.filter(|e| constraints::governs(&e.offer, &identity));
        let governing = governing.take(MAX_OFFERS).map(|e| e.offer.name.to_string());
        let phase = status.and_then(|s| s.phase.as_deref());
        let scheduler = spec.and_then(|s| s.scheduler_name.as_deref());
        Self {
            exists: true,
            node: node.filter(|n| !n.is_empty()),
            phase: clean(phase.unwrap_or_default(), 40),
            scheduler: clean(scheduler.unwrap_or(DEFAULT_SCHEDULER), 260),
            scheduling_gates: gates.map(|g| clean(&g.name, 80)).collect(),
            message: scheduled.and_then(|c| Some(clean(c.message.as_deref()?, MAX_MESSAGE_CHARS))),
            offers: governing.collect(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            problem: None,
        }
    }
}

/// A node that was not in a round.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Excluded {
    pub node: String,
    /// The reason in kube-scheduler's words; `None` if no rule that is checked here excludes the
    /// node now.
    pub reason: Option<String>,
}

/// Converts a pod as if it had no node, so that all its constraints count.
pub(super) fn unbound(mut pod: Pod) -> model::Pod {
    if let Some(spec) = &mut pod.spec {
        spec.node_name = None;
    }
    convert::pod(&pod)
}

/// Returns the cluster's nodes that are not in `asked`, sorted by name. Without a pod their reasons
/// are not known.
pub(super) async fn excluded(
    snapshot: &Arc<Snapshot>,
    pod: Option<model::Pod>,
    asked: HashSet<String>,
) -> Result<Vec<Excluded>> {
    let snapshot = Arc::clone(snapshot);
    let checked = tokio::task::spawn_blocking(move || check(&snapshot, pod.as_ref(), &asked));
    checked
        .await
        .context("Kubernetes' rules could not be checked")
}

fn check(snapshot: &Snapshot, pod: Option<&model::Pod>, asked: &HashSet<String>) -> Vec<Excluded> {
    let filter = pod.map(|pod| NodeFilter::new(snapshot, pod));
    let rest = snapshot.nodes().filter(|n| !asked.contains(&*n.name));
    let rest = rest.map(|node| Excluded {
        node: node.name.to_string(),
        reason: filter
            .as_ref()
            .and_then(|f| Some(f.reason(node)?.to_string())),
    });
    let mut all: Vec<Excluded> = rest.collect();
    all.sort_unstable();
    all
}
