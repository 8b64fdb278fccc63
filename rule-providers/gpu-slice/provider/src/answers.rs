//! The two questions, answered in one place: for the provider, and for
//! [`View`](crate::View).

use std::time::{Duration, Instant};

use tautline_core::Snapshot;
use tautline_gpu_placement::dra;
use tautline_sdk::{
    Compliance, CostAnswer, CostRequest, Evaluation, EvaluationRequest, ProviderError,
};

use crate::{
    cost::{self, Asking, Fit},
    evaluate,
    ledger::Parts,
    lines,
    need::{Amount, Need},
    refusal::No,
    state::{Own, State},
};

/// An answer holds so much longer than the watch rests: time to ask for the next one, with
/// what the watch has brought, before this one ends.
const AFTER_REST: Duration = Duration::from_millis(10);

/// The provider's answer, of lines that are kept as long as they hold. Until
/// `rests_until` no pod is looked at.
///
/// # Errors
/// A rule that makes no sense.
pub(crate) fn answer(
    state: &mut State,
    snapshot: &Snapshot,
    ask: CostRequest,
    now: Instant,
    rests_until: Option<Instant>,
) -> Result<CostAnswer, ProviderError> {
    let asked = Asked::new(state, snapshot, &ask, now)?;
    let mut asking = Asking::new(&asked.need);
    let mut answer = CostAnswer::with_capacity(ask.eligible_nodes.len());
    answer.resolution = asked.resolution(state);
    let stamp = state.ledger.board.stamp();
    let kept = state.ledger.parts().kept;
    kept.hold(stamp);
    let mut lines = kept.take(&asked.need);
    let mut changed: Vec<String> = Vec::new();
    if !asked.is_of_pod_somewhere() {
        answer.version = kept.changes().version();
        if let Some(nodes) = kept.changes().since(ask.known_version) {
            changed = nodes.into_iter().map(str::to_owned).collect();
            answer.changed_since = ask.known_version;
        }
        if let Some(until) = rests_until
            && until > now
            && !*state.reserves.borrow()
        {
            answer.valid_for = until + AFTER_REST - now;
        }
    }
    for name in ask.eligible_nodes.iter().chain(&changed) {
        let of_pod = asked.is_of_pod(name);
        if !of_pod && answer.push_cached(name, &mut lines) {
            continue;
        }
        let fit = asked.fit(state, snapshot, name, &mut asking, now);
        // What is no node is never forgotten either.
        match !of_pod && state.ledger.node(name).is_some() {
            true => answer.push_and_cache(lines::line(name, &fit), &mut lines),
            false => answer.push(lines::line(name, &fit)),
        }
    }
    state.ledger.parts().kept.put(asked.need, lines);
    Ok(answer)
}

/// Tells `each` what the nodes of the question say, in the question's order.
///
/// # Errors
/// A rule that makes no sense.
pub(crate) fn costs(
    state: &mut State,
    snapshot: &Snapshot,
    ask: CostRequest,
    now: Instant,
    mut each: impl FnMut(String, Fit),
) -> Result<(), ProviderError> {
    let asked = Asked::new(state, snapshot, &ask, now)?;
    let mut asking = Asking::new(&asked.need);
    for name in ask.eligible_nodes {
        let fit = asked.fit(state, snapshot, &name, &mut asking, now);
        each(name, fit);
    }
    Ok(())
}

/// A question, as far as it is the same for all nodes.
struct Asked {
    need: Need,
    /// Devices that a claim of the pod asks for, in place of the need.
    claimed: Option<dra::Ask>,
    /// It names claims. One that is not known yet may come at any time.
    claims: bool,
    own: Own,
}

impl Asked {
    /// Reads the question; what is asked is learned from.
    fn new(
        state: &mut State,
        snapshot: &Snapshot,
        ask: &CostRequest,
        now: Instant,
    ) -> Result<Self, ProviderError> {
        let need = Need::of(&state.ledger.names, &ask.rule, ask.workload.as_ref())?;
        let uid = ask.workload.as_ref().map_or("", |w| w.uid.as_str());
        let claimed = match need.amount {
            Amount::Nothing => state.devices.ask(ask),
            _ => None,
        };
        let named = ask.workload.as_ref().map(|w| &w.resource_claims);
        let claims = named.is_some_and(|names| !names.is_empty());
        let pod = snapshot.pod(&ask.source.namespace, &ask.source.name);
        // What a pod requests by itself was counted when it was seen.
        if claimed.is_none() && pod.is_none_or(|p| state.ledger.request_of(p).is_none()) {
            state.ledger.asked(uid, &need);
        }
        let own = Own::of(state, snapshot, ask, uid, now);
        Ok(Self {
            need,
            claimed,
            claims,
            own,
        })
    }

    /// What costs of equally good nodes may differ by, tie-breaks aside: units and claims
    /// are counted, not weighed by the policy.
    fn resolution(&self, state: &State) -> i64 {
        match self.need.amount {
            Amount::Cards(_) | Amount::Share(_) | Amount::Memory(_) => {
                state.ledger.board.resolution().saturating_mul(cost::RANKS)
            }
            Amount::Nothing | Amount::Units { .. } => 0,
        }
    }

    /// Whether the node says to this pod what it says to no other that is like it.
    fn is_of_pod(&self, name: &str) -> bool {
        self.claimed.is_some() || self.own.is_on(name)
    }

    /// Whether any node may.
    fn is_of_pod_somewhere(&self) -> bool {
        self.claims || self.claimed.is_some() || self.own.is_anywhere()
    }

    fn fit(
        &self,
        state: &mut State,
        snapshot: &Snapshot,
        name: &str,
        asking: &mut Asking<'_>,
        now: Instant,
    ) -> Fit {
        if let Some(claimed) = &self.claimed {
            return state.devices.fit(&state.ledger, snapshot, name, claimed);
        }
        let freed = self.own.freed(state, snapshot, name, now);
        let Parts {
            names,
            nodes,
            board,
            ..
        } = state.ledger.parts();
        match (nodes.get(name), &freed) {
            (None, _) => Fit::No(No::unknown_node()),
            (_, Some((entry, rooms))) => cost::fit(names, board, entry, asking, Some(rooms)),
            (Some(entry), None) => cost::fit(names, board, entry, asking, None),
        }
    }
}

/// Whether the pods of the question still have what they were given.
///
/// # Errors
/// A rule that makes no sense.
pub(crate) fn evaluation(
    state: &State,
    snapshot: &Snapshot,
    ask: &EvaluationRequest,
) -> Result<Evaluation, ProviderError> {
    let State {
        ledger, devices, ..
    } = state;
    let need = Need::of(&ledger.names, &ask.rule, None)?;
    let mut parts = Vec::new();
    for (name, target) in ask.targets.iter().filter(|(_, t)| t.kind == "Pod") {
        match snapshot.pod(&target.namespace, &target.name) {
            None => parts.push(match ask.target_nodes.get(name) {
                Some(Some(node)) => Evaluation::new(
                    Compliance::Error,
                    format!("pod {} on node {node} is not known yet", target.name),
                ),
                // Before it reserves it is not told of pods that wait.
                _ => Evaluation::new(
                    Compliance::Pending,
                    format!("pod {} is not placed, as far as is known", target.name),
                ),
            }),
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
    let compliance = Compliance::aggregate(parts.iter().map(|p| p.compliance));
    let worst = parts.into_iter().find(|p| p.compliance == compliance);
    Ok(Evaluation {
        compliance,
        reason: worst.map(|p| p.reason).unwrap_or_default(),
    })
}
