//! Handles `filter`: returns the nodes of the request that the pod may use.

use std::sync::Arc;

use tautline_api::convert;
use tautline_core::{answer::AnswerMode, planning::NodeVerdict};
use tokio::time::Instant;

use crate::{
    client::Client,
    groups,
    in_flight::{self, Attempt, Unsettled},
    planning::plan_pod,
    plans::{PodPlan, reason_counts},
    pod, spans,
    state::State,
    wire::{self, Nodes, WireError},
};

const KIND: &str = "ExtenderArgs";

pub(crate) async fn filter(
    state: &Arc<State>,
    json: &str,
    client: &Client<'_>,
    deadline: Instant,
) -> Result<Vec<u8>, WireError> {
    let args = wire::args(KIND, json)?;
    let head = pod::head(KIND, args.pod)?;
    let pod = &head.identity;
    let is_exempt = state.is_exempt(&pod.namespace);
    let attempt = Attempt::read(state, pod);
    if attempt.constraints.is_empty() {
        let outcome = if is_exempt { "exempt" } else { "ungoverned" };
        state.metrics.pod(outcome);
        return Ok(pass_through(&args.nodes));
    }
    let span = state.config.traces.span("filter", client.caller);
    spans::pod(&span, pod);
    let nodes = args.nodes.names(KIND, state.config.max_nodes)?;
    // The posted pod is dropped here: the question is enough while the providers are called.
    let (question, in_flight) = match head.known(&attempt.snapshot).cloned() {
        Some(known) => (
            pod::known_question(&known, head.identity, nodes),
            pod::in_flight((*known).clone()),
        ),
        None => {
            let posted = pod::parse(KIND, args.pod)?;
            let in_flight = pod::in_flight(convert::pod(&posted));
            (pod::question(&posted, head.identity, nodes), in_flight)
        }
    };
    client.charge(json, &question, 0)?;
    let for_bind = state.config.bind.then(|| question.without_nodes());
    // Boxed, since its kilobytes would burden the requests of ungoverned pods.
    let plan = async {
        let member = groups::member_plan(state, &attempt.snapshot, &question).await;
        let is_alone = member.is_none();
        let (snapshot, plan) = match member {
            Some(plan) => (attempt.snapshot, plan),
            None => {
                let Attempt {
                    snapshot,
                    constraints,
                } = attempt.begin(state, &question.subject).await?;
                state.follow_flights(&snapshot);
                let plan = plan_pod(state, &snapshot, &constraints, question, deadline).await;
                (snapshot, plan)
            }
        };
        let plan = Arc::new(plan);
        // kube-scheduler waits only for the work above; the rest follows after the answer.
        let recording = state.begin_recording().await;
        let (recorder, recorded) = (Arc::clone(state), Arc::clone(&plan));
        tokio::spawn(async move {
            // The place of a group's member is held already.
            if is_alone {
                in_flight::record(&recorder, &snapshot, in_flight, &recorded);
            }
            recorder.cache(&recorded, for_bind);
            recorder.history.push(&recorded);
            drop(recording);
            recorder.publish(&snapshot, &recorded);
        });
        Ok::<_, Unsettled>(plan)
    };
    match span.scope(Box::pin(plan)).await {
        Ok(plan) => {
            spans::plan(&span, &plan);
            response(state, &args.nodes, &plan)
        }
        Err(unsettled) => {
            span.fail(|| unsettled.to_string());
            state.metrics.pod("unsettled");
            Ok(wire::error_result(&unsettled.to_string()))
        }
    }
}

fn pass_through(nodes: &Nodes<'_>) -> Vec<u8> {
    let (key, raw) = match nodes {
        Nodes::Names(names) | Nodes::PlainNames(names) => ("nodenames", *names),
        Nodes::Objects(list) => ("nodes", list.get()),
        Nodes::None => ("nodenames", "[]"),
    };
    let mut out = Vec::with_capacity(raw.len() + 16);
    for part in ["{\"", key, "\":", raw, "}"] {
        out.extend_from_slice(part.as_bytes());
    }
    out
}

fn response(state: &State, nodes: &Nodes<'_>, plan: &PodPlan) -> Result<Vec<u8>, WireError> {
    let (round, answer) = (&plan.round, &plan.answer);
    // kube-scheduler reads the reasons of unusable nodes only if no node is left. If all usable
    // nodes are returned they are sent too, for the extenders behind this one.
    let with_reasons = answer.nodes.is_empty() || plan.mode == AnswerMode::Shortlist(0);
    let (mut failed, mut unresolvable) = (Vec::new(), Vec::new());
    let verdicts = &round.plan.verdicts;
    for (at, verdict) in verdicts.iter().enumerate().filter(|_| with_reasons) {
        if let NodeVerdict::Unusable { reason, freeable } = verdict {
            let list = if *freeable {
                &mut failed
            } else {
                &mut unresolvable
            };
            list.push((round.nodes.name(at), &**reason));
        }
    }
    for (reason, count) in reason_counts(verdicts) {
        state.metrics.rejected_nodes(reason, count as u64);
    }
    state.metrics.pod(if answer.nodes.is_empty() {
        "rejected"
    } else {
        "placeable"
    });
    if answer.nodes.len() == 1 {
        state.metrics.single_node_answers.inc();
    }
    Ok(match nodes {
        Nodes::Objects(list) => {
            let items = wire::items(KIND, list, state.config.max_nodes)?;
            let mut usable = Vec::with_capacity(answer.nodes.len());
            for item in items {
                let at = round.nodes.position(&wire::node_name(KIND, item)?);
                if at.is_some_and(|at| answer.contains(at)) {
                    usable.push(item);
                }
            }
            wire::filter_objects(usable.into_iter(), &failed, &unresolvable)
        }
        _ => wire::filter_names(
            answer.nodes.iter().map(|at| round.nodes.name(*at)),
            &failed,
            &unresolvable,
        ),
    })
}
