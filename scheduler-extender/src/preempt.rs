//! Handles `preempt`: returns the nodes of the request where the pod could run after preemption.

use std::collections::BTreeMap;

use serde::Serialize;
use tautline_core::{nodes::NodeSet, planning::NodeVerdict};

use crate::{
    client::Client,
    pod, spans,
    state::State,
    wire::{self, Victims, WireError},
};

const KIND: &str = "ExtenderPreemptionArgs";

/// The `ExtenderPreemptionResult`, which has meta victims even if the request has whole pods.
#[derive(Serialize)]
struct PreemptionResult {
    #[serde(rename = "nodeNameToMetaVictims")]
    nodes: BTreeMap<String, MetaVictims>,
}

#[derive(Serialize)]
struct MetaVictims {
    pods: Vec<MetaPod>,
    #[serde(rename = "numPDBViolations")]
    pdb_violations: i64,
}

#[derive(Serialize)]
struct MetaPod {
    uid: String,
}

pub(crate) async fn preempt(
    state: &State,
    json: &str,
    client: &Client<'_>,
) -> Result<Vec<u8>, WireError> {
    let args = wire::preempt_args(json, state.config.max_nodes)?;
    let pod = pod::identity(KIND, args.pod)?;
    let snapshot = state.store.snapshot();
    let constraints = state.constraints(&snapshot, &pod);
    let mut victims = args.victims;
    if !constraints.is_empty() {
        let span = state.config.traces.span("preempt", client.caller);
        spans::pod(&span, &pod);
        let nodes: NodeSet = victims.keys().map(String::as_str).collect();
        let question = pod::parse_question(KIND, args.pod, pod, nodes)?;
        client.charge(json, &question)?;
        // Boxed for the same reason as in filter.
        let round = state.providers.plan_with(&snapshot, &constraints, question);
        let round = span.scope(Box::pin(round)).await;
        spans::round(&span, &round);
        victims.retain(|node, _| match round.verdict(node) {
            Some(NodeVerdict::Usable { .. }) => true,
            Some(NodeVerdict::Unusable { freeable, .. }) => *freeable,
            None => false,
        });
    }
    let meta = |v: Victims| MetaVictims {
        pods: v.uids.into_iter().map(|uid| MetaPod { uid }).collect(),
        pdb_violations: v.pdb_violations,
    };
    // kube-scheduler refuses an answer with a node that has no victims.
    let nodes = victims
        .into_iter()
        .filter(|(_, v)| !v.uids.is_empty())
        .map(|(node, v)| (node, meta(v)))
        .collect();
    serde_json::to_vec(&PreemptionResult { nodes })
        .map_err(|error| WireError::Json { kind: KIND, error })
}
