//! Handles `what-if`: says how the rules would decide on a pod now, and remembers nothing.

use serde::{Deserialize, Serialize};
use tautline_api::convert;
use tautline_provider_client::PlanningQuestion;

use crate::{
    client::Client,
    explain::{NodeRecord, RuleRecord, node_records, rule_records},
    groups::{self, GroupRecord},
    pod,
    state::State,
    wire::{self, Nodes, WireError},
};

const KIND: &str = "WhatIf";

/// The answer of `/what-if`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// False if no offer governs the pod: then every node is usable, without costs.
    pub governed: bool,
    /// The rules of all offers that govern the pod.
    pub rules: Vec<RuleRecord>,
    /// The nodes, sorted by rank: the best first, unusable nodes last.
    pub nodes: Vec<NodeRecord>,
    /// The joint plan of `count` such pods; absent without `count`, and if no offer governs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupRecord>,
}

pub(crate) async fn what_if(
    state: &State,
    json: &str,
    client: &Client<'_>,
) -> Result<Vec<u8>, WireError> {
    let args = wire::what_if_args(KIND, json)?;
    let subject = pod::identity(KIND, args.pod)?;
    let (snapshot, max) = (state.store.snapshot(), state.config.max_nodes);
    let nodes = match &args.nodes {
        Nodes::None if snapshot.node_count() > max => {
            let count = snapshot.node_count();
            return Err(WireError::TooManyNodes {
                kind: KIND,
                count,
                max,
            });
        }
        Nodes::None => snapshot.nodes().map(|node| &*node.name).collect(),
        named => named.names(KIND, max)?,
    };
    let constraints = state.constraints(&snapshot, &subject);
    let question = PlanningQuestion {
        // The namespace's share of kube-scheduler's time is not charged.
        scheduler_waits: false,
        ..pod::parse_question(KIND, args.pod, subject, nodes)?
    };
    client.charge(json, &question, 0)?;
    // Boxed for the same reason as in filter.
    let round = state.providers.plan_with(&snapshot, &constraints, question);
    let round = Box::pin(round).await;
    let group = match args.count {
        Some(count) if !constraints.is_empty() => {
            let pod = convert::pod(&pod::parse(KIND, args.pod)?);
            Some(Box::pin(groups::try_places(state, &snapshot, &pod, count)).await)
        }
        _ => None,
    };
    let answer = WhatIf {
        group,
        governed: !constraints.is_empty(),
        rules: rule_records(&round),
        nodes: node_records(&round),
    };
    serde_json::to_vec(&answer).map_err(|error| WireError::Json { kind: KIND, error })
}
