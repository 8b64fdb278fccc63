//! The two questions, answered in one place: for the provider, and for
//! [`View`](crate::View).

use std::time::Instant;

use tautline_core::Snapshot;
use tautline_sdk::{Compliance, CostQuestion, EvaluateQuestion, Evaluation, ProviderError};

use crate::{
    cost::{self, Asking, Fit},
    evaluate,
    need::{Amount, Need},
    refusal::No,
    state::{Own, State},
};

/// Tells `each` what the nodes of the question say, in the question's order.
///
/// # Errors
/// A rule that makes no sense.
pub(crate) fn costs(
    state: &mut State,
    snapshot: &Snapshot,
    ask: CostQuestion,
    now: Instant,
    mut each: impl FnMut(String, Fit),
) -> Result<(), ProviderError> {
    let need = Need::of(&state.ledger.names, &ask.rule, ask.workload.as_ref())?;
    let uid = ask.workload.as_ref().map_or("", |w| w.uid.as_str());
    let pod = snapshot.pod(&ask.source.namespace, &ask.source.name);
    if need.amount == Amount::Nothing
        && let Some(claimed) = pod.and_then(|p| state.devices.ask(p))
    {
        for name in ask.eligible_nodes {
            let fit = state.devices.fit(&state.ledger, snapshot, &name, &claimed);
            each(name, fit);
        }
        return Ok(());
    }
    // What a pod requests by itself was counted when it was seen.
    if pod.is_none_or(|p| state.ledger.request_of(p).is_none()) {
        state.ledger.asked(uid, &need);
    }
    let own = Own::of(state, snapshot, &ask, uid, now);
    let mut asking = Asking::new(&need);
    for name in ask.eligible_nodes {
        let freed = own.freed(state, snapshot, &name, now);
        let (names, nodes, board) = state.ledger.parts();
        let fit = match (nodes.get(name.as_str()), &freed) {
            (None, _) => Fit::No(No::unknown_node()),
            (_, Some((entry, rooms))) => cost::fit(names, board, entry, &mut asking, Some(rooms)),
            (Some(entry), None) => cost::fit(names, board, entry, &mut asking, None),
        };
        each(name, fit);
    }
    Ok(())
}

/// Whether the pods of the question still have what they were given.
///
/// # Errors
/// A rule that makes no sense.
pub(crate) fn evaluation(
    state: &State,
    snapshot: &Snapshot,
    ask: &EvaluateQuestion,
) -> Result<Evaluation, ProviderError> {
    let State {
        ledger, devices, ..
    } = state;
    let need = Need::of(&ledger.names, &ask.rule, None)?;
    let mut parts = Vec::new();
    for target in ask.targets.values().filter(|t| t.kind == "Pod") {
        match snapshot.pod(&target.namespace, &target.name) {
            None => parts.push(Evaluation::new(
                Compliance::Error,
                format!("pod {} is not known", target.name),
            )),
            Some(pod) => {
                let node = pod.node.as_deref();
                parts.extend(node.and_then(|node| devices.evaluate(node, pod)));
                parts.push(evaluate::pod(ledger, snapshot, pod, &need));
            }
        }
    }
    if parts.is_empty() {
        return Ok(Evaluation::compliant("no pod is among the targets"));
    }
    let compliance = Compliance::of_parts(parts.iter().map(|p| p.compliance));
    let worst = parts.into_iter().find(|p| p.compliance == compliance);
    Ok(Evaluation {
        compliance,
        reason: worst.map(|p| p.reason).unwrap_or_default(),
    })
}
