//! `filter`: which of the posted nodes the pod may use.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tautline_core::{
    constraints::{self, PodIdentity},
    model::{Offer, key},
    planning::NodeVerdict,
};
use tautline_provider_client::PlanningRound;
use tokio::time::Instant;

use crate::{
    app::State,
    pod, underlay,
    wire::{self, Nodes, WireError},
};

const WHAT: &str = "ExtenderArgs";
/// The pods of an offer are listed in less, unless there are very many.
const SETTLES_WITHIN: Duration = Duration::from_millis(200);

/// Answers a filter request, before `by`.
pub(crate) async fn answer(state: &State, json: &str, by: Instant) -> Result<Vec<u8>, WireError> {
    let args = wire::args(WHAT, json)?;
    let subject = pod::subject(WHAT, args.pod)?;
    let exempt = state.config.exempt_namespaces.contains(&subject.namespace);
    if !exempt {
        settled(state, &subject).await?;
    }
    let snapshot = state.feed.snapshot();
    if exempt || !constraints::is_governed(&snapshot, &subject) {
        state
            .metrics
            .pod(if exempt { "exempt" } else { "ungoverned" });
        return Ok(pass_through(&args.nodes));
    }
    let nodes = args.nodes.names(WHAT, state.config.max_nodes)?;
    let question = pod::question(WHAT, args.pod, subject, nodes)?;
    // Boxed: its state is kilobytes, which no request of an ungoverned pod has to carry.
    let plan = Box::pin(underlay::plan(state, &snapshot, question, by)).await;
    let plan = Arc::new(plan);
    state.concluded(&plan);
    reply(state, &args.nodes, &plan)
}

/// An offer that does not count yet may be about the pod: it is waited for, and if that
/// takes long kube-scheduler has to ask again, as a limit must not be passed over.
async fn settled(state: &State, subject: &PodIdentity) -> Result<(), WireError> {
    let governs = |offer: &Offer| constraints::governs(offer, subject);
    match state
        .feed
        .wait_for_pending_offers(governs, SETTLES_WITHIN)
        .await
    {
        Ok(()) => Ok(()),
        Err(offer) => {
            state.metrics.pod("unsettled");
            Err(WireError::Unsettled(key(&offer.namespace, &offer.name)))
        }
    }
}

/// The same nodes in the same form.
fn pass_through(nodes: &Nodes<'_>) -> Vec<u8> {
    let (key, raw) = match nodes {
        Nodes::Names(names) => ("nodenames", *names),
        Nodes::Objects(list) => ("nodes", list.get()),
        Nodes::None => ("nodenames", "[]"),
    };
    let mut out = Vec::with_capacity(raw.len() + 16);
    for part in ["{\"", key, "\":", raw, "}"] {
        out.extend_from_slice(part.as_bytes());
    }
    out
}

fn reply(state: &State, nodes: &Nodes<'_>, round: &PlanningRound) -> Result<Vec<u8>, WireError> {
    let short = round
        .plan
        .shortlist(&round.nodes, state.config.shortlist, &round.subject.uid);
    // Why other nodes are not usable kube-scheduler reads only if none is left. Where
    // others filter after us, a whole answer (no shortlist) has it all the same.
    let told = short.is_empty() || state.config.shortlist == 0;
    let (mut failed, mut unresolvable) = (Vec::new(), Vec::new());
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (at, verdict) in round.plan.verdicts.iter().enumerate() {
        if let NodeVerdict::Unusable { reason, freeable } = verdict {
            *counts.entry(reason).or_default() += 1;
            let list = if *freeable {
                &mut failed
            } else {
                &mut unresolvable
            };
            if told {
                list.push((round.nodes.name(at), &**reason));
            }
        }
    }
    if told && !counts.is_empty() {
        state
            .rejects
            .send_if_modified(|rejects| !std::mem::replace(rejects, true));
    }
    for (reason, count) in counts {
        state.metrics.rejected_nodes(reason, count);
    }
    state.metrics.pod(if short.is_empty() {
        "rejected"
    } else {
        "placeable"
    });
    Ok(match nodes {
        Nodes::Objects(list) => {
            let items = wire::items(WHAT, list, state.config.max_nodes)?;
            let mut keep = Vec::with_capacity(short.len());
            for item in items {
                let at = round.nodes.position(&wire::node_name(WHAT, item)?);
                if at.is_some_and(|at| short.binary_search(&at).is_ok()) {
                    keep.push(item);
                }
            }
            wire::filter_objects(keep.into_iter(), &failed, &unresolvable)
        }
        _ => wire::filter_names(
            short.iter().map(|at| round.nodes.name(*at)),
            &failed,
            &unresolvable,
        ),
    })
}
