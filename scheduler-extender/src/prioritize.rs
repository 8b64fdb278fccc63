//! `prioritize`: how good each node is, from the plan that filter made.

use std::sync::Arc;

use tautline_core::{Snapshot, constraints};

use crate::{
    app::State,
    plans::Planned,
    pod,
    wire::{self, HostPriority, WireError},
};

const WHAT: &str = "ExtenderArgs";

/// Answers a prioritize request.
pub(crate) async fn answer(state: &State, json: &str) -> Result<Vec<u8>, WireError> {
    let args = wire::args(WHAT, json)?;
    let subject = pod::subject(WHAT, args.pod)?;
    let governed = |snapshot: &Snapshot| {
        let exempt = state.config.exempt_namespaces.contains(&subject.namespace);
        !exempt && constraints::is_governed(snapshot, &subject)
    };
    let kept = state.plans.get(&subject.uid);
    // What is nobody's business is answered without a look at the names.
    if kept.is_none() && !governed(&state.feed.snapshot()) {
        return Ok(b"[]".to_vec());
    }
    let nodes = args.nodes.names(WHAT, state.config.max_nodes)?;
    let round = match kept.filter(|plan| plan.admits(&nodes)) {
        Some(round) => round,
        None => {
            // Filter is not configured, or another replica has filtered.
            let snapshot = state.feed.snapshot();
            if !governed(&snapshot) {
                return Ok(b"[]".to_vec());
            }
            let question = pod::question(WHAT, args.pod, subject, nodes.clone())?;
            // Boxed for the same reason as in filter.
            let round = Box::pin(state.discovery.plan_pod(&snapshot, question)).await;
            Arc::new(Planned {
                round,
                underlay: None,
            })
        }
    };
    let score = |node| {
        let at = round.nodes.position(node)?;
        Some(round.plan.verdicts.get(at)?.score())
    };
    let list: Vec<HostPriority<'_>> = nodes
        .iter()
        .map(|host| HostPriority {
            host,
            score: score(host).unwrap_or(0),
        })
        .collect();
    serde_json::to_vec(&list).map_err(|error| WireError::Json { what: WHAT, error })
}
