//! Finds the best node for a pod's replacement after an eviction, and the gain over its present
//! node.

use std::{collections::BTreeMap, sync::Arc};

use tautline_core::{
    nodes::NodeSet,
    planning::{NodeVerdict, Plan},
};

use super::Refusal;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Move {
    pub node: String,
    /// The gain, by which moves are compared. The first part is true if the present node is
    /// unusable or the pod would get another allocation; the second is larger, the less the new
    /// node costs.
    pub gain: (bool, u64),
    /// The problem with the present node.
    pub why: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NodePlan {
    /// True if the provider of one of the violated offer's rules is an allocator: the replacement
    /// gets another allocation, such as another card, even on the same node.
    pub allocates: bool,
    pub nodes: Arc<NodeSet>,
    pub plan: Plan,
    /// The part that could not be planned, such as a rule, with the reason.
    pub unplanned: Option<String>,
}

pub(crate) fn better_node(plan: &NodePlan, node: &str) -> Result<Move, Refusal> {
    if let Some(unplanned) = &plan.unplanned {
        return Err(Refusal::new("PlanIncomplete", unplanned));
    }
    let (nodes, verdicts) = (&plan.nodes, &plan.plan.verdicts);
    let rank = |at: usize| verdicts[at].is_usable().then(|| verdicts[at].rank());
    let here = nodes.position(node);
    let best = plan
        .plan
        .usable()
        .filter(|at| Some(*at) != here)
        .filter_map(|at| Some((rank(at)?, nodes.name(at))))
        .min();
    let now = here.and_then(rank).map(|(cost, _)| cost);
    let to = |node: &str, gain, why: &str| {
        Ok(Move {
            node: node.to_owned(),
            gain,
            why: why.to_owned(),
        })
    };
    match (best, now) {
        (Some(((there, _), name)), None) => {
            let why = match here.map(|at| &verdicts[at]) {
                Some(NodeVerdict::Unusable { reason, .. }) => reason,
                _ => "its node would not take it any more",
            };
            to(name, (true, u64::MAX - there), why)
        }
        // A node of equal cost is no reason to move the pod.
        (Some(((there, _), name)), Some(now)) if there < now => {
            to(name, (false, now - there), "its node costs more")
        }
        (_, Some(now)) if plan.allocates => {
            let why = "its node would give it another allocation";
            to(node, (true, u64::MAX - now), why)
        }
        (Some(_), Some(_)) => {
            let text =
                format!("by the plan {node} keeps to every rule, and no other node costs less");
            Err(Refusal::new("NoBetterNode", text))
        }
        (None, _) => Err(Refusal::new("NoBetterNode", no_usable_node(plan, here))),
    }
}

/// Returns a text with the number of the other nodes and the reasons why they are unusable. `here`
/// is the position of the pod's node.
fn no_usable_node(plan: &NodePlan, here: Option<usize>) -> String {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, verdict) in plan.plan.verdicts.iter().enumerate() {
        if let NodeVerdict::Unusable { reason, .. } = verdict
            && Some(at) != here
        {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    let others = plan.plan.verdicts.len() - usize::from(here.is_some());
    let reasons: Vec<String> = reasons.iter().map(|(r, n)| format!("{n} {r}")).collect();
    match others {
        0 => "no other node fits the pod by Kubernetes' own rules: requests, taints, affinity, topology \
              spread, host ports, volumes, cordon"
            .to_owned(),
        _ => format!(
            "none of the {others} other nodes that fit the pod is within the rules: {}",
            reasons.join(", ")
        ),
    }
}
