//! Handles `preempt`: returns the nodes of the request where the pod could run after preemption.

use tautline_core::{nodes::NodeSet, planning::NodeVerdict};

use crate::{
    client::Client,
    pod, spans,
    state::State,
    wire::{self, Victims, WireError},
};

const KIND: &str = "ExtenderPreemptionArgs";

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
        client.charge(
            json,
            &question,
            victims.values().map(Victims::heap_bytes).sum(),
        )?;
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
    // kube-scheduler refuses an answer with a node that has no victims.
    victims.retain(|_, victims| !victims.pods.is_empty());
    Ok(wire::preemption_result(&victims))
}
