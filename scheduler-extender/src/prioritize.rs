//! Handles `prioritize`: returns the nodes' scores by the plan that filter made.

use tautline_core::{nodes::NodeSet, planning::NodeVerdict};
use tautline_provider_client::PlanningRound;

use crate::{
    client::Client,
    pod, spans,
    state::State,
    wire::{self, HostPriority, WireError},
};

const KIND: &str = "ExtenderArgs";

pub(crate) async fn prioritize(
    state: &State,
    json: &str,
    client: &Client<'_>,
) -> Result<Vec<u8>, WireError> {
    let args = wire::args(KIND, json)?;
    let pod = pod::identity(KIND, args.pod)?;
    let names = || args.nodes.names(KIND, state.config.max_nodes);
    let mut parsed = None;
    if let Some(plan) = state.plans.get(&pod.namespace, &pod.uid) {
        let nodes = parsed.insert(names()?);
        if plan.allows_all(nodes) {
            let span = state
                .config
                .traces
                .span("prioritize", &client.caller.or(&plan.span));
            spans::pod(&span, &pod);
            return scores(&plan, nodes);
        }
    }
    // Filter is not configured, the pod is ungoverned, or another replica has filtered it.
    let snapshot = state.store.snapshot();
    let constraints = state.constraints(&snapshot, &pod);
    if constraints.is_empty() {
        return Ok(b"[]".to_vec());
    }
    let nodes = match parsed {
        Some(nodes) => nodes,
        None => names()?,
    };
    let span = state.config.traces.span("prioritize", client.caller);
    spans::pod(&span, &pod);
    let question = pod::parse_question(KIND, args.pod, pod, nodes.clone())?;
    client.charge(json, &question, 0)?;
    // Boxed for the same reason as in filter.
    let round = state.providers.plan_with(&snapshot, &constraints, question);
    let round = span.scope(Box::pin(round)).await;
    spans::round(&span, &round);
    scores(&round, &nodes)
}

fn scores(round: &PlanningRound, nodes: &NodeSet) -> Result<Vec<u8>, WireError> {
    let priority = |host| HostPriority {
        host,
        score: round.verdict(host).map_or(0, NodeVerdict::score),
    };
    let list: Vec<HostPriority<'_>> = nodes.iter().map(priority).collect();
    serde_json::to_vec(&list).map_err(|error| WireError::Json { kind: KIND, error })
}
