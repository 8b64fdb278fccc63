//! `preempt`: of the nodes on which the scheduler would evict pods, those where
//! the pod could then really run.

use std::collections::BTreeMap;

use serde::Serialize;
use tautline_core::{constraints, nodes::NodeSet, planning::NodeVerdict};

use crate::{
    app::State,
    pod,
    wire::{self, Victims, WireError},
};

const WHAT: &str = "ExtenderPreemptionArgs";

/// `ExtenderPreemptionResult`: always meta victims, whatever the form asked in.
#[derive(Serialize)]
struct Answer {
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

/// Answers a preempt request.
pub(crate) async fn answer(state: &State, json: &str) -> Result<Vec<u8>, WireError> {
    let args = wire::preempt_args(json, state.config.max_nodes)?;
    let subject = pod::subject(WHAT, args.pod)?;
    let snapshot = state.feed.snapshot();
    let exempt = state.config.exempt_namespaces.contains(&subject.namespace);
    let mut victims = args.victims;
    if !exempt && constraints::is_governed(&snapshot, &subject) {
        let nodes: NodeSet = victims.keys().map(String::as_str).collect();
        let question = pod::question(WHAT, args.pod, subject, nodes)?;
        // Boxed for the same reason as in filter.
        let round = Box::pin(state.discovery.plan_pod(&snapshot, question)).await;
        victims.retain(|node, _| {
            let verdict = round
                .nodes
                .position(node)
                .and_then(|at| round.plan.verdicts.get(at));
            match verdict {
                Some(NodeVerdict::Usable { .. }) => true,
                Some(NodeVerdict::Unusable { freeable, .. }) => *freeable,
                None => false,
            }
        });
    }
    let meta = |v: Victims| MetaVictims {
        pods: v.uids.into_iter().map(|uid| MetaPod { uid }).collect(),
        pdb_violations: v.pdb_violations,
    };
    // A node needs at least one victim, or the scheduler refuses the answer.
    let nodes = victims
        .into_iter()
        .filter(|(_, v)| !v.uids.is_empty())
        .map(|(node, v)| (node, meta(v)))
        .collect();
    serde_json::to_vec(&Answer { nodes }).map_err(|error| WireError::Json { what: WHAT, error })
}
