//! What each node says to a pod, the best first.

use std::collections::HashMap;

use serde::Serialize;
use tautline_core::{model::Pod, node_filter};
use tautline_gpu_placement::Lane;
use tautline_gpu_slice::{
    At, Fit, View,
    view::{NodeCards, Verdict},
};

use super::report::RuleAnswer;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeAnswer {
    pub(super) node: String,
    /// The pod is there; its own part counts as free.
    pub(super) own: bool,
    pub(super) usable: bool,
    /// The provider's reason code, or `Kubernetes` for what keeps the pod from the
    /// node before any provider is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<&'static str>,
    pub(super) detail: String,
    /// It could if pods on it had gone.
    pub(super) freeable: bool,
    /// As the provider answers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<i64>,
    /// In the policy's own unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy_cost: Option<i64>,
    /// The cards that it would get.
    pub(super) cards: Vec<String>,
    /// The device plugin will choose; these waste least.
    pub(super) cards_are_guessed: bool,
}

pub(super) fn answers(
    view: &View,
    verdicts: Vec<Verdict>,
    pod: &Pod,
    node: Option<&str>,
) -> Vec<NodeAnswer> {
    let nodes = view.nodes();
    let nodes: HashMap<&str, &NodeCards<'_>> = nodes.iter().map(|n| (&**n.name, n)).collect();
    let answer = |verdict| answer(view, &nodes, verdict, pod, node);
    let mut all: Vec<NodeAnswer> = verdicts.into_iter().map(answer).collect();
    all.sort_by(|a, b| place(a).cmp(&place(b)));
    all
}

/// The nodes that every rule can use.
pub(super) fn usable_in_all(rules: &[RuleAnswer]) -> Vec<String> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for node in rules.iter().flat_map(|r| &r.nodes).filter(|n| n.usable) {
        *counts.entry(&node.node).or_default() += 1;
    }
    let first = rules.first().map_or(&[][..], |r| &r.nodes);
    let all = first
        .iter()
        .filter(|n| counts.get(n.node.as_str()) == Some(&rules.len()));
    all.map(|n| n.node.clone()).collect()
}

/// Usable ones by cost, then those that could be, then the rest by their reason.
fn place(answer: &NodeAnswer) -> impl Ord + '_ {
    let cost = answer.cost.filter(|_| answer.usable).unwrap_or(i64::MAX);
    (
        !answer.usable,
        cost,
        !answer.freeable,
        answer.code,
        answer.node.as_str(),
    )
}

fn answer(
    view: &View,
    nodes: &HashMap<&str, &NodeCards<'_>>,
    verdict: Verdict,
    pod: &Pod,
    own: Option<&str>,
) -> NodeAnswer {
    let snapshot = view.snapshot();
    let mut answer = NodeAnswer {
        own: own == Some(verdict.node.as_str()),
        node: verdict.node,
        usable: false,
        code: None,
        detail: String::new(),
        freeable: false,
        cost: None,
        policy_cost: None,
        cards: Vec::new(),
        cards_are_guessed: false,
    };
    match verdict.fit {
        Fit::No(no) => {
            answer.code = Some(no.code);
            answer.detail = no.detail;
            answer.freeable = no.freeable;
        }
        Fit::Yes {
            cost,
            policy_cost,
            detail,
            at,
            ..
        } => {
            answer.cost = Some(cost);
            answer.policy_cost = Some(policy_cost);
            answer.detail = detail;
            if let (Some(at), Some(node)) = (at, nodes.get(answer.node.as_str())) {
                answer.cards = cards(node, &at, answer.own);
                answer.cards_are_guessed = at.shape.lane != Lane::Milli;
            }
            let misfit = snapshot
                .node(&answer.node)
                .and_then(|n| node_filter::unschedulable_reason(snapshot, pod, n));
            answer.usable = misfit.is_none();
            if let Some(misfit) = misfit {
                answer.code = Some("Kubernetes");
                answer.detail = misfit.to_string();
            }
        }
    }
    answer
}

/// The names of the cards at a place. Of the pod's own node only a share's card is
/// told: its whole cards are not free here, and would be again.
fn cards(node: &NodeCards<'_>, at: &At, own: bool) -> Vec<String> {
    let Some(pool) = node.inventory.pools.get(at.pool) else {
        return Vec::new();
    };
    let name = |card: u16| Some(pool.cards.get(usize::from(card))?.name.to_string());
    let mut room = node
        .rooms
        .get(at.pool)
        .map(|r| (*r).clone())
        .unwrap_or_default();
    match room.take(&at.shape, at.card.map(usize::from)) {
        Ok(grant) if !own => grant.parts.iter().filter_map(|(c, _)| name(*c)).collect(),
        _ => at.card.and_then(name).into_iter().collect(),
    }
}
