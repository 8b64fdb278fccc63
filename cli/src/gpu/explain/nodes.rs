//! The answers of nodes for a pod, the best first.

use std::collections::HashMap;

use serde::Serialize;
use tautline_core::{model::Pod, node_filter::NodeFilter};
use tautline_gpu_slice::{Fit, Inspection, Location, inspection::NodeGpus};

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeReport {
    pub(super) node: String,
    /// True if the pod is on this node; its own part counts as free.
    pub(super) own: bool,
    pub(super) usable: bool,
    /// The provider's reason code, or `Kubernetes` for a reason that keeps the pod from the
    /// node before any provider is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<&'static str>,
    pub(super) detail: String,
    /// True if the node would be usable without pods that are on it.
    pub(super) freeable: bool,
    /// The cost in the provider's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<i64>,
    /// The cost in the policy's own unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) policy_cost: Option<i64>,
    pub(super) cards: Vec<String>,
    /// True if the device plugin will choose the cards; `cards` then waste the least.
    pub(super) cards_are_guessed: bool,
}

pub(super) fn node_reports(
    inspection: &Inspection,
    fits: Vec<(String, Fit)>,
    pod: &Pod,
    node: Option<&str>,
) -> Vec<NodeReport> {
    let nodes = inspection.nodes();
    let nodes: HashMap<&str, &NodeGpus<'_>> = nodes.iter().map(|n| (&**n.name, n)).collect();
    let filter = NodeFilter::new(inspection.snapshot(), pod);
    let answer = |fit| node_report(inspection, &nodes, fit, &filter, node);
    let mut all: Vec<NodeReport> = fits.into_iter().map(answer).collect();
    all.sort_by(|a, b| rank(a).cmp(&rank(b)));
    all
}

/// Sorts usable nodes by cost, then nodes that could be usable, then the rest by reason.
fn rank(answer: &NodeReport) -> impl Ord + '_ {
    let cost = answer.cost.filter(|_| answer.usable).unwrap_or(i64::MAX);
    (
        !answer.usable,
        cost,
        !answer.freeable,
        answer.code,
        answer.node.as_str(),
    )
}

fn node_report(
    inspection: &Inspection,
    nodes: &HashMap<&str, &NodeGpus<'_>>,
    (name, fit): (String, Fit),
    filter: &NodeFilter<'_>,
    own: Option<&str>,
) -> NodeReport {
    let snapshot = inspection.snapshot();
    let mut answer = NodeReport {
        own: own == Some(name.as_str()),
        node: name,
        ..NodeReport::default()
    };
    match fit {
        Fit::Unusable(unfit) => {
            answer.code = Some(unfit.code);
            answer.detail = unfit.detail;
            answer.freeable = unfit.freeable;
        }
        Fit::Usable {
            cost,
            policy_cost,
            detail,
            location,
            ..
        } => {
            answer.cost = Some(cost);
            answer.policy_cost = Some(policy_cost);
            answer.detail = detail;
            if let (Some(location), Some(node)) = (location, nodes.get(answer.node.as_str())) {
                answer.cards = cards(node, &location, answer.own);
                answer.cards_are_guessed = !location.shape.mode.is_recorded();
            }
            let misfit = snapshot.node(&answer.node).and_then(|n| filter.reason(n));
            answer.usable = misfit.is_none();
            if let Some(misfit) = misfit {
                answer.code = Some("Kubernetes");
                answer.detail = misfit.to_string();
            }
        }
    }
    answer
}

/// Returns the names of the cards at a location. On the pod's own node only a share's card is
/// named, since the pod's whole cards are not free there, but would be again.
fn cards(node: &NodeGpus<'_>, location: &Location, own: bool) -> Vec<String> {
    let Some(pool) = node.inventory.pools.get(location.pool) else {
        return Vec::new();
    };
    let name = |card: u16| Some(pool.cards.get(usize::from(card))?.name.to_string());
    let mut room = node
        .capacities
        .get(location.pool)
        .map(|r| (*r).clone())
        .unwrap_or_default();
    match room.take(&location.shape, location.card.map(usize::from)) {
        Ok(grant) if !own => grant.parts.iter().filter_map(|(c, _)| name(*c)).collect(),
        _ => location.card.and_then(name).into_iter().collect(),
    }
}
