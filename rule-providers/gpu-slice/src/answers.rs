//! The two questions, answered from the ledger: for the provider, and for [`View`].
//!
//! [`View`]: crate::View

use tautline_core::{Snapshot, model::Pod};
use tautline_gpu::{Room, inventory};
use tautline_sdk::{Compliance, CostQuestion, EvaluateQuestion, Evaluation, ProviderError};

use crate::{
    cost::{self, Fit, No},
    evaluate,
    ledger::{Entry, Ledger},
    need::Need,
};

/// What one node says to a need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The node's name.
    pub node: String,
    /// Whether it can serve the need, and at what cost.
    pub fit: Fit,
}

/// What each node of the question costs, in the question's order.
///
/// # Errors
/// A rule that makes no sense.
pub(crate) fn costs(
    ledger: &mut Ledger,
    snapshot: &Snapshot,
    ask: &CostQuestion,
) -> Result<Vec<Verdict>, ProviderError> {
    let need = Need::of(&ledger.names, &ask.rule, ask.workload.as_ref())?;
    let pod = snapshot.pod(&ask.source.namespace, &ask.source.name);
    // What a pod requests by itself was counted when it was seen.
    if pod.is_none_or(|p| ledger.request_of(p).is_none()) {
        let uid = ask.workload.as_ref().map_or("", |w| w.uid.as_str());
        ledger.asked(uid, &need);
    }
    let own = pod.filter(|p| p.node.is_some());
    let verdicts = ask.eligible_nodes.iter().map(|name| {
        let freed = own
            .filter(|p| p.node.as_deref() == Some(name))
            .and_then(|pod| freed(ledger, snapshot, pod));
        let (names, nodes, board) = ledger.parts();
        let fit = match (nodes.get(name.as_str()), &freed) {
            (None, _) => Fit::No(No::unknown_node()),
            (_, Some((entry, rooms))) => cost::fit(names, board, entry, &need, Some(rooms)),
            (Some(entry), None) => cost::fit(names, board, entry, &need, None),
        };
        let node = name.clone();
        Verdict { node, fit }
    });
    Ok(verdicts.collect())
}

/// Whether the pods of the question still have what they were given.
///
/// # Errors
/// A rule that makes no sense.
pub(crate) fn evaluation(
    ledger: &Ledger,
    snapshot: &Snapshot,
    ask: &EvaluateQuestion,
) -> Result<Evaluation, ProviderError> {
    let need = Need::of(&ledger.names, &ask.rule, None)?;
    let mut parts = Vec::new();
    for target in ask.targets.values().filter(|t| t.kind == "Pod") {
        parts.push(match snapshot.pod(&target.namespace, &target.name) {
            None => Evaluation::new(
                Compliance::Error,
                format!("pod {} is not known", target.name),
            ),
            Some(pod) => evaluate::pod(ledger, snapshot, pod, &need),
        });
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

/// A placed pod's node as it would be without the pod, for one that asks again.
fn freed(ledger: &mut Ledger, snapshot: &Snapshot, pod: &Pod) -> Option<(Entry, Vec<Room>)> {
    let name = pod.node.as_deref()?;
    let node = snapshot.node(name)?;
    let others = snapshot.pods_on(name).iter().map(|p| &**p);
    let same = |p: &&Pod| p.name == pod.name && p.namespace == pod.namespace;
    let others = others.filter(|p| !same(p));
    let inventory = inventory::read(&ledger.names, node, others, &[]);
    let (_, nodes, board) = ledger.parts();
    let known = nodes.get(name)?;
    let rooms = inventory
        .pools
        .iter()
        .map(|pool| inventory.room(pool, board.kind(&pool.kind)))
        .collect();
    let entry = Entry {
        slots: known.slots.clone(),
        rank: known.rank,
        inventory,
    };
    Some((entry, rooms))
}
