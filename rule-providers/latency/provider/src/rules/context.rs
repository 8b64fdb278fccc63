use std::collections::BTreeSet;

use arc_swap::ArcSwap;
use tautline_core::{Snapshot, TrustedNamespaces};
use tautline_runtime::cluster_store::ClusterStore;
use tautline_sdk::{Compliance, Evaluation, EvaluationRequest, Reference};

use super::answer_metrics::AnswerMetrics;
use crate::{
    location::{is_pod, node_of},
    network::{Network, demanded_pairs::Requester},
    tables::{namespaces::Tables, table::RoundTrip},
};

const MAX_NODES: usize = 32;

#[derive(Clone, Copy)]
pub(crate) struct RuleContext<'a> {
    pub store: &'a ClusterStore,
    pub trusted: &'a TrustedNamespaces,
    pub tables: &'a ArcSwap<Tables<RoundTrip>>,
    pub network: &'a Network,
    pub metrics: &'a AnswerMetrics,
}

impl RuleContext<'_> {
    pub fn requester<'n>(&self, namespace: &'n str) -> Requester<'n> {
        Requester {
            namespace,
            trusted: self.trusted.contains(namespace),
        }
    }

    /// Returns the nodes of the targets, each once; `Err` has the evaluation if there are no pairs
    /// to evaluate.
    pub fn nodes_of_targets(&self, request: &EvaluationRequest) -> Result<Vec<String>, Evaluation> {
        let snapshot = self.store.snapshot();
        let targets = request.targets.iter();
        let nodes = targets.map(|(name, target)| node_of_target(&snapshot, request, name, target));
        let Some(mut nodes) = nodes.collect::<Option<Vec<String>>>() else {
            let reason = "not every target is placed";
            return Err(Evaluation::new(Compliance::Pending, reason));
        };
        nodes.sort_unstable();
        nodes.dedup();
        match nodes.len() {
            0 | 1 => Err(Evaluation::compliant("all on the same node")),
            n if n > MAX_NODES => {
                let reason = format!("{n} nodes in one binding; at most {MAX_NODES} are judged");
                Err(Evaluation::new(Compliance::Error, reason))
            }
            _ => Ok(nodes),
        }
    }

    pub fn nodes_of_pods(&self, request: &EvaluationRequest) -> BTreeSet<String> {
        let snapshot = self.store.snapshot();
        let pods = request.targets.iter().filter(|(_, target)| is_pod(target));
        pods.filter_map(|(name, target)| node_of_target(&snapshot, request, name, target))
            .collect()
    }
}

/// Returns the node of a target. A pod's node in the request takes precedence over the store's.
fn node_of_target(
    snapshot: &Snapshot,
    request: &EvaluationRequest,
    name: &str,
    target: &Reference,
) -> Option<String> {
    match request.target_nodes.get(name) {
        Some(node) if is_pod(target) => node.clone(),
        _ => node_of(snapshot, target),
    }
}
